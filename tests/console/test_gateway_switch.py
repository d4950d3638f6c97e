"""The gateway's switch in the palette (SPEC 10.1)."""

from __future__ import annotations

from typing import Any

from textual.pilot import Pilot
from textual.widgets import Static

from clawpy_console.app import ConsoleApp
from clawpy_console.dialogs.help import commands
from clawpy_console.dialogs.question import Question
from tests.console.conftest import live, until
from tests.console.stand_in import StandIn
from tests.support.helpers import assert_contains


def command(console: ConsoleApp, name: str) -> None:
    """Choose it in the palette."""
    next(command for command in commands(console, console.screen) if command.title == name).callback()


async def read(pilot: Pilot[Any], console: ConsoleApp) -> str:
    """What the dialog says; it is closed again."""
    await until(pilot, lambda: isinstance(console.screen, Question) and console.screen.query(Static), "for the dialog")
    text = str(console.screen.query(Static).first().render())
    await pilot.press("escape")
    await until(pilot, lambda: not isinstance(console.screen, Question), "for the dialog to close")
    return text


async def test_on_and_off_shown_above_and_the_token_once(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)

        def listens() -> bool:
            return "api :8477" in str(console.screen.query_one("#state").render())

        assert not listens()
        command(console, "Gateway on")
        text = await read(pilot, console)
        assert_contains(text, "http://127.0.0.1:8477", "clawpy_secret")
        await until(pilot, listens, "for the status line")
        command(console, "Gateway: where it listens")
        text = await read(pilot, console)
        assert "http://127.0.0.1:8477" in text
        assert "clawpy_secret" not in text, "it was shown once"
        command(console, "Gateway off")
        await until(pilot, lambda: not listens(), "for the status line")
    assert [call for call in engine.noted if call[0] == "gateway"] == [("gateway", True), ("gateway", False)]
