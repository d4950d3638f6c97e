"""F12: on every screen, in every dialog, while a text field has the focus, before the engine is open (SPEC 3.7)."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.attach.consoles import Consoles
from clawpy_console.dialogs.question import Question
from engine.events import CostWarned, HoldLifted, HoldPlaced
from engine.home import Home
from engine.model import Refusal
from tests.console.conftest import live, make_console, running, screen_text, until, wait_for_text
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW

PLACES = {
    "mission": (),
    "work": ("2",),
    "safety": ("6",),
    "details": ("1", "enter"),
    "editor": ("1", "enter", "e", "x"),
    "prompt": ("1", "n", "x"),
    "help": ("question_mark",),
    "filter": ("2", "slash", "x"),
    "palette": ("ctrl+p", "x"),
    "quit": ("ctrl+q",),
    "confirm": ("2", "D"),
}


@pytest.mark.long
async def test_f12_stops_on_every_screen_and_in_every_dialog_and_text_field(
    console: ConsoleApp, engine: StandIn
) -> None:
    async with running(console) as pilot:
        for place, keys in PLACES.items():
            await pilot.press(*keys)
            await pilot.press("f12")
            await until(pilot, lambda: any(call[0] == "stop" for call in engine.noted), place)
            await until(pilot, lambda: any(hold.word == "stop" for hold in console.state.holds), place)
            await until(pilot, lambda: "■ STOPPED" in screen_text(console), f"{place}: said below the open dialog")
            console.resume("stop")
            await until(pilot, lambda: "● WATCHING" in screen_text(console), f"{place}: live again")
            while len(console.screen_stack) > 1:
                console.pop_screen()
            await pilot.pause()
            engine.noted.clear()


async def test_f12_waits_for_nobody_and_is_seen_at_once(console: ConsoleApp, engine: StandIn) -> None:
    hang = threading.Event()
    engine.safety.stop = lambda reason, by: hang.wait(10)  # type: ignore[method-assign]
    async with running(console, "f12") as pilot:
        await pilot.pause()
        assert "STOPPED" in screen_text(console)
        hang.set()


@pytest.mark.long
async def test_f12_before_the_engine_is_open_stops_as_soon_as_it_is(home: Home) -> None:
    opened, engine = threading.Event(), StandIn()
    app = ConsoleApp(lambda: (opened.wait(10), engine)[1], home, [], now=lambda: NOW)  # type: ignore[arg-type, return-value]
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("f12")
        opened.set()
        await until(pilot, lambda: any(call[0] == "stop" for call in engine.noted))


async def test_a_stop_that_fails_says_what_else_stops(console: ConsoleApp, engine: StandIn) -> None:
    engine.refuse["stop"] = Refusal("failed", "the database is full")
    async with running(console, "f12", notifications=True) as pilot:
        await wait_for_text(pilot, "clawpy stop")
        assert "STOPPED" not in screen_text(console)
        await pilot.press("R")  # nothing to resume
        assert not any(call[0] == "resume" for call in engine.noted)
        await pilot.press("f12")
        await until(pilot, lambda: any(hold.word == "stop" for hold in console.state.holds))


async def test_one_key_resumes_on_every_screen(console: ConsoleApp, engine: StandIn) -> None:
    async with running(console, "R") as pilot:
        assert not any(call[0] == "resume" for call in engine.noted)  # nothing to lift
        await pilot.press("f12")
        await until(pilot, lambda: console.state.holds)
        await wait_for_text(pilot, "Press R to resume")
        await pilot.press("R", "R", "enter")
        assert not any(call[0] == "resume" for call in engine.noted)  # Enter gives the safe answer
        await pilot.press("R", "y")
        await until(pilot, lambda: ("resume", "stop") in engine.noted)
        await until(pilot, lambda: "STOPPED" not in screen_text(console))


async def test_what_was_said_of_a_stop_goes_when_it_is_lifted(console: ConsoleApp, engine: StandIn) -> None:
    async with running(console, notifications=True) as pilot:
        engine.bus.publish(HoldPlaced(subject="stop", reason="F12 pressed in the console"))
        engine.bus.publish(CostWarned(subject="hour", window="hour", spent=1_600_000, cap=2_000_000))
        await until(pilot, lambda: "stop: F12 pressed" in screen_text(console) and "cost: 80 %" in screen_text(console))
        engine.bus.publish(HoldLifted(subject="stop", reason="resumed by you"))
        await wait_for_text(pilot, "The stop ended.")
        await pilot.pause()
        assert "stop: F12 pressed" not in screen_text(console)
        assert "cost: 80 %" in screen_text(console)  # which is as true as before


async def test_a_card_that_a_stop_refused_says_so_until_that_is_lifted(console: ConsoleApp, engine: StandIn) -> None:
    engine.refuse["approve"] = Refusal("blocked", "kill: stop: lunch", "fix the cause")
    async with running(console, "f12") as pilot:
        await until(pilot, lambda: console.state.holds)
        await pilot.press("right")
        await wait_for_text(pilot, "✗ kill: stop: lunch")
        console.resume("stop")
        await until(pilot, lambda: not console.state.holds and "kill: stop: lunch" not in screen_text(console))


async def test_what_no_hold_refused_stays_told(console: ConsoleApp, engine: StandIn) -> None:
    """The settings, or the API's toggle: nothing that is lifted here ends what was said."""
    why = "kill: crossPollEnabled is false in the settings"
    engine.refuse["approve"] = Refusal("blocked", why, "lift that")
    async with running(console, "right") as pilot:
        await wait_for_text(pilot, f"✗ {why}")
        console.screen.draw(frozenset({"cards"}))
        await pilot.pause()
        assert f"✗ {why}" in screen_text(console)


