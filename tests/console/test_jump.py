"""Jump mode (SPEC 9.7): a label on each place that can be jumped to, on every screen and dialog."""

from itertools import pairwise
from typing import Any

import pytest
from textual.screen import Screen
from textual.widget import Widget

from clawpy_console.app import ConsoleApp
from clawpy_console.screens.jump import Jump, find_spots, make_labels
from clawpy_console.screens.own_prompt import OwnPrompt
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
@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
@pytest.mark.parametrize("screen", ["1", "2", "3", "4", "5", "6", "7"])
async def test_every_screen_has_a_label_on_each_tab_and_pane_and_none_on_a_key(
    console: ConsoleApp, screen: str, size: tuple[int, int]
):
    async with running(console, screen, size=size) as pilot:
        await until(pilot, lambda: console.screen.query(KeyLine) and console.screen.query_one(KeyLine).keys)
        read_screen(console)  # the keys have their places once they are drawn
        spots_on_screen = find_spots(console.screen)
        lines = read_screen(console).splitlines()
        on_top = [item.on_screen for item in spots_on_screen if item.widget.id == "state"]
        assert len(on_top) >= 2
        assert all(lines[at.y][at.x].isdigit() for at in on_top), "tabs alone: F12 stop is a key"
        assert not [item for item in spots_on_screen if isinstance(item.widget, KeyLine)]
        assert [item for item in spots_on_screen if item.widget is console.screen.focused]
        await pilot.press("apostrophe")
        await until(pilot, lambda: isinstance(console.screen, Jump))
        drawn = read_screen(console).splitlines()
        for label, spot in list(console.screen._spots.items())[:40]:
            x, y = spot.on_screen
            assert label in (drawn[y][x : x + len(label)], drawn[y][x - len(label) : x])
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(console.screen, Jump))


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
        await until(pilot, lambda: isinstance(console.screen, OwnPrompt) and console.focused)
        await pilot.press("apostrophe")
        assert console.focused.text == "'"
        await pilot.press("f2")
        await until(pilot, lambda: isinstance(console.screen, Jump))
