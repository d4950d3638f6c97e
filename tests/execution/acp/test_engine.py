"""The whole engine with an agent: card, approval, session, X-ray, landing, undo (SPEC 2.4, 9.2, 9.4, 9.6)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import open_engine
from engine.home import Home
from engine.model import PermissionAnswer, SessionState
from tests.conftest import Repository
from tests.execution.acp.acp_world import AGENT


@pytest.fixture
def engine(tmp_path: Path, repository: Repository) -> Iterator[Any]:
    repository.commit("first", {"a.txt": "one\n"})
    home = Home.locate(tmp_path / "home")
    home.config.mkdir(parents=True)
    home.config_file.write_text(
        f"[acp.small]\ncommand = {json.dumps([sys.executable, str(AGENT)])}\n"
        'hosts = ["api.example.com"]\n[channels.koji-core]\nagent = "backend_builder"\nrunner = "acp:small"\n'
    )
    opened = open_engine(home, workspaces=[str(repository.path)], start_schedule=False)
    yield opened
    opened.close()


@pytest.mark.long
def test_from_a_card_to_a_landing(engine: Any, repository: Repository) -> None:
    steps = [
        {"write": {"path": "b.txt", "content": "by the agent\n"}},
        {"permission": {"title": "Something of its own", "kind": "other"}},
        {"say": "Done."},
    ]
    task = "SCRIPT " + json.dumps(steps)
    card = engine.cards.propose(task, workspace=str(repository.path), channel="koji-core")
    assert card.assignment.runner == "acp:small"
    engine.cards.approve(card.id)
    session = engine.sessions.of_prediction(card.id)
    ended = engine.sessions.get(session.id)
    while not ended.state.over:
        for request in engine.permissions.waiting():
            assert any(waiting.kind == "permission" for waiting in engine.queue())
            engine.permissions.answer(request.id, PermissionAnswer.DENY_ONCE)
        ended = engine.sessions.wait(session.id, 0.05)
    lines = [line.text for line in engine.sessions.transcript(session.id)]
    assert ended.state is SessionState.SUCCEEDED, lines
    assert "answer reject_once" in lines
    (call,) = engine.calls.for_session(session.id)
    assert (call.provider, call.state, call.price_known) == ("acp:small", "done", False)
    sent = "\n".join(part.text for part in engine.calls.prompt(call.id))
    assert "SCRIPT" in sent
    assert call.notes[-1] == "what the agent adds itself is not visible here"
    engine.changes.land(ended.change_set_id)
    assert (repository.path / "b.txt").read_text() == "by the agent\n"
    engine.changes.undo(ended.change_set_id)
    assert not (repository.path / "b.txt").exists()
