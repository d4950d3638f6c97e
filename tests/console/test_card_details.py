"""The details of a card: why it is there, and its parameters edited before it is approved."""

from __future__ import annotations

import dataclasses
import itertools

from clawpy_console.app import ConsoleApp
from clawpy_console.screens.mission.details import show_details
from engine.model import (
    Phase,
)
from tests.console import stand_in
from tests.console.cards import FIRST, RISKY, SECOND, calls_of, front, stack
from tests.console.conftest import running, screen_text, until, wait_for_text
from tests.console.stand_in import StandIn
from tests.support.texts import assert_contains


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
