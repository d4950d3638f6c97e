"""Calls of `clawpy`, and a console that cannot start."""

import time
from collections.abc import Awaitable, Callable, Sequence

import pytest

from engine import Home
from tests.cli.calls import clawpy as clawpy
from tests.cli.calls import shop as shop
from tests.console.driving import make_console, read_screen
from tests.support.engines import open_idle_engine

FailedStart = Callable[..., Awaitable[str]]
"""Opens a console that cannot start; see the fixture `open_failing_console`."""


@pytest.fixture
def open_failing_console(home: Home) -> FailedStart:
    """Opens the console on an engine that cannot start, and returns the text of its screen."""

    async def open_console(workspaces: Sequence[str] = ()) -> str:
        app = make_console(home, lambda: open_idle_engine(home, *workspaces), workspaces)
        async with app.run_test(size=(120, 40)) as pilot:
            deadline = time.monotonic() + 10
            while app.opening_step == "opening":
                assert time.monotonic() < deadline, "the console neither opened nor said why not"
                await pilot.pause(0.01)
            await pilot.pause()
            assert app.engine is None
            text = " ".join(read_screen(app).replace("│", " ").split())
            await pilot.press("q")
        assert app.return_code == 1
        return text

    return open_console
