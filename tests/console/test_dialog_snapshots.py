"""How the dialogs look, in four sizes."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from clawpy_console.app import ConsoleApp
from tests.console.conftest import live
from tests.console.snapshots import SIZES, CompareSnapshot, workers_end
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import found_agent

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
def test_dialogs(console: ConsoleApp, compare_snapshot: CompareSnapshot, dialog: str, size: str) -> None:
    compare_snapshot(console, size, "escape", *DIALOGS[dialog])


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dialog", ["prompt", "connect"])
def test_without_a_model(
    console: ConsoleApp, engine: StandIn, compare_snapshot: CompareSnapshot, dialog: str, size: str
) -> None:
    engine.channel_setup.serves, engine.channel_setup.here = (
        "",
        [found_agent("claude", "Claude Code"), found_agent("codex", "Codex", "npm i")],
    )
    keys = ("n", *"explain", "enter") if dialog == "prompt" else ("H",)
    compare_snapshot(console, size, "escape", *keys)


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("screen", ["mission", "work"])
def test_jump_mode(console: ConsoleApp, compare_snapshot: CompareSnapshot, screen: str, size: str) -> None:
    async def draw(pilot: Pilot) -> None:
        await live(pilot)
        await pilot.press("escape", *(("2",) if screen == "work" else ()))
        await workers_end(pilot)
        pilot.app.screen._compositor.render_strips()  # the keys have their places once they are drawn

    compare_snapshot(console, size, "apostrophe", go=draw)
