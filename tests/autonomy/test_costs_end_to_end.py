"""SPEC 3.4 through the whole engine: what a crash left reserved is settled, and a month's stop waits for its word."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlmodel import select

from engine.api.operations import dispatch
from engine.clock import FakeClock
from engine.execution.runners.flow_runner import FlowRunner
from engine.model import MICRO, Refusal, SessionState, Status
from engine.safety.costs import RESERVED, CostEntry
from tests.autonomy.world import FLOW, World


@pytest.fixture
def world(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Where flows do not say that they are free, and so are thought to cost `costPerTrigger`."""
    check = FlowRunner.check
    monkeypatch.setattr(FlowRunner, "check", lambda self, work: replace(check(self, work), is_free=False))
    return World(tmp_path, clock, monkeypatch)


def entries(world: World) -> list[CostEntry]:
    with world.engine.database.read() as session:
        return list(session.exec(select(CostEntry)))


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("before_it_began", [True, False])
def test_what_a_crash_left_reserved_is_settled_at_the_next_start(world: World, before_it_began: bool) -> None:
    child = os.fork()
    if child == 0:  # the engine of a process that dies without a word
        try:
            with world.opened() as engine:
                card = engine.cards.propose(FLOW, workspace=world.workspace)
                if before_it_began:
                    engine.sessions._dispatch = lambda: None  # type: ignore[method-assign]
                else:
                    engine.sessions._finish = lambda *_: None  # type: ignore[method-assign]
                view = engine.cards.approve(card.id)
                assert view.session_id is not None
                while not before_it_began and engine.sessions.get(view.session_id).state is not SessionState.RUNNING:
                    pass
                assert engine.safety.costs.state().month == 50_000
                os._exit(7)
        except BaseException as error:
            print(error, file=sys.stderr)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    with world.opened() as engine:
        [card] = engine.cards.recent()
        ended = world.ended(card.id)
        assert ended.state is (SessionState.SUCCEEDED if before_it_began else SessionState.INTERRUPTED)
        assert [entry.state for entry in entries(world)] != [RESERVED]
        # Nobody counted to the end of what was interrupted: it may have spent what was set aside for it.
        assert engine.safety.costs.state().month == (ended.cost if before_it_began else 50_000)


@pytest.mark.long
def test_a_stop_of_the_month_outlives_restart_and_raised_cap_and_yields_to_its_word_alone(world: World) -> None:
    world.configure(crossPollCostCapPerMonth=0.04)
    with world.opened() as engine:
        card = engine.cards.propose(FLOW, workspace=world.workspace)
        with pytest.raises(Refusal) as refused:
            dispatch(engine, "approve", {"id": card.id})
        assert refused.value.code == "blocked"
        assert [hold.word for hold in engine.safety.holds()] == ["month"]
        assert engine.autonomy.state().state == "PAUSED"
    world.configure(crossPollCostCapPerMonth=200)
    with world.opened() as engine:
        assert engine.safety.costs.state().month_cap == 200 * MICRO
        with pytest.raises(Refusal, match="month"):
            dispatch(engine, "approve", {"id": card.id})
        for word in ("stop", "pause"):
            with pytest.raises(Refusal):
                dispatch(engine, "resume", {"word": word})
        assert engine.autonomy.state().state == "PAUSED"
        assert [hold["word"] for hold in dispatch(engine, "resume", {"word": "month"})["holds"]] == []
        dispatch(engine, "approve", {"id": card.id, "wait": True})
        assert engine.cards.get(card.id).status is Status.EXECUTED
