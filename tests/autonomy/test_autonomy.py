"""The service of autonomy: its state across a restart, presence, do-not-disturb, and its schedule (SPEC 2.2, 2.9, 7.1
to 7.3)."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.autonomy import (
    TRANSITIONS,
    AutonomyFacts,
    AutonomyTrigger,
    OperatorPresence,
    find_next_trigger,
    find_transitions,
)
from engine.autonomy.autonomous_runs import (
    ApprovalRecord,
    AutonomyRequirements,
    find_reason_not_to_start,
    find_requirements,
)
from engine.autonomy.autonomy import CARD_JOB, Autonomy
from engine.autonomy.schedule import Schedule, ScheduledJob
from engine.clock import FakeClock, SystemClock
from engine.config.settings import FixedSettings, Settings, WorkspaceAutonomy
from engine.events import EventBus
from engine.learning.decisions.decisions import Decisions
from engine.model import AutonomyState, HoldKind
from engine.safety.kill_switch import BY_CONSOLE, PAUSE_DURATION, KillSwitch
from engine.storage.database import Database
from tests.support import read_table
from tests.support.programs import find_imported

SETTINGS = FixedSettings(Settings(autonomous_mode_enabled=True))


@pytest.fixture
def kill_switch(database: Database, clock: FakeClock, tmp_path: Path) -> KillSwitch:
    """A kill switch that no thread watches."""
    return KillSwitch(
        database, SETTINGS, clock, data=tmp_path, decisions=Decisions(database, clock),
        stop_sessions=lambda reason: None, on_change=lambda: None,
    )  # fmt: skip


@pytest.fixture
def make_autonomy(database: Database, clock: FakeClock, kill_switch: KillSwitch) -> Callable[..., Autonomy]:
    def build(check: Callable[[], object] = lambda: None) -> Autonomy:
        runs = SimpleNamespace(run_check=check)
        return Autonomy(database, SETTINGS, clock, kill_switch=kill_switch, runs=runs)

    return build


def test_a_pause_is_the_state_with_its_cause_and_end_also_after_a_restart(
    make_autonomy: Callable[..., Autonomy], kill_switch: KillSwitch, database: Database, clock: FakeClock
):
    autonomy = make_autonomy()
    autonomy.update_state()
    database.write(lambda tx: kill_switch.place(tx, HoldKind.PAUSE, "3 dismissals in a row"))
    paused, until = autonomy.update_state(), clock.now() + PAUSE_DURATION
    assert (paused.state, paused.cause, paused.next_change) == (AutonomyState.PAUSED, "3 dismissals in a row", until)
    assert make_autonomy().update_state() == paused


def test_do_not_disturb_is_quiet_until_its_time(make_autonomy: Callable[..., Autonomy], clock: FakeClock):
    autonomy = make_autonomy()
    autonomy.set_dnd(timedelta(hours=2))
    assert make_autonomy().find_quiet_reason() == "do not disturb"
    clock.advance(timedelta(hours=2))
    assert not autonomy.find_quiet_reason()
    autonomy.set_dnd(timedelta(hours=2))
    autonomy.set_dnd(None)
    assert not autonomy.find_quiet_reason()


def test_cards_are_made_only_while_the_operator_is_active(
    make_autonomy: Callable[..., Autonomy], clock: FakeClock, kill_switch: KillSwitch
):
    cycles = []
    autonomy = make_autonomy(lambda: cycles.append(1))
    assert autonomy.schedule.run(CARD_JOB)
    assert autonomy.next_cycle() == clock.now() + timedelta(minutes=10)
    clock.advance(timedelta(minutes=30))
    assert not autonomy.schedule.run(CARD_JOB)
    assert autonomy.next_cycle() is None
    asked_for = []
    autonomy.schedule.run_if_due = asked_for.append
    autonomy.note_activity()
    autonomy.note_activity()
    assert asked_for == [CARD_JOB], "at the return, not ten minutes later"
    kill_switch.stop("F12", BY_CONSOLE)
    assert not autonomy.schedule.run(CARD_JOB)
    assert len(cycles) == 1


HALF_HOUR, SECOND = timedelta(minutes=30), timedelta(seconds=1)
TABLE = read_table(__file__)
SPECIFIED = TABLE["transitions"]


def test_exactly_the_specified_transitions_exist():
    transitions = [[before.name, trigger.name, after.name] for (before, trigger), after in TRANSITIONS.items()]
    assert sorted(transitions) == sorted(SPECIFIED)


FACTS = st.builds(
    AutonomyFacts,
    enabled=st.booleans(),
    holds=st.frozensets(st.sampled_from(["stop", "pause", "month"])),
    autonomous=st.booleans(),
    silence=st.timedeltas(timedelta(0), timedelta(hours=2)),
    threshold=st.just(HALF_HOUR),
    resumed=st.booleans(),
    paused_for_cost=st.booleans(),
)


@given(st.sampled_from(AutonomyState), st.lists(st.one_of(FACTS, st.sampled_from(AutonomyTrigger)), max_size=30))
def test_every_sequence_of_facts_and_triggers_ends_in_a_state_that_fits_the_facts(
    state: AutonomyState, steps: list[AutonomyFacts | AutonomyTrigger]
):
    for step in steps:
        if isinstance(step, AutonomyTrigger):
            state = TRANSITIONS.get((state, step), state)
            continue
        for after, cause in find_transitions(state, step):
            assert TRANSITIONS[state, cause] is after
            state = after
        assert find_next_trigger(state, step) is None
        if not step.enabled or "stop" in step.holds:
            assert state is AutonomyState.DISABLED
        elif step.holds:
            assert state is AutonomyState.PAUSED
        else:
            assert (state in (AutonomyState.PRIMING, AutonomyState.AUTONOMOUS)) == (
                step.autonomous and step.silence >= HALF_HOUR
            )


def test_an_absence_is_remembered_after_the_return(database: Database, clock: FakeClock):
    presence = OperatorPresence(database, clock)
    presence.note_now()
    left = clock.now()
    clock.advance(HALF_HOUR - SECOND)
    assert presence.find_absence_start() is None
    clock.advance(SECOND)
    assert presence.find_absence_start() == left
    presence.note_now()
    assert (presence.read_last_activity(), presence.find_absence_start()) == (clock.now(), left)
    assert OperatorPresence(database, clock).find_absence_start() == left, "a restart forgets it"


@pytest.fixture
def system_database(tmp_path: Path) -> Iterator[Database]:
    """A database under the system's clock, by which the thread of a schedule waits."""
    database = Database(tmp_path / "d.db", clock=SystemClock(UTC), bus=EventBus())
    yield database
    database.close()


