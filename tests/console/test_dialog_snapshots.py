"""How the dialogs look, in four sizes."""

from __future__ import annotations

import pytest

from clawpy_console.app import ConsoleApp
from tests.console.stand_in import StandIn
from tests.console.test_greeting import found
from tests.console.test_snapshots import run

SIZES = {"80x24": (80, 24), "120x40": (120, 40), "160x50": (160, 50), "200x60": (200, 60)}

DIALOGS = {
    "prompt": ("n", *"bisect ", "tab"),
    "resume": ("f12", "R"),
    "discard": ("2", "D"),
    "quit": ("q",),
    "help": ("question_mark",),
    "help-filtered": ("question_mark", *"undo"),
    "details-edited": ("enter", "e"),
}


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dialog", DIALOGS)
def test_dialogs(console: ConsoleApp, snap_compare, dialog: str, size: str) -> None:
    assert snap_compare(console, terminal_size=SIZES[size], run_before=run("escape", *DIALOGS[dialog]))


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dialog", ["prompt", "connect"])
def test_without_a_model(console: ConsoleApp, engine: StandIn, snap_compare, dialog: str, size: str) -> None:
    engine.channel_setup.serves, engine.channel_setup.here = (
        "",
        [found("claude", "Claude Code"), found("codex", "Codex", "npm i")],
    )
    keys = ("n", *"explain", "enter") if dialog == "prompt" else ("H",)
    assert snap_compare(console, terminal_size=SIZES[size], run_before=run("escape", *keys))


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("screen", ["mission", "work"])
def test_jump_mode(console: ConsoleApp, snap_compare, screen: str, size: str) -> None:
    before = run("escape", *(("2",) if screen == "work" else ()))

    async def jump(pilot) -> None:
        await before(pilot)
        pilot.app.screen._compositor.render_strips()  # the keys have their places once they are drawn
        await pilot.press("apostrophe")

    assert snap_compare(console, terminal_size=SIZES[size], run_before=jump)
