"""The key line shows keys that work: in every pane of every screen each key that is shown does something."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widget import Widget

from clawpy_console.app import ConsoleApp
from clawpy_console.dialogs.jump import Jump, labels, spots
from clawpy_console.dialogs.prompt import OwnPrompt
from clawpy_console.dialogs.question import Question
from clawpy_console.keys import BY_ID
from clawpy_console.screens import session_actions
from clawpy_console.screens.base import ConsoleScreen
from clawpy_console.widgets.bars import KeyLine
from clawpy_console.widgets.rows import Rows
from tests.console.conftest import running, screen_text, settled, until
from tests.console.people import make_people, with_people
from tests.console.stand_in import StandIn

LEAVES = {"app.quit", "app.stop"}
"""They end what the test looks at; others look at them."""


async def _loaded(pilot: Pilot) -> None:
    await until(pilot, lambda: not any(worker.is_running for worker in pilot.app.workers), "for what it shows")


async def _at(pilot: Pilot, mode: str, pane: str) -> ConsoleScreen:
    """The screen of `mode`, as it was opened, with the focus on `pane`."""
    app = pilot.app
    assert isinstance(app, ConsoleApp)
    while len(app.screen_stack) > 1:
        app.pop_screen()
    if app.current_mode != mode:
        await app.switch_mode(mode)
    await _loaded(pilot)
    screen = app.screen
    assert isinstance(screen, ConsoleScreen)
    screen.maximized = None
    screen.go_to(pane)
    await settled()
    return screen


@pytest.mark.long
@pytest.mark.parametrize("mode", [*ConsoleApp.MODES])
async def test_every_key_that_is_shown_does_something(
    console: ConsoleApp, engine: StandIn, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_actions, "GUARD_S", 0.0)  # a request may be answered as soon as it is shown
    engine.with_agent()
    if mode == "hierarchy":
        (tmp_path / "made").mkdir()
        with_people(engine, make_people(tmp_path / "made"), tmp_path / "people")
    async with running(console, "escape", notifications=True) as pilot:
        await console.switch_mode(mode)
        await _loaded(pilot)
        screen = console.screen
        assert isinstance(screen, ConsoleScreen)
        for pane in [pane for pane in screen.PANES if screen.go_to(pane)]:
            screen = await _at(pilot, mode, pane)
            for action_id, _, label in screen.query_one(KeyLine).keys:
                if action_id in LEAVES:
                    continue
                screen = await _at(pilot, mode, pane)
                shown = {key[0] for key in screen.query_one(KeyLine).keys}
                if action_id not in shown:
                    continue  # what was pressed before took away what it is for
                before = _state(console, engine)
                await pilot.press(BY_ID[action_id].keys.split(",")[0])
                await _loaded(pilot)
                assert _state(console, engine) != before, f"{mode}, {pane}: {label} ({action_id}) does nothing"


def _state(console: ConsoleApp, engine: StandIn) -> object:
    return len(console.screen_stack), console.screen.focused, screen_text(console), len(engine.noted)


# Jump mode: a label on everything that can be reached, on every screen and dialog.


def label_of(jump: Screen[Any], widget: Widget, at: int) -> str:
    """The label on the spot number `at` of `widget`."""
    assert isinstance(jump, Jump)
    return [label for label, spot in jump._spots.items() if spot.widget is widget][at]


@pytest.mark.parametrize("count", [0, 1, 26, 27, 51, 52, 300, 676])
def test_no_label_is_the_beginning_of_another(count: int) -> None:
    made = sorted(labels(count))
    assert len(made) == len(set(made)) == count
    assert not any(after.startswith(item) for item, after in pairwise(made))


@pytest.mark.long
@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
@pytest.mark.parametrize("screen", ["1", "2", "3", "4", "5", "6", "7"])
async def test_every_screen_has_a_label_on_each_tab_pane_and_key(
    console: ConsoleApp, screen: str, size: tuple[int, int]
) -> None:
    async with running(console, screen, size=size) as pilot:
        await until(pilot, lambda: console.screen.query(KeyLine) and console.screen.query_one(KeyLine).keys)
        screen_text(console)  # the keys have their places once they are drawn
        found = spots(console.screen)
        assert len([item for item in found if item.widget.id == "state"]) >= 3
        assert [item for item in found if isinstance(item.widget, KeyLine)]
        assert [item for item in found if item.widget is console.screen.focused]
        await pilot.press("apostrophe")
        await until(pilot, lambda: isinstance(console.screen, Jump))
        drawn = screen_text(console).splitlines()
        for label, spot in list(console.screen._spots.items())[:40]:
            x, y = spot.on_screen
            assert label in (drawn[y][x : x + len(label)], drawn[y][x - len(label) : x])
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(console.screen, Jump))


@pytest.mark.long
async def test_a_label_goes_to_a_screen_a_row_and_a_key(console: ConsoleApp, engine: StandIn) -> None:
    async with running(console) as pilot:
        bar = console.screen.query_one("#state")
        await pilot.press("apostrophe")
        await pilot.press(*label_of(console.screen, bar, 1))
        await until(pilot, lambda: console.current_mode == "work")
        rows = console.screen.query_one("#sessions", Rows)
        await until(pilot, lambda: len(rows.spots) > 3)
        await pilot.press("apostrophe")
        await pilot.press(*label_of(console.screen, rows, 3))
        await until(pilot, lambda: rows.cursor == rows.spots[3][0].y and rows.has_focus)
        await pilot.press("apostrophe", "escape")
        await until(pilot, lambda: console.screen.focused is rows)


@pytest.mark.long
async def test_an_answer_of_a_question_is_reached_and_a_letter_that_is_no_label_ends_it(console: ConsoleApp) -> None:
    async with running(console, "ctrl+q", size=(80, 24)) as pilot:
        await until(pilot, lambda: isinstance(console.screen, Question))
        await pilot.press("apostrophe", "M")
        await until(pilot, lambda: isinstance(console.screen, Question))
        await pilot.press("apostrophe")
        await until(pilot, lambda: isinstance(console.screen, Jump))
        await pilot.press(list(console.screen._spots)[-1])  # cancel
        await until(pilot, lambda: len(console.screen_stack) == 1)


@pytest.mark.long
async def test_while_you_type_its_letter_is_a_letter_and_f2_jumps(console: ConsoleApp) -> None:
    async with running(console, "n", size=(80, 24)) as pilot:
        await until(pilot, lambda: isinstance(console.screen, OwnPrompt) and console.focused)
        await pilot.press("apostrophe")
        assert console.focused.text == "'"
        await pilot.press("f2")
        await until(pilot, lambda: isinstance(console.screen, Jump))
