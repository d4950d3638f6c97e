"""The evidence beside a card on a wide terminal (SPEC 2.5, 9.3)."""

import pytest

from clawpy_console.app import ConsoleApp
from engine.model import RailVerdict, Verdict
from tests.console.card_steps import SECOND
from tests.console.driving import running
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import read_stack
from tests.console.stories import carry_out, hides, press, sees

WIDE = (200, 60)


def answer_rails(engine: StandIn, *verdicts: RailVerdict):
    """Have the rails say this from now on, whatever card they are asked about."""
    engine.cards.preview_rails = lambda id: verdicts


async def test_the_rails_are_asked_again_when_cards_change(console: ConsoleApp, engine: StandIn):
    answer_rails(engine, RailVerdict("gate", Verdict.ASK, "by you; 7 of 10 decisions made; quiet hours"))
    async with running(console, size=WIDE) as pilot:
        await carry_out(pilot, sees("▲ by you"), sees("also: 7 of 10 decisions made; quiet hours"))
        answer_rails(engine, RailVerdict("gate", Verdict.ASK, "by you; 8 of 10 decisions made; quiet hours"))
        engine.cards.dismiss(SECOND)  # in another console
        console.reload(["cards"])
        await carry_out(pilot, sees("8 of 10 decisions made"))


async def test_without_learning_the_pane_is_short_and_the_details_are_not(console: ConsoleApp, engine: StandIn):
    engine.cards.all = {card.id: card for card in read_stack(stated=False)}
    costs = RailVerdict("cost", Verdict.ALLOW, "costs $0.00")
    answer_rails(engine, costs, RailVerdict("gate", Verdict.ASK, "not by itself; phase 0"))
    async with running(console, size=WIDE) as pilot:
        await carry_out(pilot, sees("▲ not by itself", "✓ cost: no objection"), hides("phase 0", "(weight"))
        await carry_out(pilot, press("enter"), sees("also: phase 0", "cost       ✓ costs $0.00"))


@pytest.mark.long
async def test_the_evidence_gets_the_lines_that_the_queue_leaves(console: ConsoleApp, engine: StandIn):
    engine.changes.all = []
    async with running(console, size=WIDE) as pilot:
        await carry_out(pilot, sees("Nothing."))
        await pilot.pause()
        why, queue = (console.screen.query_one(name).region for name in ("#pane-why", "#pane-queue"))
        assert queue.height == 2, "the heading and one line"
        assert why.bottom == queue.y
