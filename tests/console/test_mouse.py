"""The mouse (SPEC 9.7): tabs, rows and keys are clicked, the wheel scrolls."""

import pytest
from textual.events import MouseScrollDown
from textual.pilot import Pilot
from textual.widget import Widget

from clawpy_console.app import ConsoleApp
from clawpy_console.widgets.frame import KeyLine
from clawpy_console.widgets.rows import Rows
from clawpy_console.widgets.transcript import Transcript
from tests.console.driving import read_screen, running, until

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


@pytest.mark.long
async def test_the_keys_of_a_dialog_are_clicked(console: ConsoleApp):
    async with running(console, "enter") as pilot:
        await until(pilot, lambda: console.screen.query(KeyLine) and "esc back" in read_screen(console))
        key_line = console.screen.query_one(KeyLine)
        await _click_words(pilot, key_line, "esc", key_line.region.y)
        await until(pilot, lambda: len(console.screen_stack) == 1)


async def test_the_wheel_scrolls_output(console: ConsoleApp):
    async with running(console, "escape", "2") as pilot:
        output = console.screen.query_one(Transcript)
        output.extend([("output", f"line {number}") for number in range(200)])
        output.scroll_home(animate=False)
        await pilot._post_mouse_events([MouseScrollDown], widget=output, offset=(4, 4))
        await until(pilot, lambda: output.scroll_offset.y > 0)
