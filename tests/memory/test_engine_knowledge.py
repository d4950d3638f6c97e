"""Layers D to G in a real engine: a session is captured, summed up, put into the graph, and found again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.engine import Engine, open_engine
from engine.home import Home
from engine.services import Overrides
from engine.wiring.acting import last_heard
from engine.wiring.prediction import last_sign
from tests.conftest import MONDAY_MORNING, Repository


@pytest.fixture
def engine(tmp_path: Path, repository: Repository) -> Iterator[Engine]:
    repository.commit("first", {"README.md": "Decision: we keep the old parser for good\n"})
    engine = open_engine(
        Home.locate(tmp_path / "home"),
        workspaces=[str(repository.path)],
        clock=FakeClock(MONDAY_MORNING),
        start_schedule=False,
        overrides=Overrides(throw_away=True, deaf=True),
    )
    yield engine
    engine.close()


def test_transcripts_that_cannot_be_read_are_told_once(engine: Engine, tmp_path: Path) -> None:
    engine.settings.set("memory.transcripts", [str(tmp_path / "none")])
    for _ in range(2):
        engine.importer.run()
    told = [one.payload["message"] for one in engine.ledger.latest(50, kinds=("FaultReported",))]
    assert told == [f"{tmp_path / 'none'} is not a folder"]


def test_a_conversation_elsewhere_is_a_sign_of_the_operator_and_no_write(
    engine: Engine, repository: Repository, tmp_path: Path
) -> None:
    file, at = tmp_path / "projects/s1.jsonl", MONDAY_MORNING - timedelta(minutes=3)
    file.parent.mkdir()
    turn = {"type": "user", "cwd": "/elsewhere", "sessionId": "s1", "message": {"role": "user", "content": "hello"}}
    file.write_text(json.dumps(turn) + "\n")
    os.utime(file, (at.timestamp(), at.timestamp()))
    before = last_heard(engine)
    engine.settings.set("memory.transcripts", [str(file.parent)])
    assert last_heard(engine) == at != before
    assert last_sign(engine, [str(repository.path)]) == before
