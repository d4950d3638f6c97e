"""Decisions on cards: those that a rail holds back, undo, and reasons of dismissals (SPEC 2.7, 3.1, 9.2)."""

import pytest

from clawpy_console.app import ConsoleApp
from engine.model import RailVerdict, Verdict
from tests.console.card_steps import (
    ARMED,
    FIRST,
    RISKY,
    SECOND,
    change_cards,
    find_front_id,
    find_stack,
    in_front,
    with_first_card,
)
from tests.console.driving import is_reading, running, until
from tests.console.stand_in import StandIn
from tests.console.stories import (
    Stories,
    Until,
    called,
    carry_out,
    find_calls,
    find_stand_in,
    hides,
    hold_back,
    make_story_test,
    never_called,
    on_screen,
    play,
    press,
    refused,
    sees,
)

BLOCKED_BY_CONTENT = RailVerdict("content", Verdict.BLOCK, "deletes everything", "test-rule")
CAP_REACHED = "the hour's cap is reached"


def has_undone(*ids: str) -> Until:
    """The decisions of these cards were undone, in this order."""
    return Until(f"{ids}", lambda app: [id for _, id, *_ in find_calls(find_stand_in(app), "undo")] == [*ids])


STORIES: Stories = {
    "a risky card needs its own second key, and never Enter": (
        press("left left"),
        in_front(RISKY),
        sees("touches production"),
        press("A right right l"),
        in_front(RISKY),
        ARMED,
        press("enter enter escape"),
        never_called("approve"),
        in_front(RISKY),
        press("right A"),
        called("approve", RISKY, None),
    ),
    "a card that the content rail blocks says on itself and after A how to run it": (
        with_first_card(verdicts=(BLOCKED_BY_CONTENT,)),
        sees("✗ content would block: deletes everything. To run it once: →, then 6"),
        press("A"),
        sees("The rail “content” blocks it. To run it once: →, then 6 ⇥ a"),
        hides("No risk here"),
    ),
    "a card that another rail blocks names the screen of the rails": (
        with_first_card(verdicts=(RailVerdict("cost", Verdict.BLOCK, "the cap is reached", "the cap is reached"),)),
        press("A"),
        sees("The rail “cost” blocks it. 6 shows the rails."),
        hides("No risk here"),
    ),
    "a refusal brings the card back with its reason, which goes with the card": (
        refused("approve", CAP_REACHED),
        press("right"),
        in_front(FIRST),
        sees(f"✗ {CAP_REACHED}"),
        press("j"),
        hides(f"✗ {CAP_REACHED}"),
    ),
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
