"""What was sent to a model is stored line by line with its sources, and without secrets (SPEC 9.6, 11.1)."""

import json
from pathlib import Path

import pytest

from engine.execution.runners.model import ConversationStore, Model
from engine.model import PromptPart, SourceKind
from engine.redaction import CUT
from tests.support.model_server import make_call
from tests.support.model_world import ModelWorld

pytestmark = pytest.mark.long


def select_texts(parts: tuple[PromptPart, ...], role: str) -> list[str]:
    """The texts of the parts with this role."""
    return [part.text for part in parts if part.role == role]


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_the_xray_shows_what_was_sent(world: ModelWorld):
    (world.repository.path / "AGENTS.md").write_text("Use <tabs> & no spaces.\n")
    world.server.script(make_call("read", path="readme.md"), "Nothing to do.")
    with world.opened() as engine:
        view = world.run()
        first, second = engine.calls.list_for_session(view.id)
        assert second.follows == first.id
        for call, request in zip((first, second), world.server.requests, strict=True):
            sent = engine.calls.read_prompt(call.id)
            assert request.system == "\n\n".join(select_texts(sent, "system"))
            assert request.users[0] == select_texts(sent, "user")[0]
            assert request.tool_results == select_texts(sent, "tool")
        lines = [line for part in engine.calls.read_prompt(first.id) for line in part.lines]
        refs = {kind: {line.source.ref for line in lines if line.source.kind is kind} for kind in SourceKind}
        assert refs[SourceKind.SOUL] == {str(engine.home.agents / "backend_builder" / "soul.md")}
        assert refs[SourceKind.PROJECT] == {str(world.repository.path / "AGENTS.md")}
        assert view.prediction_id in refs[SourceKind.TASK]


def test_a_key_in_a_stored_conversation_is_cut_when_it_continues(tmp_path: Path):
    store = ConversationStore(tmp_path, tuple)
    store.begin("sess_1")
    store.add("sess_1", ['{"content": "use ghp_0123456789abcdefghijABCDEFGHIJ012345"}', '{"b": "ü"}'])
    copy = store.begin("sess_2", continues="sess_1")
    assert [json.loads(line) for line in copy.read_text().splitlines()] == [{"content": f"use {CUT}"}, {"b": "ü"}]


def test_the_repr_of_a_model_has_no_key():
    assert "secret" not in repr(Model("openai", "m", "openai", "http://a", "sk-secret"))
