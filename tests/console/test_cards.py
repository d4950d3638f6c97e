"""The stack of cards: its keys, decisions, checks for new cards, and what is said after them (SPEC 9.2)."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from textual.events import Key

from clawpy_console.app import ConsoleApp
from engine.model import Card, CheckReport
from tests.console.card_steps import (
    BLOG_CARD,
    FIRST,
    NEW,
    RISKY,
    SECOND,
    find_front_id,
    find_stack,
    in_front,
    shows_tiers,
    with_first_card,
)
from tests.console.driving import read_screen, read_toasts, running, until
from tests.console.stand_in import StandIn
from tests.console.stories import (
    Given,
    Stories,
    called,
    carry_out,
    cursor,
    find_calls,
    hides,
    make_story_test,
    never_called,
    press,
    sees,
)

UNDECIDED = never_called("approve", "dismiss", "snooze")


def next_check_finds(cards: Callable[[StandIn], tuple[Card, ...]]) -> Given:
    """The next check makes these cards."""

    def change(engine: StandIn):
        report = CheckReport(created=cards(engine))
        engine.checks.run = lambda *, requested: report

    return Given(change)


OF_OTHER_SUBJECT = replace(NEW, subject="another subject")

STORIES: Stories = {
    "a snooze says until when": (press("up"), sees("↑ Snoozed until 16:12: HEAD is red")),
    "words after a / that opens no field decide nothing, until another key": (
        press("slash s l o w"),
        sees("/ does nothing on this screen"),
        UNDECIDED,
        in_front(FIRST),
        press("escape s"),
        called("snooze", FIRST),
    ),
    "dismissing a card with a note says what was dismissed": (
        with_first_card(note="content: deletes everything"),
        press("left"),
        called("dismiss", FIRST),
        sees("← Dismissed:", "Undo: u"),
        hides("content: deletes everything"),
    ),
    "down, j, k, g and G show another card, and keys decide the one that is shown": (
        sees("CARDS  1 of 5"),
        shows_tiers("AT RISK", "BLOCKS", "BLOCKS", "CHECK", "UPKEEP"),
        press("j down"),
        sees("CARDS  3 of 5"),
        in_front(RISKY),
        cursor("#cards", RISKY),
        press("k"),
        in_front(SECOND),
        press("k k"),
        sees("CARDS  5 of 5"),
        press("g"),
        in_front(FIRST),
        press("G"),
        sees("CARDS  5 of 5"),
        UNDECIDED,
        press("j j left"),
        called("dismiss", SECOND),
        sees("CARDS  2 of 4"),
        cursor("#cards", RISKY),
    ),
    "cards of one workspace, and a check for new ones": (
        press("p"),
        called("check", True),
        sees("Nothing new."),
        press("w w"),
        in_front(BLOG_CARD),
        sees("only blog"),
        press("w"),
        sees("of 5"),
    ),
    "a check counts no card that replaces one with other facts": (
        next_check_finds(
            lambda engine: (
                replace(engine.cards.all[FIRST], id="pred_000000000088", fingerprint="new"),
                OF_OTHER_SUBJECT,
            )
        ),
        press("p"),
        sees("1 new card."),
    ),
    "an empty stack says when the next check is": (
        Given(lambda engine: engine.cards.all.clear()),
        sees("Next check: 14:30"),
        press("right left up enter"),
        UNDECIDED,
    ),
    "a card on screen counts as shown once": (
        press("left"),
        called("mark_shown", SECOND),
        called("mark_shown", FIRST),
    ),
    "a reason belongs to the last dismissal": (
        press("left left x"),
        called("explain", SECOND, "wrong"),
        called("explain", FIRST, "wrong", times=0),
    ),
}


test_story = pytest.mark.long(make_story_test(STORIES))


@pytest.mark.parametrize(
    "key, call",
    [("right", "approve"), ("l", "approve"), ("left", "dismiss"), ("h", "dismiss"), ("up", "snooze"), ("s", "snooze")],
)
async def test_a_decision_shows_the_next_card_at_once(console: ConsoleApp, engine: StandIn, key: str, call: str):
    async with running(console) as pilot:
        assert find_front_id(console) == FIRST
        await pilot.press(key)
        assert find_front_id(console) == SECOND  # at once, before the engine answered
        await until(pilot, lambda: all(card.id != FIRST for card in console.state.cards))
        assert [item[:2] for item in find_calls(engine, "approve", "dismiss", "snooze")] == [(call, FIRST)]
        assert find_front_id(console) == SECOND


@pytest.mark.parametrize(
    "size", [(120, 40), pytest.param((80, 24), marks=pytest.mark.long), pytest.param((200, 60), marks=pytest.mark.long)]
)
async def test_a_click_on_a_row_shows_its_card_and_a_second_one_its_details(console: ConsoleApp, size: tuple[int, int]):
    async with running(console, size=size) as pilot:

        async def click(text: str):
            lines = read_screen(console).split("\n")
            y = max(number for number, line in enumerate(lines) if text in line)
            await pilot.click(offset=(lines[y].rindex(text) + 1, y))

        await pilot.press("escape", *(["tab"] if size[0] > 80 else []))  # on a narrow terminal another pane hides them
        await click("Rehearse merging")
        await carry_out(pilot, in_front(RISKY), sees("CARDS  3 of 5"))
        assert find_stack(console).has_focus  # the keys of the cards work at once
        await click("Rehearse merging")
        await carry_out(pilot, sees("Card details"), press("escape"))
        await click("← dismiss")  # a key of the footer
        await carry_out(pilot, called("dismiss", RISKY))


@pytest.mark.long
async def test_alt_and_a_letter_is_not_said_to_be_the_key_of_the_letter(console: ConsoleApp):
    async with running(console, notifications=True) as pilot:
        console.post_message(Key("alt+n", "n"))
        await pilot.press("slash")
        await until(pilot, lambda: "/ does nothing on this screen" in read_toasts(console))
        assert "new prompt" not in read_toasts(console)
