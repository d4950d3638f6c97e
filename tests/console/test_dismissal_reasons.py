"""Just after a dismissal a key says why."""

from __future__ import annotations

import dataclasses

import pytest

from clawpy_console.app import ConsoleApp
from tests.console.cards import FIRST, SECOND, front, named, shown, stack
from tests.console.conftest import live, screen_text, until
from tests.console.stand_in import StandIn


@pytest.mark.parametrize(
    ("key", "reason"),
    [("1", "not-now"), ("2", "wrong"), ("3", "already-done"), ("4", "never-here"), ("5", "never-anywhere")],
)
async def test_a_key_just_after_a_dismissal_says_why(
    console: ConsoleApp, engine: StandIn, key: str, reason: str
) -> None:
    async with console.run_test(size=(80, 24)) as pilot:
        await live(pilot)
        await pilot.press("left", key)
        await until(pilot, lambda: named(engine, "explain"))
        assert named(engine, "dismiss", "explain") == [("dismiss", FIRST), ("explain", FIRST, reason)]
        assert console.current_mode == "mission"  # the digit led to no other screen
        await until(pilot, lambda: f"noted: {reason.replace('-', ' ')}" in screen_text(console))
        await pilot.press("2")
        assert console.current_mode == "work"  # once said, digits lead to screens again


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_all_reasons_are_offered_at_every_width(console: ConsoleApp, size: tuple[int, int]) -> None:
    async with console.run_test(size=size) as pilot:
        await live(pilot)
        await pilot.press("left")
        await until(pilot, lambda: "5 never" in screen_text(console))
        assert all(word in screen_text(console) for word in ("1 not now", "2 wrong", "3 done", "4 never here"))


async def test_a_kind_that_a_reason_switches_off_is_told_with_the_way_back(
    console: ConsoleApp, engine: StandIn
) -> None:
    engine.cards.all[FIRST] = dataclasses.replace(engine.cards.all[FIRST], note="“lint” cards are switched off in shop")
    async with console.run_test(size=(200, 60)) as pilot:
        await live(pilot)
        await pilot.press("left", "4")
        told = "“lint” cards are switched off in shop · Undo: u"
        message = console.screen.query_one("#message")
        await until(pilot, lambda: told in shown(console, message.region).replace("  ", " "))
        await pilot.press("u")
        await until(pilot, lambda: named(engine, "undo"))
        assert front(console) == FIRST


@pytest.mark.long
@pytest.mark.parametrize("between", ["j", "u", "wait"])
async def test_without_a_dismissal_just_before_a_digit_is_a_screen(
    console: ConsoleApp, engine: StandIn, between: str
) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        moment = [0.0]
        stack(console).clock = lambda: moment[0]
        await pilot.press("j" if between == "j" else "left")
        if between == "u":
            await pilot.press("u")
        moment[0] += 60.0
        await pilot.press("4")
        assert console.current_mode == "memory"
        assert not named(engine, "explain")


@pytest.mark.long
@pytest.mark.parametrize("key", ["j", "k", "w", "tab", "7"])
async def test_any_other_key_ends_the_time_for_a_reason(console: ConsoleApp, engine: StandIn, key: str) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        await pilot.press("left")
        await until(pilot, lambda: "5 never" in screen_text(console))
        await pilot.press(key)
        await until(pilot, lambda: "5 never" not in screen_text(console))
        await pilot.press("4")
        assert console.current_mode == "memory"
        assert not named(engine, "explain")


async def test_a_reason_belongs_to_the_last_dismissal(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        await pilot.press("left", "left", "2")
        await until(pilot, lambda: named(engine, "explain"))
        assert named(engine, "explain") == [("explain", SECOND, "wrong")]
