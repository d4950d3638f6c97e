"""Decisions on cards and in their details: what a rail holds back, edits, undo, reasons (SPEC 2.5, 2.7, 3.1, 9.2)."""

from dataclasses import replace

import pytest

from clawpy_console.app import ConsoleApp
from engine.model import ALREADY_REVIEWED, Phase, RailVerdict, Status, Verdict
from tests.console.card_steps import (
    FIRST,
    RISK_SHOWN,
    RISKY,
    SECOND,
    engine_replaces_cards,
    find_front_id,
    find_stack,
    in_front,
    shows_tiers,
    with_first_card,
)
from tests.console.driving import is_reading, running, until
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import read_stack
from tests.console.stories import (
    CLOSED,
    Given,
    Step,
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


EDITOR = Until("the editor", lambda app: app.screen.query("#editor:focus"))

MISSING = "bisect needs test and good"

PATHS = 'paths = ["shop/cart.py", "shop/price.py", "shop/tax.py"]'
"""The parameters of the second card."""


def forget_decisions(engine: StandIn):
    """The Twin has not learned enough yet to state a confidence."""
    engine.cards.all = {card.id: card for card in read_stack(stated=False)}
    engine.phase = Phase(0, 3, "the Twin starts after 30 of your decisions", 30)


def make_two_risky(engine: StandIn):
    """The first two cards are as risky as the third."""
    for id in (FIRST, SECOND):
        engine.cards.all[id] = replace(engine.cards.all[id], verdicts=engine.cards.all[RISKY].verdicts)


def approve_elsewhere(app: ConsoleApp):
    """Another console approves the first card."""
    cards = find_stand_in(app).cards
    cards.all[FIRST] = replace(cards.all[FIRST], status=Status.APPROVED)


def write(text: str) -> Step:
    """Replace the text in the editor."""
    return lambda app: setattr(app.screen.query_one("#editor"), "text", text)


STORIES: Stories = {
    "a risky card needs its own second key, and never Enter": (
        press("left left"),
        in_front(RISKY),
        sees("touches production"),
        press("A right right l"),
        in_front(RISKY),
        RISK_SHOWN,
        press("enter enter escape"),
        never_called("approve"),
        in_front(RISKY),
        press("right A"),
        called("approve", RISKY, None),
    ),
    "a card that the content rail blocks says how to run it": (
        with_first_card(verdicts=(BLOCKED_BY_CONTENT,)),
        sees("✗ content would block: deletes everything. To run it once: →, then 6"),
        press("A"),
        sees("The rail “content” blocks it. To run it once: →, then 6 ⇥ a"),
    ),
    "a card that another rail blocks names the screen of the rails": (
        with_first_card(verdicts=(RailVerdict("cost", Verdict.BLOCK, "the cap is reached", "the cap is reached"),)),
        sees("✗ cost would block: the cap is reached. 6 shows the rails."),
    ),
    "a card that another console approved first does not come back": (
        refused("approve", "was already approved", code="already_decided"),
        approve_elsewhere,
        press("right"),
        sees("was approved elsewhere, and runs."),
        in_front(SECOND),
        hides("Undo: u"),
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
    "an undo that is refused leaves again with its reason, and is the next one to undo": (
        refused("undo", "the file is open elsewhere"),
        press("left"),
        called("dismiss", FIRST),
        press("left"),
        called("dismiss", SECOND),
        press("u"),
        in_front(RISKY),
        sees("the file is open elsewhere", "CARDS  1 of 3"),
        press("u"),
        has_undone(SECOND, SECOND),
        in_front(SECOND),
    ),
    "what can never be undone is not the next one to undo": (
        refused("undo", "it ran to its end already", code="nothing_to_undo"),
        press("left left"),
        called("dismiss", SECOND),
        press("u u"),
        has_undone(SECOND, FIRST),
    ),
    "a refused dismissal leaves it known which card was approved last": (
        refused("dismiss", "the disk is full"),
        press("j right"),
        called("approve", SECOND, None),
        press("g left"),
        sees("the disk is full"),
        Until("the last approval", lambda app: app.cards.last_approved_id == SECOND),
    ),
    "undo is not offered for what only reads": (press("j right"), sees("✓ Started: Run the tests"), hides("Undo: u")),
    "a review that would find the same again opens the details": (
        with_first_card(reasoning="It came in with “Upload”.\n  git commit --amend"),
        hides("git commit --amend"),
        refused("approve", "the same was reviewed already", code=ALREADY_REVIEWED),
        press("right"),
        sees("Card details", "  git commit --amend"),
    ),
    "details approve with edited parameters": (
        press("j enter e"),
        EDITOR,
        Until("parameters", lambda app: app.screen.query_one("#editor").text == PATHS),
        write('paths = ["shop/cart.py"]'),
        press("ctrl+s"),
        called("approve", SECOND, {"paths": ["shop/cart.py"]}),
        CLOSED,
        in_front(RISKY),
    ),
    "before the Twin has learned a card shows its tier, and no confidence": (
        Given(forget_decisions),
        shows_tiers("AT RISK", "BLOCKS", "CHECK", "CHECK", "UPKEEP"),
        hides("40%"),
        press("enter"),
        sees("PLACE IN THE STACK", "something is broken or about to be lost (group 1 of 4)"),
        hides("CONFIDENCE"),
    ),
    "details say why a card was moved, and what its confidence is made of": (
        hides("Learning"),
        press("j enter"),
        sees("moved up to “blocks”: you approved 19 of 19 like it"),
        sees("72%  SUGGESTED"),
        press("z end"),
        sees("sum         = 0.720"),
    ),
    "the risk of a card is not confirmed by that of the card before": (
        Given(make_two_risky),
        press("enter a"),
        sees("A approves it anyway"),
        press("escape j enter"),
        sees("Card details"),
        hides("A approves it anyway"),
        press("A"),
        never_called("approve"),
    ),
    "details say what a card lacks": (with_first_card(note=MISSING), press("enter"), sees(f"▲ {MISSING}")),
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
        await carry_out(
            pilot, engine_replaces_cards(None, FIRST), in_front(SECOND)
        )  # what was taken back does not outlive that


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


@pytest.mark.parametrize("steps", [(press("enter"), sees("Card details")), (sees("WHY"),)], ids=["details", "beside"])
async def test_the_evidence_names_the_hosts_that_the_work_may_reach(
    console: ConsoleApp, engine: StandIn, steps: tuple[Step, ...]
):
    engine.cards.describe_sandbox = lambda id: "bubblewrap, network only to pypi.org"
    await play(console, *steps, sees("network only to pypi.org"), size=(200, 60))
