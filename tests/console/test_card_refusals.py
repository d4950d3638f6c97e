"""Cards that a rail or the engine holds back: what they say, and which key still approves them (SPEC 3.1, 9.2)."""

from dataclasses import replace

import pytest

from clawpy_console.app import ConsoleApp
from engine.model import RailVerdict, Refusal, Status, Verdict
from tests.console.card_steps import ARMED, FIRST, RISKY, SECOND, find_stack, in_front, with_first_card
from tests.console.driving import running, until
from tests.console.stand_in import StandIn
from tests.console.stories import (
    Stories,
    called,
    find_stand_in,
    hides,
    make_story_test,
    never_called,
    on_screen,
    press,
    read_text_in,
    refused,
    sees,
)


def approve_elsewhere(app: ConsoleApp):
    """Another console approves the first card."""
    cards = find_stand_in(app).cards
    cards.all[FIRST] = replace(cards.all[FIRST], status=Status.APPROVED)


BLOCKED_BY_CONTENT = RailVerdict("content", Verdict.BLOCK, "deletes everything", "test-rule")
TOUCHES_PRODUCTION = RailVerdict("gate", Verdict.ASK, "touches production: branch main", "production")
CAP_REACHED = "the hour's cap is reached"

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
    "A says what approves a card that is not risky": (
        press("A"),
        sees("No risk here: → approves it."),
        press("left left A"),
        sees("→ shows the risk first."),
        never_called("approve"),
    ),
    "a card that the content rail blocks says on itself and after A how to run it": (
        with_first_card(verdicts=(BLOCKED_BY_CONTENT,)),
        sees("✗ content would block: deletes everything. To run it once: →, then 6"),
        press("A"),
        sees("The rail “content” blocks it. To run it once: →, then 6 ⇥ a"),
        hides("No risk here"),
    ),
    "a risky card that the content rail blocks names the second key too": (
        with_first_card(verdicts=(TOUCHES_PRODUCTION, BLOCKED_BY_CONTENT)),
        sees("To run it once: → A,"),
        press("right"),
        sees("▲ risky: A tries it; content would block it"),
        press("A"),
        called("approve", FIRST, None),
    ),
    "a card that another rail blocks names the screen of the rails": (
        with_first_card(verdicts=(RailVerdict("cost", Verdict.BLOCK, "the cap is reached", "the cap is reached"),)),
        press("A"),
        sees("The rail “cost” blocks it. 6 shows the rails."),
        hides("No risk here"),
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
    "an error goes with the screen": (
        refused("approve", CAP_REACHED),
        press("right"),
        sees(f"✗ {CAP_REACHED}"),
        press("2"),
        on_screen("work"),
        press("1"),
        on_screen("mission"),
        hides(f"✗ {CAP_REACHED}"),
    ),
}


test_story = pytest.mark.long(make_story_test(STORIES))


REFUSAL_REASON = (
    "the content filter would stop it: it deletes outside the workspace, where nothing of a session is undone"
)
FIX = (
    "edit its prompt in the details so that it names a folder of the workspace, or allow exactly this once on screen 6"
)


@pytest.mark.long
@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
@pytest.mark.parametrize("key", ["approve", "undo"])
async def test_a_refusal_is_shown_whole(console: ConsoleApp, engine: StandIn, key: str, size: tuple[int, int]):
    engine.refuse[key] = Refusal("blocked", REFUSAL_REASON, FIX)
    async with running(console, *(["right"] if key == "approve" else ["left", "u"]), size=size) as pilot:
        message = console.screen.query_one("#message")
        await until(pilot, lambda: read_text_in(console, message.region) == f"✗ {REFUSAL_REASON} ({FIX})")
        assert find_stack(console).region.height >= 9
        await until(pilot, find_stack(console)._can_decide)
        await pilot.press("left")
        await until(pilot, lambda: message.region.height == 1)