def make_schedule(database: Database, action: Callable[[], None]) -> Schedule:
    """A schedule with the job `cards`, every ten minutes."""
    return Schedule(database, SystemClock(UTC), [ScheduledJob("cards", lambda: timedelta(minutes=10), action)])


def test_a_job_runs_at_the_start_and_when_it_is_requested_and_not_again_after_a_restart(system_database: Database):
    runs = []
    has_run = threading.Event()

    def action():
        runs.append(1)
        has_run.set()

    schedule = make_schedule(system_database, action)
    try:
        schedule.start()
        assert has_run.wait(10)
        has_run.clear()
        schedule.run_soon("cards")
        assert has_run.wait(10)
    finally:
        schedule.close()
    assert len(runs) == 2
    system_database.write(lambda tx: None)  # the next write takes the time of the last run along
    restarted = make_schedule(system_database, action)
    assert restarted.next_run_of("cards") > SystemClock(UTC).now() + timedelta(minutes=9)


@pytest.mark.long
def test_apscheduler_is_imported_only_at_start():
    assert not find_imported("import engine.autonomy.autonomy", "apscheduler")


# What is missing until something runs by itself (SPEC 7.2)


def make_requirements(
    *records: ApprovalRecord, autonomous: bool = True, phase: int = 1, autonomy: str = "act", decisions: int = 10
) -> AutonomyRequirements:
    return find_requirements(
        autonomous=autonomous,
        autonomies={"/home/me/my shop": WorkspaceAutonomy(autonomy)},
        quiet="",
        decisions=decisions,
        phase=phase,
        records=records,
        threshold=0.8,
    )


def test_no_requirement_is_missing_where_a_kind_has_earned_it():
    earned = make_requirements(
        ApprovalRecord("run_tests", "koji-core", 11, 11, "shop"), ApprovalRecord("status", "koji-core", 1, 4)
    )
    assert (earned.missing, earned.earned) == ((), ("“Tests of what changed” on koji-core in shop",))
    assert earned.words.endswith("on cards with a confidence of 0.80 or more: " + earned.earned[0])


def test_missing_requirements_are_one_line():
    learning = make_requirements(
        ApprovalRecord("status", "docs", 1, 4), ApprovalRecord("run_tests", "koji-core", 8, 8), phase=0
    )
    assert learning.words == (
        "only `run` items of heartbeats may run by themselves yet: the Twin is still learning, "
        "no kind of card has earned it yet "
        "(best: “Tests of what changed” on koji-core, approved 8 of 8, needs 11 of 11)"
    )
    off = make_requirements(autonomous=False, autonomy="cards")
    assert off.missing == (
        "autonomous mode is off (clawpy config set autonomousModeEnabled true)",
        "no workspace is set to `act` (clawpy config set 'workspaces.\"/home/me/my shop\".autonomy' act)",
        "no kind of card has earned it yet",
    )  # fmt: skip
    assert off.words.startswith("does not act by itself yet: ")


def test_run_items_of_heartbeats_wait_for_the_first_decisions_too():
    first_days = make_requirements(phase=0, decisions=9)
    assert first_days.words.startswith("does not act by itself yet: first days: 9 of 10 decisions made, ")
    assert not first_days.orders_run
    assert make_requirements(phase=0).orders_run


@pytest.mark.parametrize("facts, reason", TABLE["stops"])
def test_what_stops_all_workspaces_is_said_before_what_stops_one(facts: dict[str, str | bool], reason: str):
    values = {"stopped": "", "autonomous": True, "autonomy": "act", "quiet": ""} | facts
    values["autonomy"] = WorkspaceAutonomy(values["autonomy"])
    assert find_reason_not_to_start(**values) == reason
