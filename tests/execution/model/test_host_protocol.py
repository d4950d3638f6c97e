"""Messages between engine and model host can always be sent, and show no key; nor do stored conversations."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.execution.runners.model import host_protocol
from engine.execution.runners.model.conversation_store import ConversationStore
from engine.execution.runners.model.host_protocol import Model
from engine.model.secrets import CUT


def test_a_key_in_a_stored_conversation_is_cut_when_it_continues(tmp_path: Path) -> None:
    store = ConversationStore(tmp_path)
    store.begin("sess_1")
    store.add("sess_1", ['{"content": "use ghp_0123456789abcdefghijABCDEFGHIJ012345"}', '{"b": "ü"}'])
    copy = store.begin("sess_2", continues="sess_1")
    assert [json.loads(line) for line in copy.read_text().splitlines()] == [{"content": f"use {CUT}"}, {"b": "ü"}]


def test_the_repr_of_a_model_has_no_key() -> None:
    assert "secret" not in repr(Model("openai", "m", "openai", "http://a", "sk-secret"))


@given(st.text(st.characters(categories=["Cs"]), min_size=1, max_size=4))
@settings(max_examples=10, deadline=None)
def test_half_characters_can_be_encoded(half: str) -> None:
    assert host_protocol.decode(host_protocol.encode({"text": half})).keys() == {"text"}
