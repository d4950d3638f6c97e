"""What is still needed before anything runs by itself, by the gate's own rules (SPEC 2.5, 2.6, 7.4)."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.autonomy.autonomous_runs import ApprovalRecord, AutonomyRequirements, autonomy_requirements
from engine.autonomy.autonomy import ACT, CARDS, STATE
from engine.clock import FakeClock
from engine.engine import Engine
from engine.model import Outcome, Refusal, SessionState, Status
from engine.safety.kill_switch import PAUSE
from engine.statistics import wilson_lower_bound
from tests.autonomy.world import FLOW, World
from tests.conftest import Repository

# A repository that no cycle has looked at is looked at without waiting for the next cycle (SPEC 2.9).


@pytest.fixture
def world(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, clock, monkeypatch)


@pytest.fixture
def second(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "second")
    repository.commit("Begin", {"src/rates.py": "RATE = 1\n"})
    return repository


@pytest.mark.long
def test_one_that_is_taken_on_later_is_checked_at_once_and_not_again(world: World, second: Repository) -> None:
    with world.opened() as engine:
        engine.autonomy.schedule.run(CARDS)
        engine.watch_workspace(str(second.path / "src"))
        engine.watch_workspace(str(second.path))
        assert engine.workspaces == [world.workspace, str(second.path)]
        engine.autonomy.schedule.run(STATE)
        assert set(engine.predictions.last_checked()) == {world.workspace, str(second.path)}
        added, cycles = (engine.ledger.latest(9, kinds=(item,)) for item in ("WorkspaceAdded", "CycleFinished"))
        assert ([item.subject for item in added], len(cycles)) == ([str(second.path)], 2)
        engine.autonomy.schedule.run(STATE)
        assert len(engine.ledger.latest(9, kinds=("CycleFinished",))) == 2


def test_one_that_the_settings_switch_off_is_refused(world: World, second: Repository) -> None:
    with world.opened() as engine:
        engine.settings.set(f"workspaces.{json.dumps(str(second.path))}.autonomy", "off")
        with pytest.raises(Refusal, match="switched off"):
            engine.watch_workspace(str(second.path))
        assert engine.workspaces == [world.workspace]


# SPEC 7.4: a workspace that is switched off keeps no card but the operator's own.


@pytest.mark.parametrize("job", [STATE, CARDS])
def test_its_cards_are_withdrawn_at_the_next_look(world: World, job: str) -> None:
    with world.opened() as engine:
        engine.predictions.run_cycle()
        predicted = [card.id for card in engine.cards.pending()]
        assert predicted
        asleep = engine.cards.snooze(predicted[0], span=timedelta(hours=2)).id
        engine.cards.mark_shown(predicted)
        own = engine.cards.propose(FLOW, workspace=world.workspace).id
        decided = len(engine.decisions.load_newest())
        key = f"workspaces.{json.dumps(world.workspace)}.autonomy"
        engine.settings.set(key, "off")
        engine.autonomy.schedule.run(job)
        assert [card.id for card in engine.cards.pending(include_snoozed=True)] == [own]
        for card in map(engine.cards.get, (asleep, *predicted)):
            assert (card.status, card.outcome) == (Status.EXPIRED, Outcome.WITHDRAWN)
            assert "off" in card.note
        assert len(engine.decisions.load_newest()) == decided, "that says nothing about the cards"
        engine.settings.set(key, "cards")
        engine.autonomy.schedule.run(job)
        engine.predictions.run_cycle()
        assert {card.kind for card in engine.cards.pending()} >= {engine.cards.get(predicted[-1]).kind}


# What was let through by itself and began only later, after a wait or a restart, begins only if it still may
# (SPEC 7.1, 7.3): quiet hours, holds, switched off.


def quiet(world: World, engine: Engine) -> None:
    engine.autonomy.dnd(timedelta(hours=1))


def paused(world: World, engine: Engine) -> None:
    engine.database.write(lambda tx: engine.safety.kill_switch.place(tx, PAUSE, "test"))


def switched_off(world: World, engine: Engine) -> None:
    engine.settings.set("autonomousModeEnabled", False)


def cards_only(world: World, engine: Engine) -> None:
    world.configure("cards")


def nothing(world: World, engine: Engine) -> None:
    pass


HINDRANCES = pytest.mark.parametrize(
    ("hinder", "word"),
    [(quiet, "quiet hours"), (paused, "pause"), (switched_off, "autonomousModeEnabled"), (cards_only, "`act`"),
     (nothing, "")],
)  # fmt: skip


@pytest.mark.long
@HINDRANCES
def test_what_waited_for_its_turn(world: World, hinder: Callable[[World, Engine], None], word: str) -> None:
    with world.opened() as engine:
        world.earn()
        world.away()
        engine.sessions.hold_queue()
        engine.autonomy.schedule.run(ACT)
        [queued] = [session for session in engine.sessions.list() if session.state is SessionState.QUEUED]
        hinder(world, engine)
    with world.opened() as engine:
        ended = engine.sessions.wait(queued.id, 20)
        if not word:
            assert ended.state is SessionState.SUCCEEDED
            return
        assert ended.state is SessionState.CANCELLED
        assert word in ended.error


def told(*records: ApprovalRecord, autonomous: bool = True, phase: int = 1, act: str = "act") -> AutonomyRequirements:
    return autonomy_requirements(autonomous=autonomous, autonomies=[act], quiet=False, phase=phase,
                   records=records, threshold=0.8)  # fmt: skip


def test_nothing_is_missing_where_a_kind_has_earned_it() -> None:
    found = told(ApprovalRecord("run_tests", "koji-core", 11, 11), ApprovalRecord("status", "koji-core", 1, 4))
    assert (found.missing, found.earned) == ((), ("“Tests of what changed” on koji-core",))
    assert found.words.endswith("on cards with a confidence of 0.80 or more: “Tests of what changed” on koji-core")


def test_what_is_missing_is_told_in_one_line() -> None:
    found = told(ApprovalRecord("status", "docs", 1, 4), ApprovalRecord("run_tests", "koji-core", 8, 8), phase=0)
    assert found.words == (
        "does not act by itself yet: the Twin is still learning, no kind of card has earned it yet "
        "(best: “Tests of what changed” on koji-core 8 of 8, needs 11 of 11)"
    )
    off = told(autonomous=False, act="cards")
    assert off.missing == (
        "autonomous mode is off (clawpy config set autonomousModeEnabled true)",
        "no workspace is set to `act`", "no kind of card has earned it yet",
    )  # fmt: skip


@given(st.integers(1, 60), st.data())
def test_so_many_further_approvals_reach_the_bound_and_one_less_does_not(decided: int, data: st.DataObject) -> None:
    one = ApprovalRecord("kind", "channel", data.draw(st.integers(0, decided)), decided)
    further = int(one.progress.rpartition(" of ")[2]) - decided
    assert wilson_lower_bound(one.approved + further, decided + further) >= 0.8
    assert further == 0 or wilson_lower_bound(one.approved + further - 1, decided + further - 1) < 0.8
