"""How the screens look: on a still engine, at a fixed time, in three sizes."""

from __future__ import annotations

from itertools import groupby

import pytest
from textual.pilot import Pilot

from clawpy_console.app import ConsoleApp
from engine.model import Phase
from tests.console.conftest import live, until
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import cards

SIZES = {"80x24": (80, 24), "120x40": (120, 40), "160x50": (160, 50), "200x60": (200, 60)}

SCREENS = {
    "mission": ("escape",),
    "work": ("2",),
    "diff": ("2", "tab", "tab", "enter", "]", "space", "down", "down", "c", *"why?", "enter", "z"),
    "safety": ("6",),
    "details": ("escape", "enter"),
}


def run(*keys: str, theme: str = ""):
    async def read(pilot: Pilot) -> None:
        await until(pilot, lambda: not any(worker.is_running for worker in pilot.app.workers), "for workers")

    async def before(pilot: Pilot) -> None:
        await live(pilot)
        await read(pilot)
        if theme:
            pilot.app.theme = theme
        for _, same in groupby(keys):  # who walks down a list does not wait at each row
            await pilot.press(*same)
            await read(pilot)
        for box in pilot.app.screen.query("Input, TextArea"):
            box.cursor_blink = False  # there, whenever the picture is taken

    return before


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("screen", SCREENS)
def test_screens(console: ConsoleApp, snap_compare, screen: str, size: str) -> None:
    assert snap_compare(console, terminal_size=SIZES[size], run_before=run(*SCREENS[screen]))


AGENT = {
    "asked": ("2",),
    "reply": ("2", "f"),
    "xray": ("2", "x", "tab"),
    "queue": ("escape",),
}


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("screen", AGENT)
def test_screens_of_an_agent(console: ConsoleApp, engine: StandIn, snap_compare, screen: str, size: str) -> None:
    engine.with_agent()
    assert snap_compare(console, terminal_size=SIZES[size], run_before=run(*AGENT[screen]))


def test_stopped(console: ConsoleApp, snap_compare) -> None:
    assert snap_compare(console, terminal_size=(120, 40), run_before=run("f12", "6"))


def test_a_risky_card_armed(console: ConsoleApp, snap_compare) -> None:
    assert snap_compare(console, terminal_size=(80, 24), run_before=run("escape", "left", "left", "right"))


def test_before_the_twin_has_learnt(console: ConsoleApp, engine: StandIn, snap_compare) -> None:
    engine.cards.all = {card.id: card for card in cards(stated=False)}
    engine.phase = Phase(0, 3, "the Twin starts after 30 of your decisions", 30)
    assert snap_compare(console, terminal_size=(80, 24), run_before=run("escape"))


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES)
def test_with_nothing_to_decide(console: ConsoleApp, engine: StandIn, snap_compare, size: str) -> None:
    engine.cards.all = {}
    engine.changes.all = []
    assert snap_compare(console, terminal_size=SIZES[size], run_before=run("escape"))


@pytest.mark.long
@pytest.mark.parametrize("size", ["120x40", "200x60"])
def test_before_the_first_session(console: ConsoleApp, engine: StandIn, snap_compare, size: str) -> None:
    engine.cards.all = {card.id: card for card in cards(stated=False)}
    engine.sessions.all, engine.changes.all, engine.channel_setup.serves = [], [], ""
    engine.tasks.list = lambda **_: []
    assert snap_compare(console, terminal_size=SIZES[size], run_before=run())


@pytest.mark.long
@pytest.mark.parametrize("theme", ["clawpy-light", "clawpy-high-contrast", "clawpy-ansi"])
def test_themes(console: ConsoleApp, engine: StandIn, snap_compare, theme: str) -> None:
    engine.settings.current.console.theme = theme
    assert snap_compare(console, terminal_size=(120, 40), run_before=run("escape"))


def test_without_colour(home, engine: StandIn, snap_compare, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.console.stand_in_data import NOW

    monkeypatch.setenv("NO_COLOR", "1")
    app = ConsoleApp(lambda: engine, home, [], now=lambda: NOW)  # type: ignore[arg-type, return-value]
    assert snap_compare(app, terminal_size=(80, 24), run_before=run("escape"))
