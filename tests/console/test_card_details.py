"""The details of a card: what they say, and its approval with an edited prompt or parameters (SPEC 2.5, 9.2)."""

from dataclasses import replace

import pytest

from clawpy_console.app import ConsoleApp
from engine.model import ALREADY_REVIEWED, Phase, RailVerdict, Verdict
from tests.console.card_steps import FIRST, RISKY, SECOND, in_front, shows_tiers, with_first_card
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import read_stack
from tests.console.stories import (
    CLOSED,
    Given,
    Step,
    Stories,
    Until,
    called,
    hides,
    make_story_test,
    never_called,
    play,
    press,
    refused,
    sees,
)

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


def write(text: str) -> Step:
    """Replace the text in the editor."""
    return lambda app: setattr(app.screen.query_one("#editor"), "text", text)


STORIES: Stories = {
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


@pytest.mark.parametrize("steps", [(press("enter"), sees("Card details")), (sees("WHY"),)], ids=["details", "beside"])
async def test_the_evidence_names_the_hosts_that_the_work_may_reach(
    console: ConsoleApp, engine: StandIn, steps: tuple[Step, ...]
):
    engine.cards.describe_sandbox = lambda id: "bubblewrap, network only to pypi.org"
    await play(console, *steps, sees("network only to pypi.org"), size=(200, 60))


async def test_without_learning_the_pane_is_short_and_the_details_are_not(console: ConsoleApp, engine: StandIn):
    verdicts = (
        RailVerdict("cost", Verdict.ALLOW, "costs $0.00"),
        RailVerdict("gate", Verdict.ASK, "not by itself; phase 0"),
    )
    engine.cards.preview_rails = lambda id: verdicts
    await play(
        console,
        Given(forget_decisions),
        sees("▲ not by itself", "✓ cost: no objection"),
        hides("phase 0", "(weight"),
        press("enter"),
        sees("also: phase 0", "cost       ✓ costs $0.00"),
        size=(200, 60),
    )