async def test_switches_ask_before_they_are_turned_on(console: ConsoleApp, engine: StandIn) -> None:
    async with running(console, "6", "tab", "tab", "down", "enter", "enter") as pilot:
        assert not any(call[0] == "set" for call in engine.noted)
        await pilot.press("enter", "y")
        await until(pilot, lambda: ("set", "autonomousModeEnabled", True) in engine.noted)
        await pilot.press("up", "enter")
        await until(pilot, lambda: ("set", "crossPollEnabled", False) in engine.noted)


# Leaving the console: the engine ends with it, or goes on without it (SPEC 7.5).


@pytest.fixture
def consoles(home: Home, engine: StandIn) -> Iterator[Consoles]:
    consoles = Consoles(lambda: engine, home, owns_engine=True)  # type: ignore[arg-type, return-value]
    yield consoles
    consoles.close()
    consoles.release_clients()


@pytest.mark.long
@pytest.mark.parametrize(("key", "kept"), [("Q", False), ("k", True)])
async def test_leaving_asks_whether_the_engine_goes_on(
    home: Home, engine: StandIn, consoles: Consoles, key: str, kept: bool
) -> None:
    app = make_console(home, lambda: engine, consoles=consoles)
    async with app.run_test(size=(100, 30)) as pilot:
        await live(pilot)
        assert app.state.running, "the still engine has a running session"
        await pilot.press("ctrl+q")
        await until(pilot, lambda: isinstance(app.screen, Question))
        await pilot.press("enter")  # the safe answer: it stays
        await until(pilot, lambda: not isinstance(app.screen, Question))
        assert app.is_running
        await pilot.press("ctrl+q")
        await until(pilot, lambda: isinstance(app.screen, Question))
        await pilot.press(key)
        await until(pilot, lambda: not app.is_running or app._exit)
    assert consoles.keeps_running is kept


async def test_nothing_is_asked_while_the_engine_stays_anyway(home: Home, engine: StandIn) -> None:
    """That of `clawpy run`, or one that has another console."""
    consoles = Consoles(lambda: engine, home, owns_engine=False)  # type: ignore[arg-type, return-value]
    app = make_console(home, lambda: engine, consoles=consoles)
    async with app.run_test(size=(100, 30)) as pilot:
        await live(pilot)
        await pilot.press("ctrl+q")
        await until(pilot, lambda: not app.is_running or app._exit)
    consoles.close()
    consoles.release_clients()
