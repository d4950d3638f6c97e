"""The appearance of mission control, the work screen and dialogs, in themes and sizes of terminals (SPEC 9.1, 9.7).

The other screens have their pictures in the modules `test_…_pictures`.
"""

import pytest
from textual.pilot import Pilot

from clawpy_console.app import ConsoleApp
from engine.model import Phase
from tests.console.driving import read_lines, until_loaded
from tests.console.snapshots import CompareSnapshot, in_four_sizes, wait_for_workers
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import make_found_agent, read_stack

SCREENS = {
    "mission": ("escape",),
    "work": ("2",),
    "diff": ("2", "tab", "tab", "enter", "]", "space", "down", "down", "c", *"why?", "enter", "z"),
    "safety": ("6",),
    "details": ("escape", "enter"),
}


@in_four_sizes
@pytest.mark.parametrize("screen", SCREENS)
def test_screens_look_as_in_their_pictures(
    console: ConsoleApp, compare_snapshot: CompareSnapshot, screen: str, size: str
):
    compare_snapshot(console, size, *SCREENS[screen])


AGENT = {
    "asked": ("2",),
    "reply": ("2", "f"),
    "xray": ("2", "x", "tab"),
    "queue": ("escape",),
}


@in_four_sizes
@pytest.mark.parametrize("screen", AGENT)
def test_the_session_of_an_agent_looks_as_in_its_pictures(
    console: ConsoleApp, engine: StandIn, compare_snapshot: CompareSnapshot, screen: str, size: str
):
    engine.with_agent()
    compare_snapshot(console, size, *AGENT[screen])


def test_a_stop_looks_as_in_its_picture(console: ConsoleApp, compare_snapshot: CompareSnapshot):
    compare_snapshot(console, "120x40", "f12", "6")


def test_a_risky_card_that_is_armed_looks_as_in_its_picture(console: ConsoleApp, compare_snapshot: CompareSnapshot):
    compare_snapshot(console, "80x24", "escape", "left", "left", "right")


def test_cards_without_a_confidence_look_as_in_their_picture(
    console: ConsoleApp, engine: StandIn, compare_snapshot: CompareSnapshot
):
    engine.cards.all = {card.id: card for card in read_stack(stated=False)}
    engine.phase = Phase(0, 3, "the Twin starts after 30 of your decisions", 30)
    compare_snapshot(console, "80x24", "escape")


@in_four_sizes
def test_an_empty_stack_looks_as_in_its_picture(
    console: ConsoleApp, engine: StandIn, compare_snapshot: CompareSnapshot, size: str
):
    engine.cards.all = {}
    engine.changes.all = []
    compare_snapshot(console, size, "escape")


@pytest.mark.long
@pytest.mark.parametrize("size", ["120x40", "200x60"])
def test_mission_control_before_the_first_session_looks_as_in_its_picture(
    console: ConsoleApp, engine: StandIn, compare_snapshot: CompareSnapshot, size: str
):
    engine.cards.all = {card.id: card for card in read_stack(stated=False)}
    engine.sessions.all, engine.changes.all, engine.channel_setup.serves = [], [], ""
    engine.tasks.list = lambda **_: []
    compare_snapshot(console, size)


@pytest.mark.long
@pytest.mark.parametrize("theme", ["clawpy-light", "clawpy-high-contrast", "clawpy-ansi"])
def test_each_theme_looks_as_in_its_picture(
    console: ConsoleApp, engine: StandIn, compare_snapshot: CompareSnapshot, theme: str
):
    engine.settings.current.console.theme = theme
    compare_snapshot(console, "120x40", "escape")


def test_cards_without_colour_look_as_in_their_picture(plain_console: ConsoleApp, compare_snapshot: CompareSnapshot):
    compare_snapshot(plain_console, "80x24", "escape")


DIALOGS = {
    "prompt": ("n", *"bisect ", "tab"),
    "resume": ("f12", "R"),
    "discard": ("2", "D"),
    "quit": ("q",),
    "help": ("question_mark",),
    "help-filtered": ("question_mark", *"undo"),
    "details-edited": ("enter", "e"),
}


@in_four_sizes
@pytest.mark.parametrize("dialog", DIALOGS)
def test_dialogs_look_as_in_their_pictures(
    console: ConsoleApp, compare_snapshot: CompareSnapshot, dialog: str, size: str
):
    compare_snapshot(console, size, "escape", *DIALOGS[dialog])


@in_four_sizes
@pytest.mark.parametrize("dialog", ["prompt", "connect"])
def test_dialogs_without_a_model_look_as_in_their_pictures(
    console: ConsoleApp, engine: StandIn, compare_snapshot: CompareSnapshot, dialog: str, size: str
):
    engine.channel_setup.serves, engine.channel_setup.here = (
        "",
        [make_found_agent("claude", "Claude Code"), make_found_agent("codex", "Codex", "npm i")],
    )
    keys = ("n", *"explain", "enter") if dialog == "prompt" else ("H",)
    compare_snapshot(console, size, "escape", *keys)


@in_four_sizes
@pytest.mark.parametrize("screen", ["mission", "work"])
def test_the_labels_of_jump_mode_look_as_in_their_picture(
    console: ConsoleApp, compare_snapshot: CompareSnapshot, screen: str, size: str
):
    async def draw(pilot: Pilot):
        await until_loaded(pilot)
        await pilot.press("escape", *(("2",) if screen == "work" else ()))
        await wait_for_workers(pilot)
        read_lines(pilot.app)  # the keys have their places once they are drawn

    compare_snapshot(console, size, "apostrophe", go=draw)
