"""The service of autonomy: its state across a restart, do-not-disturb, and the card cycle (SPEC 2.9, 7.1, 7.3)."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.autonomy.autonomy import CARD_JOB, Autonomy
from engine.clock import FakeClock
from engine.config.settings import FixedSettings, Settings
from engine.learning.decisions.decisions import Decisions
from engine.model import AutonomyState, HoldKind
from engine.safety.kill_switch import BY_CONSOLE, PAUSE_DURATION, KillSwitch
from engine.storage.database import Database

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
    assert autonomy.find_next_cycle() == clock.now() + timedelta(minutes=10)
    clock.advance(timedelta(minutes=30))
    assert not autonomy.schedule.run(CARD_JOB)
    assert autonomy.find_next_cycle() is None
    asked_for = []
    autonomy.schedule.run_if_due = asked_for.append
    autonomy.note_activity()
    autonomy.note_activity()
    assert asked_for == [CARD_JOB], "at the return, not ten minutes later"
    kill_switch.stop("F12", BY_CONSOLE)
    assert not autonomy.schedule.run(CARD_JOB)
    assert len(cycles) == 1
