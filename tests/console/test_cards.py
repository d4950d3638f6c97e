"""The stack of cards: its keys, decisions, checks for new cards, and what is said after them (SPEC 9.2)."""

from dataclasses import replace

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.screens.card_view import describe_work
from engine.model import GateRuleName, RailVerdict, Verdict
from tests.console import stand_in_data
from tests.console.card_steps import (
    BLOG_CARD,
    CHECK_CARD,
    FIRST,
    FOLLOW_UP_CARD,
    NEW_CARD,
    RISK_SHOWN,
    RISKY,
    SECOND,
    engine_replaces_cards,
    find_front_id,
    find_stack,
    in_front,
    shows_tiers,
)
from tests.console.driving import read_lines, read_screen, running, until
from tests.console.stand_in import StandIn
from tests.console.stories import (
    Given,
    Stories,
    called,
    carry_out,
    cursor,
    find_calls,
    make_story_test,
    never_called,
    press,
    sees,
)
from tests.support import read_table

TABLE = read_table(__file__)


UNDECIDED = never_called("approve", "dismiss", "snooze")


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
    "a new card does not take the place of a card that was chosen": (
        press("j"),
        engine_replaces_cards(NEW_CARD),
        sees("CARDS  3 of 6"),
        in_front(SECOND),
    ),
    "until a key is pressed the first card is in front": (
        engine_replaces_cards(NEW_CARD),
        sees("CARDS  1 of 6"),
        in_front(NEW_CARD.id),
    ),
    "the next step of a result comes in front": (
        press("right"),
        in_front(SECOND),
        engine_replaces_cards(FOLLOW_UP_CARD),
        in_front(FOLLOW_UP_CARD.id),
    ),
    "nor while its details were open, after another pane had the focus, or while its risk is shown": (
        press("enter"),
        engine_replaces_cards(NEW_CARD),
        press("escape"),
        in_front(FIRST),
        press("left left right"),
        in_front(RISKY),
        engine_replaces_cards(FOLLOW_UP_CARD),
        in_front(RISKY),
        RISK_SHOWN,
    ),
}


test_story = pytest.mark.long(make_story_test(STORIES))


@pytest.mark.parametrize("key, call", TABLE["decisions"])
async def test_a_decision_shows_the_next_card_at_once(console: ConsoleApp, engine: StandIn, key: str, call: str):
    async with running(console) as pilot:
        assert find_front_id(console) == FIRST
        await pilot.press(key)
        assert find_front_id(console) == SECOND  # at once, before the engine answered
        await until(pilot, lambda: all(card.id != FIRST for card in console.state.cards))
        assert [item[:2] for item in find_calls(engine, "approve", "dismiss", "snooze")] == [(call, FIRST)]
        assert find_front_id(console) == SECOND


async def test_keys_are_ignored_for_a_moment_after_the_engine_replaced_the_card(console: ConsoleApp):
    async with running(console) as pilot:
        seconds = 100.0
        find_stack(console).clock = lambda: seconds
        await carry_out(pilot, engine_replaces_cards(None, FIRST), in_front(SECOND))
        for passed, card_in_front in ((0.399, SECOND), (0.002, RISKY), (0.0, CHECK_CARD)):
            seconds += passed
            await pilot.press("left")
            assert find_front_id(console) == card_in_front


async def test_only_a_pending_card_is_chosen(console: ConsoleApp):
    async with running(console):
        stack = find_stack(console)
        stack.select("pred_gone")
        assert stack.chosen_id == ""
        stack.cards = ()
        stack.action_turn(1)


HOSTILE = [
    "[/foo] [b]bold", "[@click=app.quit]x[/]", "a [link=http://x]b", "漢字 🎉 👩‍👩‍👧‍👦 e\u0301", "x" * 4000,
    "$accent $ %s {0}",
]  # fmt: skip


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_hostile_text_is_shown_literally_and_breaks_no_column(
    console: ConsoleApp, engine: StandIn, size: tuple[int, int]
):
    card = engine.cards.all[FIRST]
    async with running(console, size=size) as pilot:
        for text in HOSTILE:
            hostile = {
                "assignment": replace(card.assignment, prompt=text), "reasoning": text, "note": text, "undo_note": text,
                "signals": (replace(card.signals[4], evidence=(text,)),),
                "verdicts": (RailVerdict("content", Verdict.BLOCK, text, text),),
            }  # fmt: skip
            await carry_out(pilot, engine_replaces_cards(replace(card, **hostile), FIRST))
            await until(pilot, lambda text=text: find_stack(console).front.assignment.prompt == text)
            await pilot.pause()
            assert {sum(segment.cell_length for segment in line) for line in read_lines(console)} == {size[0]}
            assert text[:12].split(" 🎉")[0] in read_screen(console)
        await pilot.press("enter", "escape")


@pytest.mark.parametrize(
    "check_only, words", [(True, "only checks, without a sandbox"), (False, "you land the changes")]
)
def test_nothing_that_runs_without_a_sandbox_is_called_read_only(check_only: bool, words: str):
    assert "read-only" in describe_work(stand_in_data.make_card(1, "x"))
    waived = RailVerdict("gate", Verdict.ALLOW, "the settings allow that", GateRuleName.SANDBOX_WAIVED)
    assert words in describe_work(stand_in_data.make_card(1, "x", check_only=check_only, verdicts=(waived,)))
