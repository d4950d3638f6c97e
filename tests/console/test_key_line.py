"""The key line (SPEC 9.7): in every pane of every screen, each key that it shows does something."""

import pytest
from textual.pilot import Pilot

from clawpy_console.app import ConsoleApp
from clawpy_console.keys import BY_ID
from clawpy_console.screens import permission_pane
from clawpy_console.screens.base import ConsoleScreen
from clawpy_console.widgets.frame import KeyLine
from tests.console.driving import read_screen, running, until
from tests.console.idle import until_idle
from tests.console.stand_in import StandIn

LEAVES = {"app.quit", "app.stop"}
"""They end what the test looks at; others look at them."""


async def _wait_until_loaded(pilot: Pilot):
    await until(pilot, lambda: not any(worker.is_running for worker in pilot.app.workers), "for what it shows")


async def _open_pane(pilot: Pilot, mode: str, pane: str) -> ConsoleScreen:
    """The screen of `mode`, as it was opened, with the focus on `pane`."""
    app = pilot.app
    while len(app.screen_stack) > 1:
        app.pop_screen()
    if app.current_mode != mode:
        await app.switch_mode(mode)
    await _wait_until_loaded(pilot)
    screen = app.screen
    screen.maximized = None
    screen.go_to(pane)
    await until_idle()
    return screen


def _observe(console: ConsoleApp, engine: StandIn) -> object:
    return len(console.screen_stack), console.screen.focused, read_screen(console), len(engine.call_log)


@pytest.mark.long
@pytest.mark.parametrize("mode", [*ConsoleApp.MODES])
async def test_every_key_of_the_key_line_does_something(
    console: ConsoleApp, engine: StandIn, mode: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(permission_pane, "REQUEST_GUARD_S", 0.0)  # a request may be answered as soon as it is shown
    engine.with_agent()
    if mode == "hierarchy":
        request.getfixturevalue("world")
    async with running(console, "escape", notifications=True) as pilot:
        await console.switch_mode(mode)
        await _wait_until_loaded(pilot)
        screen = console.screen
        pressed = 0
        for pane in [pane for pane in screen.PANES if screen.go_to(pane)]:
            screen = await _open_pane(pilot, mode, pane)
            for action_id, _, label in screen.query_one(KeyLine).keys:
                if action_id in LEAVES:
                    continue
                screen = await _open_pane(pilot, mode, pane)
                keys = {key[0] for key in screen.query_one(KeyLine).keys}
                if action_id not in keys:
                    continue  # what was pressed before took away what it is for
                before = _observe(console, engine)
                pressed += 1
                await pilot.press(BY_ID[action_id].keys.split(",")[0])
                await _wait_until_loaded(pilot)
                assert _observe(console, engine) != before, f"{mode}, {pane}: {label} ({action_id}) does nothing"
        assert pressed
