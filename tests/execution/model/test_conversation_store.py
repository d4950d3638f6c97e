"""A conversation that another session continues shows no key (SPEC 11.1)."""

import json
from pathlib import Path

from engine.execution.runners.model.conversation_store import ConversationStore
from engine.model.secrets import CUT


def test_a_key_in_a_stored_conversation_is_cut_when_it_continues(tmp_path: Path):
    store = ConversationStore(tmp_path, tuple)
    store.begin("sess_1")
    store.add("sess_1", ['{"content": "use ghp_0123456789abcdefghijABCDEFGHIJ012345"}', '{"b": "ü"}'])
    copy = store.begin("sess_2", continues="sess_1")
    assert [json.loads(line) for line in copy.read_text().splitlines()] == [{"content": f"use {CUT}"}, {"b": "ü"}]
