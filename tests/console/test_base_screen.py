"""What every screen does (SPEC 9.7): panes zoom, text typed ahead is kept, each key of the key line does something."""

from typing import Any

import pytest
from textual import events
from textual.keys import _character_to_key
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import TextArea

from clawpy_console.app import ConsoleApp
from clawpy_console.keys import ACTION_BY_ID
from clawpy_console.screens import ConsoleScreen, permission_pane
from clawpy_console.widgets import Rows
from clawpy_console.widgets.frame import KeyLine
from tests.console.driving import read_screen, running, until
from tests.console.idle import until_idle
from tests.console.snapshots import wait_for_workers
from tests.console.stand_in import StandIn
from tests.support import read_table

TABLE = read_table(__file__)


MODES = [*ConsoleApp.MODES]

LEAVES = {"app.quit", "app.stop"}
"""They end what the test looks at; others look at them."""


async def open_screen(pilot: Pilot, mode: str) -> ConsoleScreen:
    """The screen of `mode` without dialogs, once it has read what it shows."""
    app = pilot.app
    while len(app.screen_stack) > 1:
        app.pop_screen()
    await app.switch_mode(mode)
    await wait_for_workers(pilot)
    return app.screen


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
async def test_every_pane_zooms_and_returns(console: ConsoleApp, mode: str):
    async with running(console, "escape") as pilot:  # the greeting goes with the first key
        screen = await open_screen(pilot, mode)
        reached = [pane for pane in screen.PANES if screen.go_to(pane)]
        assert reached
        for pane in reached:
            screen.go_to(pane)
            await pilot.pause()
            focused = screen.focused
            before = {widget: widget.region for widget in screen.query("*")}
            offset = focused.scroll_offset
            await pilot.press("z")
            assert screen.maximized.region.size == (120, 37), pane
            assert focused.region.height, pane
            assert screen.focused is focused
            assert "esc back" in str(screen.query_one(KeyLine).render()), pane
            await pilot.press("escape")
            assert screen.focused is focused
            assert {item: item.region for item in before} == before, pane
            assert focused.scroll_offset == offset


@pytest.mark.long
@pytest.mark.parametrize("before, key, opens", TABLE["keys"])
async def test_text_typed_ahead_goes_into_the_text_that_its_key_opens(
    console: ConsoleApp, before: list[str], key: str, opens: str
):
    async with running(console, *before) as pilot:
        for character in f"{key}why so":
            console.post_message(events.Key(_character_to_key(character), character))
        await until(pilot, lambda: type(console.focused).__name__ == opens)
        text = console.focused
        await until(pilot, lambda: (text.text if isinstance(text, TextArea) else text.value) == "why so")


async def open_pane(pilot: Pilot, mode: str, pane: str) -> ConsoleScreen:
    """The screen of `mode`, as it was opened, with the focus on `pane`."""
    screen = await open_screen(pilot, mode)
    screen.maximized = None
    screen.go_to(pane)
    await until_idle()
    return screen


def observe(console: ConsoleApp, engine: StandIn) -> object:
    return len(console.screen_stack), console.screen.focused, read_screen(console), len(engine.call_log)


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
async def test_every_key_of_the_key_line_does_something(
    console: ConsoleApp, engine: StandIn, mode: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(permission_pane, "REQUEST_GUARD_S", 0.0)  # a request may be answered as soon as it is shown
    engine.with_agent()
    if mode == "hierarchy":
        request.getfixturevalue("world")
    async with running(console, "escape", notifications=True) as pilot:
        screen = await open_screen(pilot, mode)
        pressed = 0
        for pane in [pane for pane in screen.PANES if screen.go_to(pane)]:
            screen = await open_pane(pilot, mode, pane)
            for action_id, _, label in screen.query_one(KeyLine).keys:
                if action_id in LEAVES:
                    continue
                screen = await open_pane(pilot, mode, pane)
                keys = {key[0] for key in screen.query_one(KeyLine).keys}
                if action_id not in keys:
                    continue  # what was pressed before took away what it is for
                before = observe(console, engine)
                pressed += 1
                await pilot.press(ACTION_BY_ID[action_id].keys.split(",")[0])
                await wait_for_workers(pilot)
                assert observe(console, engine) != before, f"{mode}, {pane}: {label} ({action_id}) does nothing"
        assert pressed


def find_label(jump: Screen[Any], widget: Widget, at: int) -> str:
    """The label on the spot number `at` of `widget`."""
    return [label for label, spot in jump._spots.items() if spot.widget is widget][at]


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


STATE_LINE = 0
KEY_LINE = 39
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
