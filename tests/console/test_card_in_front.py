"""Which card is in front when cards come, go and are decided (SPEC 9.2)."""

import pytest

from clawpy_console.app import ConsoleApp
from tests.console.card_steps import (
    ARMED,
    BLOG_CARD,
    CHECK,
    FIRST,
    NEW,
    NEXT_STEP,
    RISKY,
    SECOND,
    change_cards,
    find_front_id,
    find_stack,
    in_front,
)
from tests.console.driving import running
from tests.console.stories import Stories, Until, carry_out, make_story_test, press, sees


def has_read(card_id: str) -> Until:
    """The console has read this card, shown or not."""
    return Until(card_id, lambda app: any(card.id == card_id for card in app.state.cards))


STORIES: Stories = {
    "a new card does not take the place of a card that was chosen": (
        press("j"),
        change_cards(NEW),
        sees("CARDS  3 of 6"),
        in_front(SECOND),
    ),
    "nor of the card in front after a decision": (
        press("left"),
        in_front(SECOND),
        change_cards(NEW),
        sees("CARDS  2 of 5"),
        in_front(SECOND),
    ),
    "until a key is pressed the first card is in front": (change_cards(NEW), sees("CARDS  1 of 6"), in_front(NEW.id)),
    "the next step of a result comes in front": (
        press("right"),
        in_front(SECOND),
        change_cards(NEXT_STEP),
        in_front(NEXT_STEP.id),
    ),
    "the next step of a card that was approved in its details comes in front, too": (
        press("enter a"),
        in_front(SECOND),
        change_cards(NEXT_STEP),
        in_front(NEXT_STEP.id),
    ),
    "but not when its workspace is shown again": (
        press("w w"),
        in_front(BLOG_CARD),
        change_cards(NEXT_STEP),
        has_read(NEXT_STEP.id),
        press("w"),
        sees("of 6"),
        in_front(BLOG_CARD),
    ),
    "unless another card was chosen meanwhile": (
        press("right j"),
        in_front(RISKY),
        change_cards(NEXT_STEP),
        sees("CARDS  3 of 5"),
        in_front(RISKY),
    ),
    "nor while its details were open, after another pane had the focus, or while its risk is shown": (
        press("enter"),
        change_cards(NEW),
        press("escape"),
        in_front(FIRST),
        press("left left right"),
        in_front(RISKY),
        change_cards(NEXT_STEP),
        in_front(RISKY),
        ARMED,
    ),
    "a key that leaves the stack keeps its first card too": (
        press("tab"),
        change_cards(NEW),
        press("shift+tab"),
        in_front(FIRST),
    ),
    "the count is of what is pending: another is decided elsewhere": (
        press("j j"),
        change_cards(None, FIRST),
        sees("CARDS  2 of 4"),
        in_front(RISKY),
    ),
}


test_story = pytest.mark.long(make_story_test(STORIES))


async def test_keys_are_ignored_for_a_moment_after_the_engine_replaced_the_card(console: ConsoleApp):
    async with running(console) as pilot:
        seconds = 100.0
        find_stack(console).clock = lambda: seconds
        await carry_out(pilot, change_cards(None, FIRST), in_front(SECOND))
        for passed, card_in_front in ((0.399, SECOND), (0.002, RISKY), (0.0, CHECK)):
            seconds += passed
            await pilot.press("left")
            assert find_front_id(console) == card_in_front
