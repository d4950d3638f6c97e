"""The appearance of screens, dialogs and states, in sizes, in themes and without colours (SPEC 9.1, 9.7)."""

import dataclasses
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace

import pytest

from clawpy_console.app import ConsoleApp
from engine.model import AutonomyState, CalibrationCheck, Phase
from tests.console.snapshots import CompareSnapshot, in_four_sizes
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW, ago, make_found_agent, read_stack
from tests.support import read_table

KEYS = read_table(__file__)
"""The keys that lead to each picture."""


def change_nothing(engine: StandIn):
    """As the stand-in engine is."""


def use_theme(name: str) -> Callable[[StandIn], object]:
    return lambda engine: setattr(engine.settings.current.console, "theme", name)


def remove_cards_and_changes(engine: StandIn):
    engine.cards.all = {}
    engine.changes.all = []


def begin_anew(engine: StandIn):
    """Before the first session: no model serves a channel, and the Twin has not learned yet."""
    engine.cards.all = {card.id: card for card in read_stack(stated=False)}
    engine.sessions.all = []
    engine.changes.all = []
    engine.channel_setup.serves = ""
    engine.tasks.list = lambda **_: []


def remove_model(engine: StandIn):
    """No model serves a channel, but coding agents are installed."""
    engine.channel_setup.serves = ""
    engine.channel_setup.here = [make_found_agent("claude", "Claude Code"), make_found_agent("codex", "Codex", "npm i")]


def forget_learnings(engine: StandIn):
    """Nothing was learned yet."""
    engine.adaptation.all = {}
    engine.learnings.all = {}
    engine.learnings.list_scopes = list


def forget_decisions(engine: StandIn):
    """No card was made yet."""
    engine.insights.cards = []
    engine.insights.phase = Phase(0, 0, "0 of 30 decisions made; 30 more and the Twin joins in")
    engine.insights.check = CalibrationCheck(0, is_calibrated=False, reason="0 of 100 decisions were held out")
    engine.insights.training = dataclasses.replace(engine.insights.training, runs=(), model="", pairs=0, needed=50)


def pause(engine: StandIn):
    """It paused by itself an hour ago."""
    engine.safety.kill_switch.hold("pause", "3 dismissals in a row", NOW + timedelta(minutes=63))
    engine.autonomy.update_state = lambda: SimpleNamespace(
        state=AutonomyState.PAUSED,
        cause="3 dismissals in a row",
        since=ago(minutes=57),
        next_change=ago(minutes=-63),
    )


def build_index(engine: StandIn):
    engine.memory.building = 0.41


STATES: dict[str, tuple[Callable[[StandIn], object], str]] = {
    "asked": (StandIn.with_agent, "2"),
    "reply": (StandIn.with_agent, "2 f"),
    "xray": (StandIn.with_agent, "2 x tab"),
    "queue": (StandIn.with_agent, "escape"),
    "stop": (change_nothing, "f12 6"),
    "switches": (change_nothing, "6 tab tab"),
    "vectors": (change_nothing, "4 down down enter"),
    "tasks": (change_nothing, "4 down down down down down enter down"),
    "edit": (change_nothing, "4 enter e"),
    "forget": (change_nothing, "4 down down enter x"),
    "approve-candidate": (change_nothing, "5 a"),
    "no-cards": (remove_cards_and_changes, "escape"),
    "first-start": (begin_anew, ""),
    "prompt-without-model": (remove_model, "escape n e x p l a i n enter"),
    "connect": (remove_model, "escape H"),
    "nothing-learned": (forget_learnings, "5"),
    "nothing-decided": (forget_decisions, "7"),
    "pause": (pause, "6"),
    "building": (build_index, "4 down down enter"),
    "light": (use_theme("clawpy-light"), "escape"),
    "high-contrast": (use_theme("clawpy-high-contrast"), "escape"),
    "ansi": (use_theme("clawpy-ansi"), "escape"),
}
"""States of the engine, each with the keys that show it."""

WITHOUT_COLOUR = {
    "mission": "escape",
    "insights": "7 shift+tab",
    "facts": "4 down down down down down down enter down down",
}


@in_four_sizes
@pytest.mark.parametrize("screen", KEYS["screens"])
def test_screens_and_dialogs_look_as_in_their_pictures(
    console: ConsoleApp, compare_snapshot: CompareSnapshot, screen: str, size: str
):
    compare_snapshot(console, size, KEYS["screens"][screen])


@in_four_sizes
@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("part", KEYS["hierarchy"])
def test_the_hierarchy_looks_as_in_its_pictures(
    console: ConsoleApp, compare_snapshot: CompareSnapshot, part: str, size: str
):
    compare_snapshot(console, size, f"3 end up up up up {KEYS['hierarchy'][part]}")


@pytest.mark.long
@pytest.mark.parametrize("pane", KEYS["narrow"])
def test_panes_of_a_narrow_terminal_look_as_in_their_pictures(
    console: ConsoleApp, compare_snapshot: CompareSnapshot, pane: str
):
    compare_snapshot(console, "80x24", KEYS["narrow"][pane])


@pytest.mark.long
@pytest.mark.parametrize("state", STATES)
def test_states_look_as_in_their_pictures(
    console: ConsoleApp, engine: StandIn, compare_snapshot: CompareSnapshot, state: str
):
    prepare, keys = STATES[state]
    prepare(engine)
    compare_snapshot(console, "120x40", keys)


@pytest.mark.parametrize("screen", WITHOUT_COLOUR)
def test_screens_without_colour_look_as_in_their_pictures(
    plain_console: ConsoleApp, compare_snapshot: CompareSnapshot, screen: str
):
    compare_snapshot(plain_console, "120x40", WITHOUT_COLOUR[screen])
