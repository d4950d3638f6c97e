"""Undo of decisions on cards, one key for each, also while the engine is slow (SPEC 2.7, 9.2)."""

from dataclasses import replace

import pytest

from clawpy_console.app import ConsoleApp
from engine.model import Card, Status
from tests.console.card_steps import FIRST, SECOND, change_cards, find_front_id, find_stack, in_front, with_first_card
from tests.console.driving import is_reading, read_toasts, running, until
from tests.console.stand_in import StandIn
from tests.console.stories import (
    Given,
    Stories,
    Until,
    called,
    carry_out,
    find_calls,
    find_stand_in,
    hides,
    hold_back,
    make_story_test,
    press,
    refused,
    sees,
)


def has_undone(*ids: str) -> Until:
    """The decisions of these cards were undone, in this order."""
    return Until(f"{ids}", lambda app: [id for _, id, *_ in find_calls(find_stand_in(app), "undo")] == [*ids])


NO_UNDO_RUNS = Until("no undo of an approval", lambda app: not app.cards._undoes_approval)


def leave_a_landing(engine: StandIn):
    """The first undo leaves a landing of a card that has run."""
    undo = engine.cards.undo

    def undo_one(id: str) -> tuple[Card, int]:
        engine.cards.undo = undo
        return replace(undo(id)[0], status=Status.EXECUTED, note="1 landing undone, 1 left"), 1

    engine.cards.undo = undo_one


LINT_OFF = "“lint” cards are switched off in shop"

STORIES: Stories = {
    "undo takes back the last decision, then the one before": (
        press("left left"),
        called("dismiss", SECOND),
        sees("CARDS  1 of 3"),
        press("u u"),
        has_undone(SECOND, FIRST),
        sees("CARDS  1 of 5"),
        press("u"),
        sees("Nothing to undo."),
    ),
    "each undo of a card with two landings undoes one of them, then the next undoes the decision before": (
        Given(leave_a_landing),
        press("left right"),
        called("approve", SECOND, None),
        press("u"),
        sees("1 landing undone, 1 left · Undo: u"),
        press("u"),
        has_undone(SECOND, SECOND),
        NO_UNDO_RUNS,
        press("u"),
        has_undone(SECOND, SECOND, FIRST),
    ),
    "an undo that is refused leaves again with its reason": (
        refused("undo", "it ran to its end already"),
        press("left"),
        called("dismiss", FIRST),
        press("u"),
        in_front(SECOND),
        sees("it ran to its end already", "CARDS  1 of 4"),
    ),
    "undo is not offered for what only reads": (
        press("j right"),
        sees("✓ Started: Run the tests"),
        hides("Undo: u"),
    ),
    "the key of undo is not offered for what it cannot undo": (
        with_first_card(check_only=False, gives_change_set=False, undo_note="land the change again"),
        press("right"),
        sees("✓ Started:", "Undo: land the change again"),
        hides("Undo: u"),
    ),
    "a kind that a reason switches off is told with the way back": (
        with_first_card(note=LINT_OFF),
        press("left v"),
        sees(f"{LINT_OFF} · Undo: u"),
        press("u"),
        has_undone(FIRST),
        in_front(FIRST),
    ),
}


test_story = pytest.mark.long(make_story_test(STORIES))


@pytest.mark.long
async def test_an_undone_card_is_in_front_at_once_and_stays(console: ConsoleApp, engine: StandIn):
    answered = hold_back(engine.cards, "snooze")
    async with running(console, "s", "u") as pilot:
        assert find_front_id(console) == FIRST
        assert not find_calls(engine, "snooze", "undo")  # nothing has reached the engine yet
        console.reload(["cards"])
        answered.set()
        await until(pilot, lambda: find_calls(engine, "undo") and not is_reading(console))
        assert [call[0] for call in find_calls(engine, "snooze", "undo")] == ["snooze", "undo"]
        assert (find_front_id(console), len(find_stack(console).cards)) == (FIRST, 5)
        await carry_out(pilot, change_cards(None, FIRST), in_front(SECOND))  # what was taken back does not outlive that


@pytest.mark.long
@pytest.mark.parametrize("decision", ["left", "right"])
async def test_an_undo_undoes_no_decision_that_was_made_after_its_key(
    console: ConsoleApp, engine: StandIn, decision: str
):
    answered = hold_back(engine.cards, "undo")
    async with running(console, decision, "u", "u", notifications=True) as pilot:
        await carry_out(pilot, in_front(FIRST), press("left"), in_front(SECOND))
        answered.set()
        await until(pilot, lambda: not console.cards._overrides)
        assert (find_calls(engine, "undo"), find_front_id(console)) == ([("undo", FIRST)], SECOND)
        assert ("Undo is still running." in read_toasts(console)) is (decision == "right")
