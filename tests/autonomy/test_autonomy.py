"""The service of autonomy: its state across a restart, do-not-disturb, and when cards are made (SPEC 7.1, 7.3, 2.9)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from engine.autonomy.autonomy import CARDS, Autonomy
from engine.clock import FakeClock
from engine.config import Settings
from engine.events import EventBus
from engine.model import AutonomyState, Hold, RailVerdict, Verdict
from engine.safety.kill_switch import BY_COST_CAP
from engine.storage.database import Database


class StandInKillSwitch:
    """A kill switch with the holds that a test sets."""

    def __init__(self) -> None:
        self.present: list[Hold] = []
        self.enabled = True
        self.resumed_by_operator = False

    def was_resumed_by_operator(self) -> bool:
        return self.resumed_by_operator

    def holds(self) -> list[Hold]:
        return self.present

    def current_verdict(self, *, by_operator: bool = False) -> RailVerdict:
        words = [hold.word for hold in self.present if not (by_operator and hold.word == "pause")]
        stopped = words or not self.enabled
        return RailVerdict("kill", Verdict.BLOCK if stopped else Verdict.ALLOW, "", words[0] if words else "config")

    def stop_reason(self) -> str:
        verdict = self.current_verdict(by_operator=True)
        return "" if verdict.verdict is Verdict.ALLOW else verdict.rule


@pytest.fixture
def kill_switch() -> StandInKillSwitch:
    return StandInKillSwitch()


@pytest.fixture
def make_autonomy(database: Database, clock: FakeClock, kill_switch: StandInKillSwitch) -> Callable[..., Autonomy]:
    def build(check: Callable[[], object] = lambda: None, **settings: Any) -> Autonomy:
        current = SimpleNamespace(current=Settings(autonomous_mode_enabled=True, **settings))
        return Autonomy(database, current, clock, kill_switch=kill_switch, runs=SimpleNamespace(run_check=check))

    return build


def test_a_pause_is_the_state_with_its_cause_and_end_also_after_a_restart(
    make_autonomy: Callable[..., Autonomy], kill_switch: StandInKillSwitch, clock: FakeClock
) -> None:
    autonomy = make_autonomy()
    autonomy.state()
    until = clock.now() + timedelta(hours=2)
    kill_switch.present = [Hold("pause", "3 dismissals in a row", clock.now(), until)]
    paused = autonomy.state()
    assert (paused.state, paused.cause, paused.next_change) == (AutonomyState.PAUSED, "3 dismissals in a row", until)
    assert make_autonomy().state() == paused


def test_the_cause_says_why_a_pause_began_and_how_it_ended(
    make_autonomy: Callable[..., Autonomy], kill_switch: StandInKillSwitch, clock: FakeClock
) -> None:
    autonomy = make_autonomy()
    autonomy.state()
    until = clock.now() + timedelta(hours=2)
    kill_switch.present = [Hold("pause", "3 dismissals in a row", clock.now(), until)]
    autonomy.state()
    kill_switch.present, kill_switch.resumed_by_operator = [], True
    assert autonomy.state().cause == "resumed by you"
    kill_switch.present = [Hold("pause", "the day's cap", clock.now(), until, BY_COST_CAP)]
    assert autonomy.state().cause == "cost cap reached"
    clock.advance(timedelta(hours=2))
    kill_switch.present, kill_switch.resumed_by_operator = [], False
    autonomy.note_activity("key")
    assert autonomy.state().cause == "2 h passed"
    kill_switch.enabled = False
    assert autonomy.state().state is AutonomyState.DISABLED


def test_do_not_disturb_is_quiet_until_its_time(make_autonomy: Callable[..., Autonomy], clock: FakeClock) -> None:
    autonomy = make_autonomy()
    autonomy.set_dnd(timedelta(hours=2))
    assert make_autonomy().quiet() == "do not disturb"
    clock.advance(timedelta(hours=2))
    assert not autonomy.quiet()
    autonomy.set_dnd(timedelta(hours=2))
    autonomy.set_dnd(None)
    assert not autonomy.quiet()


def test_a_listener_of_do_not_disturb_finds_it(
    make_autonomy: Callable[..., Autonomy], clock: FakeClock, bus: EventBus
) -> None:
    autonomy = make_autonomy()
    found: list[object] = []
    bus.subscribe(lambda: found.append(autonomy.dnd_until()))
    assert found == [autonomy.set_dnd(timedelta(hours=2))] == [clock.now() + timedelta(hours=2)]


def test_cards_are_made_only_while_the_operator_is_active(
    make_autonomy: Callable[..., Autonomy], clock: FakeClock, kill_switch: StandInKillSwitch
) -> None:
    cycles: list[int] = []
    autonomy = make_autonomy(lambda: cycles.append(1))
    assert autonomy.schedule.run(CARDS)
    assert autonomy.next_cycle() == clock.now() + timedelta(minutes=10)
    clock.advance(timedelta(minutes=30))
    assert not autonomy.schedule.run(CARDS)
    assert autonomy.next_cycle() is None
    autonomy.note_activity("key")
    kill_switch.present = [Hold("stop", "F12", clock.now())]
    assert not autonomy.schedule.run(CARDS)
    assert len(cycles) == 1


def test_the_next_change_is_known_only_where_time_alone_brings_it(
    make_autonomy: Callable[..., Autonomy], clock: FakeClock, kill_switch: StandInKillSwitch
) -> None:
    autonomy, now = make_autonomy(), clock.now()
    pause = Hold("pause", "test", now, now + timedelta(hours=2))
    assert autonomy.state().next_change == now + timedelta(minutes=30), "silence grows"
    kill_switch.present = [pause]
    assert autonomy.state().next_change == pause.until
    kill_switch.present = [Hold("month", "test", now), pause]
    assert autonomy.state().next_change is None, "a month stop outlasts the pause"
    kill_switch.present = [Hold("stop", "F12", now), pause]
    assert autonomy.state().next_change is None
    kill_switch.present, kill_switch.enabled = [], False
    assert (autonomy.state().state, autonomy.state().next_change) == (AutonomyState.DISABLED, None)
    kill_switch.enabled = True
    clock.advance(timedelta(minutes=30))
    assert (autonomy.state().state, autonomy.state().next_change) == (AutonomyState.PRIMING, None)
