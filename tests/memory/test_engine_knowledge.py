"""Layers D to G in a real engine: a session is captured, summed up, put into the graph, and found again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.engine import Engine, open_engine
from engine.home import Home
from engine.stand_ins import StandIns
from engine.values import Layer, RecallQuery
from tests.conftest import MONDAY_MORNING, Repository


@pytest.fixture
def engine(tmp_path: Path, repository: Repository) -> Iterator[Engine]:
    repository.commit("first", {"README.md": "Decision: we keep the old parser for good\n"})
    engine = open_engine(
        Home.locate(tmp_path / "home"),
        workspaces=[str(repository.path)],
        clock=FakeClock(MONDAY_MORNING),
        start_schedule=False,
        stand_ins=StandIns(throw_away=True, deaf=True),
    )
    yield engine
    engine.close()


def ran(engine: Engine, repository: Repository) -> str:
    """A session of a flow that ran to its end; its id."""
    card = engine.cards.propose("summarise the day", workspace=str(repository.path))
    view = engine.cards.approve(card.id)
    return engine.sessions.wait(engine.sessions.of_prediction(card.id).id, 60).id if view else ""  # type: ignore[union-attr]


def test_what_a_session_did_is_known_afterwards(engine: Engine, repository: Repository) -> None:
    session = ran(engine, repository)
    engine.knowledge.catch_up()
    node = engine.memory.graph.get(session)
    assert node is not None
    assert node.success is True
    summary = engine.memory.entries(Layer.CONTEXT)[0]
    assert summary.session == session
    assert len(summary.text.split()) <= 120
    states = {state.layer: state for state in engine.memory.layers()}
    assert states[Layer.GRAPH].count == 1
    assert states[Layer.PARA].state == "ready"
    engine.knowledge.catch_up()
    assert len(engine.memory.entries(Layer.CONTEXT)) == 1


def test_facts_wait_in_the_operators_queue_and_join_recall(engine: Engine, repository: Repository) -> None:
    ran(engine, repository)
    workspace = str(repository.path)

    def say(tx: object) -> None:
        from engine.memory.capture import CaptureRow

        tx.session.add(  # type: ignore[attr-defined]
            CaptureRow(
                id="cap_1",
                kind="fact",
                text="The service listens on port 8000",
                tags=[],
                digest="d",
                session_id="session_1",
                line=3,
                agent="backend_builder",
                workspace=workspace,
                at=MONDAY_MORNING,
                last_session="session_1",
            )
        )

    engine.database.write(say)
    report = engine.knowledge.nightly.run(date(2026, 1, 5))
    assert report.drafted == 1
    waiting = [one for one in engine.queue() if one.kind == "fact"]
    assert "port 8000" in waiting[0].title
    fact = engine.memory.drafts.promote(waiting[0].id)
    assert [one for one in engine.queue() if one.kind == "fact"] == []
    found = engine.memory.recall(RecallQuery("which port does the service listen on", workspace=workspace))
    assert fact.id in [one.id for one in found.items if one.layer is Layer.PARA]
    diary = (engine.home.agents / "backend_builder/memory.md").read_text()
    assert diary.count("## 2026-01-05") == 1
    assert "port 8000" in diary


def test_the_night_comes_round_by_itself(engine: Engine) -> None:
    assert engine.knowledge.nightly.wanted()
    engine.knowledge.night()
    assert not engine.knowledge.nightly.wanted()
    clock = engine.clock
    assert isinstance(clock, FakeClock)
    clock.advance(timedelta(hours=17, minutes=29))
    assert not engine.knowledge.nightly.wanted()  # 02:59
    clock.advance(timedelta(minutes=1))
    assert engine.knowledge.nightly.wanted()
