"""The mouse: tabs, rows and keys are clicked, the wheel scrolls."""

from __future__ import annotations

import pytest
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.events import MouseScrollDown
from textual.pilot import Pilot

from clawpy_console.app import ConsoleApp
from clawpy_console.keys import bindings
from clawpy_console.screens.base import ConsoleScreen
from clawpy_console.widgets.bars import Filter, KeyLine
from clawpy_console.widgets.base_screen import BaseScreen
from clawpy_console.widgets.rows import Row, Rows
from clawpy_console.widgets.transcript import Transcript
from tests.console.conftest import live, running, screen_text, until

# `z` shows the pane in focus on the full screen, Esc shows all panes again, on every screen.


MODES = [*ConsoleApp.MODES]


async def _shown(pilot: Pilot, mode: str) -> ConsoleScreen:
    await live(pilot)
    await pilot.app.switch_mode(mode)  # type: ignore[arg-type]
    await pilot.press("escape")  # the greeting goes with the first key
    await until(pilot, lambda: not any(worker.is_running for worker in pilot.app.workers), "for what it shows")
    screen = pilot.app.screen
    assert isinstance(screen, ConsoleScreen)
    return screen


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
async def test_every_pane_zooms_and_returns(console: ConsoleApp, mode: str) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        screen = await _shown(pilot, mode)
        reached = [pane for pane in screen.PANES if screen.go_to(pane)]
        assert reached
        for pane in reached:
            screen.go_to(pane)
            await pilot.pause()
            focused, before = screen.focused, {widget: widget.region for widget in screen.query("*")}
            assert focused is not None
            offset = focused.scroll_offset
            await pilot.press("z")
            assert screen.maximized is not None
            assert screen.maximized.region.size == (120, 37), pane
            assert focused.region.height, pane
            assert screen.focused is focused
            assert "esc back" in str(screen.query_one(KeyLine).render()), pane
            await pilot.press("escape")
            assert screen.focused is focused
            assert {item: item.region for item in before} == before, pane
            assert focused.scroll_offset == offset


async def test_the_zoom_goes_with_the_focus(console: ConsoleApp) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        screen = await _shown(pilot, "work")
        await pilot.press("z", "enter")  # a session under the cursor is opened
        assert screen.pane == "transcript"
        assert screen.focused in screen.maximized.walk_children(with_self=True)
        await pilot.press("enter")
        assert screen.maximized is None, "where Enter opens nothing it zooms"


async def test_while_words_are_typed_z_is_a_letter_and_escape_leaves_the_words(console: ConsoleApp) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        screen = await _shown(pilot, "work")
        await pilot.press("z", "slash", "z")
        assert screen.query_one(Filter).words == ["z"]
        await pilot.press("escape")
        assert screen.maximized is not None
        assert not screen.query_one(Filter).words
        await pilot.press("escape")
        assert screen.maximized is None


class LongList(BaseScreen[None]):
    """A screen with a list that is longer than it."""

    BINDINGS = bindings("zoom", "panes")

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Rows(id="list")
            yield Rows(id="beside")

    def on_mount(self) -> None:
        self.query_one("#list", Rows).show([Row(str(number), f"row {number}") for number in range(200)])


async def test_a_long_list_is_scrolled_as_it_was_and_its_cursor_is_in_sight(console: ConsoleApp) -> None:
    async with running(console, size=(80, 24)) as pilot:
        await console.push_screen(LongList())
        rows = console.screen.query_one("#list", Rows)
        rows.focus()
        await pilot.press("end", *["up"] * 30)
        before = rows.scroll_offset
        await pilot.press("z", "z")
        assert rows.scroll_offset == before
        await pilot.press("z", "home", "z")
        assert rows.scroll_offset.y == rows.cursor == 0


async def _click_words(pilot, widget, words: str, line: int) -> None:
    at = screen_text(pilot.app).splitlines()[line].index(words)
    assert await pilot.click(widget, offset=(at - widget.region.x, line - widget.region.y))


async def test_tabs_rows_and_keys_are_clicked(console: ConsoleApp) -> None:
    async with running(console, "escape") as pilot:
        await _click_words(pilot, console.screen.query_one("#state"), "2 work", 0)
        await until(pilot, lambda: console.current_mode == "work")
        rows = console.screen.query_one("#sessions", Rows)
        before = rows.current
        line = next(y for y, text in enumerate(screen_text(console).splitlines()) if "Lint the 6" in text)
        await pilot.click(rows, offset=(6, line - rows.region.y))
        assert rows.current != before
        await _click_words(pilot, console.screen.query_one(KeyLine), "z zoom", 39)
        assert console.screen.maximized is not None


async def test_the_wheel_scrolls_lists_and_output(console: ConsoleApp) -> None:
    async with running(console, "escape", "2") as pilot:
        output = console.screen.query_one(Transcript)
        output.extend([("output", f"line {number}") for number in range(200)])
        output.scroll_home(animate=False)
        await pilot._post_mouse_events([MouseScrollDown], widget=output, offset=(4, 4))
        await until(pilot, lambda: output.scroll_offset.y > 0)
        await console.push_screen(LongList())
        rows = console.screen.query_one("#list", Rows)
        await pilot._post_mouse_events([MouseScrollDown], widget=rows, offset=(4, 4))
        await until(pilot, lambda: rows.scroll_offset.y > 0)
