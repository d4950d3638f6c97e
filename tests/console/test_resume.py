"""Resuming after a stop asks first, from the palette as from the safety screen."""

from __future__ import annotations

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.palette import commands
from tests.console.conftest import running, until
from tests.console.stand_in import StandIn


@pytest.mark.long
@pytest.mark.parametrize("screen", ["1", "6"])
async def test_the_palette_resumes_after_a_stop_only_after_y(console: ConsoleApp, engine: StandIn, screen: str) -> None:
    async with running(console, screen, "f12") as pilot:
        await until(pilot, lambda: console.state.holds)
        [resume] = [
            command for command in commands(console, console.screen) if command.title == "Resume after the stop"
        ]
        resume.callback()
        await until(pilot, lambda: len(console.screen_stack) == 2)
        await pilot.press("enter")  # the safe answer: nothing is resumed
        await until(pilot, lambda: len(console.screen_stack) == 1)
        assert not any(call[0] == "resume" for call in engine.noted)
        await pilot.press("R", "y")
        await until(pilot, lambda: ("resume", "stop") in engine.noted)
