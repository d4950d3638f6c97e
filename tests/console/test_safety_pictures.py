"""The appearance of the safety screen (SPEC 9.1, 9.7)."""

import dataclasses
from datetime import timedelta
from types import SimpleNamespace

import pytest

from clawpy_console.app import ConsoleApp
from engine.model import AutonomyState
from tests.console.safety_steps import UNUSED, open_safety
from tests.console.snapshots import CompareSnapshot, in_four_sizes
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW, ago


@pytest.fixture
def paused_engine(engine: StandIn) -> StandIn:
    """The morning after: paused, with the newest decision stopped."""
    log, rails = engine.safety.log, engine.safety.rails()
    engine.safety.log = lambda limit=50, blocked_only=False: log(50, True)[:limit]
    last = {verdict.rail: verdict for verdict in engine.safety.log(1)[0].verdicts}
    engine.safety.kill_switch.hold("pause", "3 dismissals in a row", NOW + timedelta(minutes=63))
    paused = [dataclasses.replace(rail, last=last[rail.rail]) for rail in engine.safety.rails() or rails]
    engine.safety.rails = lambda: tuple(paused)
    engine.autonomy.update_state = lambda: SimpleNamespace(
        state=AutonomyState.PAUSED,
        cause="3 dismissals in a row",
        since=ago(minutes=57),
        next_change=ago(minutes=-63),
    )
    return engine


@in_four_sizes
def test_a_pause_looks_as_in_its_picture(
    console: ConsoleApp, paused_engine: StandIn, compare_snapshot: CompareSnapshot, size: str
):
    compare_snapshot(console, size, go=open_safety)


@in_four_sizes
def test_the_rails_before_anything_ran_look_as_in_their_picture(
    console: ConsoleApp, engine: StandIn, compare_snapshot: CompareSnapshot, size: str
):
    rails = tuple(dataclasses.replace(rail, last=None, last_at=None, stopped=0) for rail in engine.safety.rails())
    vars(engine.safety).update(log=lambda **_: [], chain=lambda **_: [], rails=lambda: rails)
    engine.safety.costs.history = lambda: UNUSED
    compare_snapshot(console, size, go=open_safety)


@pytest.mark.long
@pytest.mark.parametrize("size", ["80x24", "120x40"])
def test_the_switches_look_as_in_their_picture(console: ConsoleApp, compare_snapshot: CompareSnapshot, size: str):
    compare_snapshot(console, size, "tab", "tab", go=open_safety)


@pytest.mark.long
def test_blocked_work_on_a_narrow_terminal_looks_as_in_its_picture(
    console: ConsoleApp, compare_snapshot: CompareSnapshot
):
    compare_snapshot(console, "80x24", "tab", go=open_safety)


@pytest.mark.long
def test_a_pause_in_a_light_theme_looks_as_in_its_picture(
    console: ConsoleApp, paused_engine: StandIn, compare_snapshot: CompareSnapshot
):
    paused_engine.settings.current.console.theme = "clawpy-light"
    compare_snapshot(console, "120x40", "down", go=open_safety)


@pytest.mark.long
def test_a_pause_without_colour_looks_as_in_its_picture(
    paused_engine: StandIn, plain_console: ConsoleApp, compare_snapshot: CompareSnapshot
):
    compare_snapshot(plain_console, "120x40", go=open_safety)
