"""A letter just after a dismissal is its reason (SPEC 9.2)."""

from dataclasses import replace

import pytest

from clawpy_console.app import ConsoleApp
from engine.model import Source
from tests.console.card_steps import FIRST, change_cards, find_stack
from tests.console.driving import running
from tests.console.stand_in import StandIn
from tests.console.stories import called, carry_out, hides, never_called, on_screen, play, press, sees

REASONS = {"t": "not-now", "x": "wrong", "d": "already-done", "v": "never-here", "V": "never-anywhere"}


@pytest.mark.parametrize("key", REASONS)
async def test_a_letter_just_after_a_dismissal_is_its_reason(console: ConsoleApp, key: str):
    await play(
        console,
        press(f"left {key}"),
        called("explain", FIRST, REASONS[key]),
        on_screen("mission"),
        sees(f"Noted: {REASONS[key].replace('-', ' ')}  ·  Undo: u"),
    )


async def test_a_dismissed_prompt_of_ones_own_is_not_asked_whether_it_never_comes_again(
    console: ConsoleApp, engine: StandIn
):
    async with running(console) as pilot:
        find_stack(console).clock = lambda: 0.0  # the question stays
        own = replace(engine.cards.all[FIRST], source=Source.OPERATOR)
        await carry_out(pilot, change_cards(own, FIRST))
        await pilot.press("left")
        await carry_out(pilot, sees("why?  t not now  x wrong  d done"), hides("never"))
        await carry_out(pilot, press("v"), never_called("explain"), hides("why?"))


@pytest.mark.long
@pytest.mark.parametrize("between", ["j", "k", "w", "tab", "7", "u", "wait", "no dismissal"])
async def test_any_other_key_ends_the_question_for_a_reason(console: ConsoleApp, between: str):
    async with running(console) as pilot:
        seconds = 0.0
        find_stack(console).clock = lambda: seconds
        await pilot.press("j" if between == "no dismissal" else "left")
        if between == "wait":
            seconds += 60.0
        elif between != "no dismissal":
            await carry_out(pilot, sees("V never"), press(between), hides("V never"))
        await carry_out(pilot, press("x"), never_called("explain"))
