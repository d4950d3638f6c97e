"""Runs a console in a test, waits until it shows something, and reads what it shows.

Neither Textual nor the console has a public way to what is drawn, to the toasts, or to whether something is being read.
Their private parts are used here, so that tests need not know them.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from textual.app import App
from textual.pilot import Pilot
from textual.strip import Strip

from clawpy_console.app import ConsoleApp
from engine.home import Home
from tests.console.idle import until_idle
from tests.console.stand_in_data import NOW


def make_console(
    home: Home, open_engine: Callable[[], Any], workspaces: Sequence[str] = (), **options: Any
) -> ConsoleApp:
    """A console in `home` without animations, opened for `workspaces`; at the fixed time, if no other is given."""
    app = ConsoleApp(open_engine, home, workspaces, **{"now": lambda: NOW} | options)
    app.animation_level = "none"
    return app


@asynccontextmanager
async def running(
    console: ConsoleApp, *keys: str, size: tuple[int, int] = (120, 40), notifications: bool = False
) -> AsyncIterator[Pilot]:
    """The console once everything was read; `keys` are pressed then."""
    async with console.run_test(size=size, notifications=notifications) as pilot:
        await until_loaded(pilot)
        await pilot.press(*keys)
        yield pilot


async def until_loaded(pilot: Pilot):
    """Wait until the engine is open and everything was read once."""
    app = pilot.app  # a console
    await until(pilot, lambda: app.state.twin_phase and not is_reading(app), "for the engine")


async def until_shown(pilot: Pilot, *texts: str):
    """Wait until all of these texts are on the screen."""
    for text in texts:
        await until(pilot, lambda text=text: text in read_screen(pilot.app), f"for {text!r}")


async def until(pilot: Pilot, condition: Callable[[], object], description: str = ""):
    """Let the app run until `condition` holds; fails after twenty seconds, with its `description`."""
    deadline = time.monotonic() + 20
    await until_idle()
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain {description}"
        await asyncio.sleep(0.005)
        await until_idle()


def is_reading(app: ConsoleApp) -> bool:
    """Whether the state of the engine is being read again."""
    return app._is_reading


def read_lines(app: App[Any]) -> list[Strip]:
    """The lines on the screen, as they are drawn."""
    return app.screen._compositor.render_strips()


def read_screen(app: App[Any]) -> str:
    """The text on the screen, line by line."""
    return "\n".join("".join(segment.text for segment in strip) for strip in read_lines(app))


def read_toasts(app: ConsoleApp) -> str:
    """The texts of all toasts, line by line."""
    return "\n".join(notification.message for notification in app._notifications)
