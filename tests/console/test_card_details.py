"""The details of a card: why it is there, and its parameters edited before it is approved."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.screens.mission.details import show_details
from engine.model import Phase
from tests.console import stand_in
from tests.console.conftest import running, screen_text, until, wait_for_text
from tests.console.stand_in import StandIn
from tests.console.stories import FIRST, RISKY, SECOND, calls_of, front, shown, stack
from tests.support.helpers import assert_contains


async def test_details_approve_with_edited_parameters(console: ConsoleApp, engine: StandIn) -> None:
    async with running(console, "j", "enter", "e") as pilot:
        editor = console.screen.query_one("#editor")
        await until(pilot, lambda: editor.has_focus)
        assert editor.text == 'paths = ["shop/cart.py", "shop/price.py", "shop/tax.py"]'
        editor.text = 'paths = ["shop/cart.py"]'
        await pilot.press("ctrl+s")
        await until(pilot, lambda: calls_of(engine, "approve"))
        assert calls_of(engine, "approve") == [("approve", SECOND, {"paths": ["shop/cart.py"]})]
        await until(pilot, lambda: len(console.screen_stack) == 1)
        assert front(console) == RISKY


async def test_before_the_twin_has_learnt_a_card_shows_its_tier_and_after_that_its_confidence(
    console: ConsoleApp, engine: StandIn
) -> None:
    engine.cards.all = {card.id: card for card in stand_in.cards(stated=False)}
    engine.phase = Phase(0, 3, "the Twin starts after 30 of your decisions", 30)
    async with running(console, size=(200, 60)) as pilot:
        await wait_for_text(pilot, "Learning: 3 of 30")
        text = screen_text(console)
        assert text.count("Learning") == 1
        assert [word in text for word in ("BROKEN", "BLOCKS", "CHECK", "UPKEEP")] == [True] * 4
        assert "40%" not in text
        await pilot.press("enter")
        await wait_for_text(pilot, "PLACE IN THE STACK")
        told = screen_text(console)
        assert_contains(told, "BROKEN: something is broken or about to be lost (group 1 of 4)", "Test that broke")
        assert "CONFIDENCE" not in told


async def test_details_say_why_a_card_was_moved_and_what_its_confidence_is_made_of(console: ConsoleApp) -> None:
    async with running(console, size=(120, 60)) as pilot:
        assert "Learning" not in screen_text(console)
        await pilot.press("j", "enter")
        await wait_for_text(pilot, "PLACE IN THE STACK")
        told = screen_text(console)
        assert_contains(
            told, "moved up to “blocks soon”: you approved 19 of 19 like it", "sum         = 0.720", "72%  SUGGESTED"
        )


async def test_details_say_what_a_card_lacks_where_it_can_be_given(console: ConsoleApp, engine: StandIn) -> None:
    lacks = "bisect needs test and good"
    engine.cards.all[FIRST] = dataclasses.replace(engine.cards.all[FIRST], note=lacks)
    async with running(console, "enter", size=(80, 30)) as pilot:
        await wait_for_text(pilot, "Card details")
        told = [line.strip(" │▃▅▆▇█") for line in screen_text(console).splitlines()]
        assert told.index(f"▲ {lacks}") < told.index("PLACE IN THE STACK")


async def test_details_have_no_heading_with_nothing_under_it(console: ConsoleApp) -> None:
    async with running(console, size=(120, 60)) as pilot:
        shown = stack(console).front
        await pilot.press("enter")
        await wait_for_text(pilot, "approved 6 of 7")
        assert "SIGNALS" in screen_text(console)
        await pilot.press("escape")
        bare = dataclasses.replace(shown, id="pred_bare", signals=(), verdicts=(), note="", reasoning="")
        bare = dataclasses.replace(bare, assignment=dataclasses.replace(bare.assignment, parameters={}))
        console.engine.cards.all[bare.id] = bare
        show_details(console, bare)
        await wait_for_text(pilot, "No parameters set. Write key = value")
        told = [line.strip(" │") for line in screen_text(console).splitlines()]
        assert "WORK" in told
        assert not [item for item, below in itertools.pairwise(told) if item.isupper() and not below]


async def test_details_hand_a_sentence_in_place_of_parameters_to_the_engine(
    console: ConsoleApp, engine: StandIn
) -> None:
    async with running(console, "enter", "e") as pilot:
        console.screen.query_one("#editor").text = "only the cart, and say why"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: bool(calls_of(engine, "approve")))
        assert "only the cart, and say why" in str(calls_of(engine, "approve"))


# Just after a dismissal a key says why.


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
