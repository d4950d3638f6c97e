"""The details of a card: what they say, and its approval with an edited prompt or parameters (SPEC 2.5, 9.2)."""

from dataclasses import replace

import pytest
from textual.widgets import TextArea

from clawpy_console.app import ConsoleApp
from engine.model import ALREADY_REVIEWED, Phase, Refusal, Source
from tests.console import stand_in_data
from tests.console.card_steps import FIRST, RISKY, SECOND, in_front, shows_tiers, with_first_card
from tests.console.driving import read_toasts, running, until
from tests.console.stand_in import StandIn
from tests.console.stories import (
    CLOSED,
    Given,
    Step,
    Stories,
    Until,
    called,
    carry_out,
    hides,
    hold_back,
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
    engine.cards.all = {card.id: card for card in stand_in_data.read_stack(stated=False)}
    engine.phase = Phase(0, 3, "the Twin starts after 30 of your decisions", 30)


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
    "your own prompt is said to come first": (
        with_first_card(source=Source.OPERATOR),
        press("enter"),
        sees("your own prompts come first"),
    ),
    "and to come last when it cannot run": (
        with_first_card(source=Source.OPERATOR, can_run=False),
        press("enter"),
        sees("cards that cannot run come last"),
        hides("your own prompts come first"),
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
    "details hand a sentence in place of parameters to the engine": (
        press("enter e"),
        EDITOR,
        write("only the cart, and say why"),
        press("ctrl+s"),
        called("approve", FIRST, "only the cart, and say why"),
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
    "details say what a card lacks": (with_first_card(note=MISSING), press("enter"), sees(f"▲ {MISSING}")),
}


test_story = pytest.mark.long(make_story_test(STORIES))


@pytest.mark.parametrize("steps", [(press("enter"), sees("Card details")), (sees("WHY"),)], ids=["details", "beside"])
async def test_the_evidence_names_the_hosts_that_the_work_may_reach(
    console: ConsoleApp, engine: StandIn, steps: tuple[Step, ...]
):
    engine.cards.describe_sandbox = lambda id: "bubblewrap, network only to pypi.org"
    await play(console, *steps, sees("network only to pypi.org"), size=(200, 60))


async def test_details_say_that_there_is_more_below_until_it_is_in_sight(console: ConsoleApp):
    more = (press("enter"), sees("▼ more below: PgDn"), press("pagedown", times=9), hides("▼ more below"))
    await play(console, *more, size=(80, 24))


@pytest.mark.long
async def test_details_of_another_card_begin_anew_at_the_present_size(console: ConsoleApp):
    async with running(console, "enter", "e", "x", "escape", "escape") as pilot:
        await pilot.resize_terminal(80, 24)
        await carry_out(pilot, press("j enter"), sees(SECOND))
        screen = console.screen
        assert screen.query_one("#editor", TextArea).text == PATHS
        assert screen.focused is screen.query_one("#details")
        assert screen.classes >= {"-narrow", "-low"}
        await carry_out(pilot, press("escape k enter"), sees(FIRST))
        assert not screen.query_one("#editor", TextArea).text.startswith("x")


@pytest.mark.long
async def test_the_risk_of_a_card_is_not_confirmed_by_that_of_the_card_before(console: ConsoleApp, engine: StandIn):
    verdicts = engine.cards.all[RISKY].verdicts
    for card_id in (FIRST, SECOND):
        engine.cards.all[card_id] = replace(engine.cards.all[card_id], verdicts=verdicts)
    async with running(console, "enter", "a") as pilot:
        await carry_out(pilot, sees("A approves it anyway"), press("escape j enter"), sees("Card details"))
        assert not console.screen.query_one("#refusal").display
        await carry_out(pilot, press("A"), never_called("approve"))


async def test_the_way_past_a_risk_is_the_key_of_the_operator(console: ConsoleApp, engine: StandIn):
    engine.cards.all[FIRST] = replace(engine.cards.all[FIRST], verdicts=engine.cards.all[RISKY].verdicts)
    async with running(console) as pilot:
        console.keymap = {"details.insist": "f6"}
        await carry_out(pilot, press("enter a"), sees("F6 approves it anyway"))


@pytest.mark.long
@pytest.mark.parametrize("refusal", [None, Refusal("busy", "a session works there already", "wait for it")])
async def test_an_answer_to_an_approval_leaves_the_details_of_another_card_open(
    console: ConsoleApp, engine: StandIn, refusal: Refusal | None
):
    answered = hold_back(engine.cards, "approve")
    engine.refuse = {"approve": refusal} if refusal else {}
    async with running(console, "enter", "a", "escape", "j", "enter", notifications=True) as pilot:
        answered.set()
        await until(pilot, lambda: any(call[0] == "approve" for call in engine.call_log))
        await carry_out(pilot, sees("Card details", SECOND))
        assert not console.screen.query_one("#refusal").display
        assert bool(refusal) is ("a session works there already" in read_toasts(console))
