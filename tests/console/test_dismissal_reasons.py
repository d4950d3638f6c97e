"""Just after a dismissal a key says why."""

from __future__ import annotations

import dataclasses

import pytest

from clawpy_console.app import ConsoleApp
from tests.console.cards import FIRST, SECOND, calls_of, front, shown, stack
from tests.console.conftest import running, screen_text, until, wait_for_text
from tests.console.stand_in import StandIn


@pytest.mark.parametrize(
    ("key", "reason"),
    [("1", "not-now"), ("2", "wrong"), ("3", "already-done"), ("4", "never-here"), ("5", "never-anywhere")],
)
async def test_a_key_just_after_a_dismissal_says_why(
    console: ConsoleApp, engine: StandIn, key: str, reason: str
) -> None:
    async with running(console, "left", key, size=(80, 24)) as pilot:
        await until(pilot, lambda: calls_of(engine, "explain"))
        assert calls_of(engine, "dismiss", "explain") == [("dismiss", FIRST), ("explain", FIRST, reason)]
        assert console.current_mode == "mission"  # the digit led to no other screen
        await wait_for_text(pilot, f"noted: {reason.replace('-', ' ')}")
        await pilot.press("2")
        assert console.current_mode == "work"  # once said, digits lead to screens again


async def test_a_kind_that_a_reason_switches_off_is_told_with_the_way_back(
    console: ConsoleApp, engine: StandIn
) -> None:
    engine.cards.all[FIRST] = dataclasses.replace(engine.cards.all[FIRST], note="“lint” cards are switched off in shop")
    async with running(console, "left", "4", size=(200, 60)) as pilot:
        told = "“lint” cards are switched off in shop · Undo: u"
        message = console.screen.query_one("#message")
        await until(pilot, lambda: told in shown(console, message.region).replace("  ", " "))
        await pilot.press("u")
        await until(pilot, lambda: calls_of(engine, "undo"))
        assert front(console) == FIRST


@pytest.mark.long
@pytest.mark.parametrize("between", ["j", "u", "wait"])
async def test_without_a_dismissal_just_before_a_digit_is_a_screen(
    console: ConsoleApp, engine: StandIn, between: str
) -> None:
    async with running(console) as pilot:
        moment = [0.0]
        stack(console).clock = lambda: moment[0]
        await pilot.press("j" if between == "j" else "left")
        if between == "u":
            await pilot.press("u")
        moment[0] += 60.0
        await pilot.press("4")
        assert console.current_mode == "memory"
        assert not calls_of(engine, "explain")


@pytest.mark.long
@pytest.mark.parametrize("key", ["j", "k", "w", "tab", "7"])
async def test_any_other_key_ends_the_time_for_a_reason(console: ConsoleApp, engine: StandIn, key: str) -> None:
    async with running(console, "left") as pilot:
        await wait_for_text(pilot, "5 never")
        await pilot.press(key)
        await until(pilot, lambda: "5 never" not in screen_text(console))
        await pilot.press("4")
        assert console.current_mode == "memory"
        assert not calls_of(engine, "explain")


async def test_a_reason_belongs_to_the_last_dismissal(console: ConsoleApp, engine: StandIn) -> None:
    async with running(console, "left", "left", "2") as pilot:
        await until(pilot, lambda: calls_of(engine, "explain"))
        assert calls_of(engine, "explain") == [("explain", SECOND, "wrong")]
