"""The autonomy port on a real database: state across a restart, presence, do-not-disturb, the card cycle."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.autonomy.autonomy import CARDS, Autonomy
from engine.autonomy.schedule import Job, Schedule, next_run
from engine.autonomy.state import (
    TRANSITIONS,
    AutonomyState,
    AutonomyTrigger,
    Facts,
    Presence,
    next_state,
    next_trigger,
    transitions_from,
)
from engine.clock import FakeClock, SystemClock
from engine.config import Settings
from engine.events import EventBus
from engine.model import Hold, RailVerdict, Verdict
from engine.storage.database import Database

# SPEC 7.1: the table is what the state machine does, and every path through it is legal.


HALF_HOUR = timedelta(minutes=30)
SPECIFIED = {
    ("DISABLED", "ENABLED"): "WATCHING",  # crossPollEnabled and no stop
    ("WATCHING", "SILENT"): "PRIMING",  # silence >= 30 min and autonomousModeEnabled
    ("PRIMING", "PREDICTION_READY"): "AUTONOMOUS",
    ("PRIMING", "PREDICTION_DROPPED"): "PRIMING",  # discarded or blocked: until the next cycle
    ("PRIMING", "OPERATOR_SPOKE"): "WATCHING",
    ("AUTONOMOUS", "OPERATOR_SPOKE"): "WATCHING",
    ("PRIMING", "AUTONOMY_OFF"): "WATCHING",
    ("AUTONOMOUS", "AUTONOMY_OFF"): "WATCHING",
    ("WATCHING", "REJECTED"): "PAUSED",  # three in a row or a cap: from any enabled state
    ("PRIMING", "REJECTED"): "PAUSED",
    ("AUTONOMOUS", "REJECTED"): "PAUSED",
    ("PAUSED", "REJECTED"): "PAUSED",
    ("WATCHING", "COST_CAP"): "PAUSED",
    ("PRIMING", "COST_CAP"): "PAUSED",
    ("AUTONOMOUS", "COST_CAP"): "PAUSED",
    ("PAUSED", "COST_CAP"): "PAUSED",
    ("PAUSED", "RESUMED"): "WATCHING",
    ("PAUSED", "PAUSE_OVER"): "WATCHING",
    ("WATCHING", "KILLED"): "DISABLED",
    ("PRIMING", "KILLED"): "DISABLED",
    ("AUTONOMOUS", "KILLED"): "DISABLED",
    ("PAUSED", "KILLED"): "DISABLED",
}
"""SPEC 7.1, row by row, and what follows from it for a switch that is turned off. Nothing else is a move."""


@pytest.mark.parametrize("given_input", [item.name for item in AutonomyTrigger])
@pytest.mark.parametrize("before", [item.name for item in AutonomyState])
def test_every_row_is_a_move_and_what_has_no_row_is_none(before: str, given_input: str) -> None:
    after = SPECIFIED.get((before, given_input))
    assert ((AutonomyState[before], AutonomyTrigger[given_input]) in TRANSITIONS) == (after is not None)
    assert next_state(AutonomyState[before], AutonomyTrigger[given_input]).name == (after or before)


FACTS = st.builds(
    Facts,
    enabled=st.booleans(),
    holds=st.frozensets(st.sampled_from(["stop", "pause", "month"])),
    autonomous=st.booleans(),
    silence=st.timedeltas(timedelta(0), timedelta(hours=2)),
    threshold=st.just(HALF_HOUR),
    resumed=st.booleans(),
    paused_for_cost=st.booleans(),
)


@given(st.sampled_from(AutonomyState), st.lists(st.one_of(FACTS, st.sampled_from(AutonomyTrigger)), max_size=30))
def test_every_walk_is_legal_and_comes_to_rest(state: AutonomyState, steps: list[Facts | AutonomyTrigger]) -> None:
    for step in steps:
        if isinstance(step, AutonomyTrigger):
            state = next_state(state, step)
            continue
        for after, cause in transitions_from(state, step):
            assert TRANSITIONS[state, cause] is after
            state = after
        assert next_trigger(state, step) is None
        if not step.enabled or "stop" in step.holds:
            assert state is AutonomyState.DISABLED
        elif step.holds:
            assert state is AutonomyState.PAUSED
        else:
            assert (state in (AutonomyState.PRIMING, AutonomyState.AUTONOMOUS)) == (
                step.autonomous and step.silence >= HALF_HOUR
            )


class SetHolds:
    """Holds as a test says they are."""

    def __init__(self) -> None:
        self.now: list[Hold] = []
        self.enabled = True
        self.by_hand = False

    def was_lifted_by_operator(self) -> bool:
        return self.by_hand

    def holds(self) -> list[Hold]:
        return self.now

    def current_verdict(self, *, by_operator: bool = False) -> RailVerdict:
        words = [hold.word for hold in self.now if not (by_operator and hold.word == "pause")]
        stopped = words or not self.enabled
        return RailVerdict("kill", Verdict.BLOCK if stopped else Verdict.ALLOW, "", words[0] if words else "config")

    def stop_reason(self) -> str:
        verdict = self.current_verdict(by_operator=True)
        return "" if verdict.verdict is Verdict.ALLOW else verdict.rule


class MutableSettings:
    def __init__(self, current: Settings) -> None:
        self.current = current


@pytest.fixture
def holds() -> SetHolds:
    return SetHolds()


@pytest.fixture
def make(database: Database, clock: FakeClock, holds: SetHolds) -> Callable[..., Autonomy]:
    def build(card_cycle: Callable[[], object] = lambda: None, **settings: Any) -> Autonomy:
        chosen = MutableSettings(Settings(autonomous_mode_enabled=True, **settings))
        return Autonomy(database, chosen, clock, kill_switch=holds, runs=SimpleNamespace(predict=card_cycle))

    return build


def test_holds_pause_and_disable_and_the_state_survives_a_restart(
    make: Callable[..., Autonomy], holds: SetHolds, clock: FakeClock
) -> None:
    autonomy = make()
    autonomy.state()
    until = clock.now() + timedelta(hours=2)
    holds.now = [Hold("pause", "3 rejections in a row", clock.now(), until)]
    paused = autonomy.state()
    assert (paused.state, paused.cause, paused.next_change) == (AutonomyState.PAUSED, "3 rejections in a row", until)
    again = make()
    assert again.state() == paused
    holds.now, holds.by_hand = [], True
    assert again.state().cause == "resumed by you"
    holds.now = [Hold("pause", "cost: the day's cap", clock.now(), until)]
    assert again.state().cause == "cost cap reached"
    clock.advance(timedelta(hours=2))
    holds.now, holds.by_hand = [], False
    again.note_activity("key")
    assert again.state().cause == "2 h passed"
    holds.enabled = False
    assert again.state().state is AutonomyState.DISABLED


def test_the_last_sign_of_the_operator_and_the_last_absence(database: Database, clock: FakeClock) -> None:
    presence, second = Presence(database, clock), timedelta(seconds=1)
    presence.note_now("key")
    began = clock.now()
    clock.advance(30 * timedelta(minutes=1) - second)
    presence.note(began - second, "files of a workspace")
    assert (presence.last(), presence.away_since()) == ((began, "key"), None)
    clock.advance(second)
    assert presence.away_since() == began
    presence.note_now("verb")
    returned = clock.now()
    clock.advance(29 * second)
    presence.note_now("key")
    assert (presence.last()[0], presence.away_since()) == (clock.now(), began)
    assert Presence(database, clock).last() == (returned, "verb"), "a crash loses less than half a minute"
    clock.advance(second)
    presence.note_now("key")
    again = Presence(database, clock)
    assert (again.last(), again.away_since()) == ((clock.now(), "key"), began)


def test_do_not_disturb_is_quiet_until_its_time(make: Callable[..., Autonomy], clock: FakeClock) -> None:
    autonomy = make()
    assert not autonomy.quiet()
    autonomy.dnd(timedelta(hours=2))
    assert make().quiet()
    clock.advance(timedelta(hours=2))
    assert not autonomy.quiet()
    autonomy.dnd(timedelta(hours=2))
    autonomy.dnd(None)
    assert not autonomy.quiet()
    assert autonomy.dnd_until() is None


def test_cards_are_made_only_while_the_operator_is_there(
    make: Callable[..., Autonomy], clock: FakeClock, holds: SetHolds
) -> None:
    cycles: list[int] = []
    autonomy = make(lambda: cycles.append(1))
    assert autonomy.schedule.run(CARDS)
    assert autonomy.next_cycle() == clock.now() + timedelta(minutes=10)
    clock.advance(timedelta(minutes=30))
    assert not autonomy.schedule.run(CARDS)
    assert autonomy.next_cycle() is None
    autonomy.note_activity("key")
    holds.now = [Hold("stop", "F12", clock.now())]
    assert not autonomy.schedule.run(CARDS)
    assert len(cycles) == 1


@pytest.mark.parametrize(
    ("last", "expected"), [(None, 0), (-3, 7), (-10, 0), (-1000, 0), (5, 10)]
)  # fmt: skip
def test_a_job_is_due_an_interval_after_it_ran_and_never_in_the_past(last: int | None, expected: int) -> None:
    now = datetime(2026, 1, 5, tzinfo=UTC)
    ran = None if last is None else now + timedelta(minutes=last)
    assert next_run(now, ran, timedelta(minutes=10)) == now + timedelta(minutes=expected)


def test_a_missed_job_runs_once_when_the_engine_starts(tmp_path: Any) -> None:
    clock = SystemClock(UTC)
    database = Database(tmp_path / "d.db", clock=clock, bus=EventBus())
    ran: list[int] = []
    done = threading.Event()

    def action() -> None:
        ran.append(1)
        done.set()

    schedule = Schedule(database, clock, [Job("cards", lambda: timedelta(minutes=10), action)])
    try:
        schedule.start()
        assert done.wait(10)
        done.clear()
        schedule.soon("cards")
        assert done.wait(10)
    finally:
        schedule.close()
    assert len(ran) == 2
    database.close()
    database = Database(tmp_path / "d.db", clock=clock, bus=EventBus())
    again = Schedule(database, clock, [Job("cards", lambda: timedelta(minutes=10), action)])
    assert again.due("cards") > clock.now() + timedelta(minutes=9)
    database.close()


def test_a_job_that_is_not_kept_writes_nothing(database: Database, clock: FakeClock) -> None:
    jobs = [
        Job(name, lambda: timedelta(seconds=30), lambda: None, is_stored=name == "kept") for name in ("kept", "often")
    ]
    schedule = Schedule(database, clock, jobs)
    for name in ("kept", "often"):
        assert schedule.run(name)
        assert schedule.due(name) == clock.now() + timedelta(seconds=30)
    database.write(lambda tx: None)  # whoever writes next has it along
    again = Schedule(database, clock, jobs)
    assert again.last_run("kept") == clock.now()
    assert again.last_run("often") is None


@pytest.mark.long
def test_apscheduler_is_imported_only_at_start() -> None:
    code = "import sys, engine.autonomy.autonomy; sys.exit('apscheduler' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_job_that_is_wanted_while_it_runs_runs_once_more(tmp_path: Any) -> None:
    clock = SystemClock(UTC)
    database = Database(tmp_path / "d.db", clock=clock, bus=EventBus())
    runs: list[int] = []
    again = threading.Event()

    def action() -> None:
        runs.append(1)
        if len(runs) == 1:
            schedule.soon("cards")
        else:
            again.set()

    schedule = Schedule(database, clock, [Job("cards", lambda: timedelta(minutes=10), action)])
    try:
        schedule.start()
        assert again.wait(10)
    finally:
        schedule.close()
    assert len(runs) == 2
    database.close()


def test_the_next_change_is_told_only_where_time_alone_brings_it(
    make: Callable[..., Autonomy], clock: FakeClock, holds: SetHolds
) -> None:
    autonomy, now = make(), clock.now()
    pause = Hold("pause", "test", now, now + timedelta(hours=2))
    assert autonomy.state().next_change == now + timedelta(minutes=30), "silence grows"
    holds.now = [pause]
    assert autonomy.state().next_change == pause.until
    holds.now = [Hold("month", "test", now), pause]
    assert autonomy.state().next_change is None, "a month stop outlasts the pause"
    holds.now = [Hold("stop", "F12", now), pause]
    assert autonomy.state().next_change is None
    holds.now, holds.enabled = [], False
    assert (autonomy.state().state, autonomy.state().next_change) == (AutonomyState.DISABLED, None)
    holds.enabled = True
    clock.advance(timedelta(minutes=30))
    assert (autonomy.state().state, autonomy.state().next_change) == (AutonomyState.PRIMING, None)
