"""Jump mode (SPEC 9.7): a label on each place that can be jumped to, on every screen and dialog."""

from itertools import pairwise
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widget import Widget

from clawpy_console.app import ConsoleApp
from clawpy_console.screens.jump import Jump, make_labels
from clawpy_console.screens.own_prompt import PromptBox
from clawpy_console.widgets.frame import KeyLine
from clawpy_console.widgets.rows import Rows
from tests.console.driving import read_screen, running, until


def find_label(jump: Screen[Any], widget: Widget, at: int) -> str:
    """The label on the spot number `at` of `widget`."""
    return [label for label, spot in jump._spots.items() if spot.widget is widget][at]


@pytest.mark.parametrize("count", [0, 1, 26, 27, 51, 52, 300, 676])
def test_no_label_is_the_beginning_of_another(count: int):
    ordered = sorted(make_labels(count))
    assert len(ordered) == len(set(ordered)) == count
    assert not any(following.startswith(item) for item, following in pairwise(ordered))


@pytest.mark.long
async def test_a_label_goes_to_a_screen_and_a_row(console: ConsoleApp):
    async with running(console) as pilot:
        bar = console.screen.query_one("#state")
        await pilot.press("apostrophe")
        await pilot.press(*find_label(console.screen, bar, 1))
        await until(pilot, lambda: console.current_mode == "work")
        rows = console.screen.query_one("#sessions", Rows)
        await until(pilot, lambda: len(rows.spots) > 3)
        await pilot.press("apostrophe")
        await pilot.press(*find_label(console.screen, rows, 3))
        await until(pilot, lambda: rows.cursor == rows.spots[3][0].y and rows.has_focus)
        await pilot.press("apostrophe", "escape")
        await until(pilot, lambda: console.screen.focused is rows)


@pytest.mark.long
async def test_f2_jumps_while_text_is_typed(console: ConsoleApp):
    async with running(console, "n", size=(80, 24)) as pilot:
        await until(pilot, lambda: isinstance(console.screen, PromptBox) and console.focused)
        await pilot.press("apostrophe")
        assert console.focused.text == "'"
        await pilot.press("f2")
        await until(pilot, lambda: isinstance(console.screen, Jump))


STATE_LINE, KEY_LINE = 0, 39
"""The lines of the screen, from 0."""


async def _click_words(pilot: Pilot, widget: Widget, words: str, line: int):
    column = read_screen(pilot.app).splitlines()[line].index(words)
    assert await pilot.click(widget, offset=(column - widget.region.x, line - widget.region.y))


async def test_tabs_rows_and_keys_are_clicked(console: ConsoleApp):
    async with running(console, "escape") as pilot:
        await _click_words(pilot, console.screen.query_one("#state"), "2 work", STATE_LINE)
        await until(pilot, lambda: console.current_mode == "work")
        rows = console.screen.query_one("#sessions", Rows)
        before = rows.current
        line = next(y for y, text in enumerate(read_screen(console).splitlines()) if "Lint the 6" in text)
        await pilot.click(rows, offset=(6, line - rows.region.y))
        assert rows.current != before
        await _click_words(pilot, console.screen.query_one(KeyLine), "z zoom", KEY_LINE)
        assert console.screen.maximized is not None
