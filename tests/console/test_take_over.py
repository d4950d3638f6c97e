"""Taking the home over from a headless engine, and leaving one running (SPEC 7.5)."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

import engine as face
from clawpy_console.app import ConsoleApp
from clawpy_console.cli import headless
from clawpy_console.dialogs.ask import Ask
from engine.home import Home
from engine.values import Refusal
from tests.console.conftest import live, screen_text, until
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW


class Held:
    """Opens the engine once nobody else holds the home."""

    def __init__(self, home: Home, engine: StandIn, kind: str) -> None:
        self.engine, self.held = engine, True
        home.data.mkdir(parents=True)
        note = {"pid": os.getpid(), "since": "2026-01-05T09:00:00+00:00", "address": "/nowhere", "kind": kind}
        (home.data / "engine.json").write_text(json.dumps(note))

    def open(self) -> StandIn:
        if self.held:
            raise Refusal("home_held", "held by the headless engine with process id 4711", "")
        return self.engine


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each hand-over that was asked for was to finish first."""
    return []


@pytest.mark.parametrize(("key", "finish"), [("t", True), ("T", False)])
async def test_it_takes_over_and_opens(
    home: Home, engine: StandIn, asked: list[bool], monkeypatch: pytest.MonkeyPatch, key: str, finish: bool
) -> None:
    holder = Held(home, engine, "headless")

    def take_over(_home: Home, *, finish: bool, enough: Any) -> bool:
        asked.append(finish)
        holder.held = False
        return True

    monkeypatch.setattr(face, "take_over", take_over, raising=False)
    app = ConsoleApp(holder.open, home, [], now=lambda: NOW)  # type: ignore[arg-type, return-value]
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, Ask) and "process id 4711" in screen_text(app))
        await pilot.press(key)
        await live(pilot)
        assert asked == [finish]
        await until(pilot, lambda: not isinstance(app.screen, Ask))


@pytest.mark.long
async def test_waiting_ends_at_escape_and_the_dialog_stays(
    home: Home, engine: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take_over(_home: Home, *, finish: bool, enough: Any) -> bool:
        while not enough():
            pass
        return False

    monkeypatch.setattr(face, "take_over", take_over, raising=False)
    app = ConsoleApp(Held(home, engine, "headless").open, home, [], now=lambda: NOW)  # type: ignore[arg-type, return-value]
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: "Another engine is already running" in screen_text(app))
        await pilot.press("t")
        await until(pilot, lambda: "do not wait" in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: "still finishes" in screen_text(app))
        assert "Another engine is already running" in screen_text(app)


async def test_another_console_gives_nothing_away(home: Home, engine: StandIn) -> None:
    app = ConsoleApp(Held(home, engine, "").open, home, [], now=lambda: NOW)  # type: ignore[arg-type, return-value]
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: "The engine could not start" in screen_text(app))


@pytest.mark.long
@pytest.mark.parametrize(("key", "kept"), [("Q", False), ("k", True)])
async def test_leaving_asks_whether_the_engine_goes_on(
    console: ConsoleApp, engine: StandIn, key: str, kept: bool
) -> None:
    async with console.run_test(size=(100, 30)) as pilot:
        await live(pilot)
        assert console.known.running, "the still engine has a running session"
        await pilot.press("ctrl+q")
        await until(pilot, lambda: isinstance(console.screen, Ask))
        await pilot.press("enter")  # the safe answer: it stays
        await until(pilot, lambda: not isinstance(console.screen, Ask))
        assert console.is_running
        await pilot.press("ctrl+q")
        await until(pilot, lambda: isinstance(console.screen, Ask))
        await pilot.press(key)
        await until(pilot, lambda: not console.is_running or console._exit)
    assert console._keep_engine is kept


def test_handing_on_finishes_closes_and_starts(monkeypatch: pytest.MonkeyPatch, home: Home, capsys: Any) -> None:
    said: list[Any] = []

    class Engine:
        workspaces = ["/shop"]
        sessions = type("Sessions", (), {"running": staticmethod(lambda: ["one"])})

        def wind_down(self, *, finish: bool) -> list[Any]:
            said.append(("wind_down", finish))
            if finish:
                raise KeyboardInterrupt
            return []

        def close(self) -> None:
            said.append("close")

    def leave_running(home: Home, workspaces: list[str]) -> int:
        said.append(workspaces)
        return 4711

    monkeypatch.setattr(headless, "leave_running", leave_running)
    headless.hand_on(Engine(), home)  # type: ignore[arg-type]
    assert said == [("wind_down", True), ("wind_down", False), "close", ["/shop"]]
    assert "process 4711" in capsys.readouterr().err
