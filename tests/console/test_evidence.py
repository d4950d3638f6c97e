"""The evidence beside a card on a wide terminal (SPEC 2.5, 9.3)."""

from __future__ import annotations

import pytest

from clawpy_console.app import ConsoleApp
from engine.model import RailVerdict, Verdict
from tests.console.card_steps import SECOND
from tests.console.driving import running
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import cards
from tests.console.stories import carry_out, hides, press, sees


async def test_the_evidence_says_what_the_rails_say_now(console: ConsoleApp, engine: StandIn) -> None:
    """Not what they said when the card was made."""
    reason = "first days: 7 of 10 decisions made"
    off = "nothing runs by itself"
    engine.cards.preview_rails = lambda id: (RailVerdict("gate", Verdict.ASK, f"{off}; {reason}; quiet hours"),)  # type: ignore[method-assign]
    async with running(console, size=(200, 60)) as pilot:
        await carry_out(pilot, sees(f"▲ {off}"), sees(f"also: {reason}; quiet hours"))
        reason = "first days: 8 of 10 decisions made"
        engine.cards.dismiss(SECOND)  # in another console
        console.reload(["cards"])
        await carry_out(pilot, sees(reason))


async def test_before_there_is_learning_the_evidence_has_no_weights_and_one_reason_of_each_rail(
    console: ConsoleApp, engine: StandIn
) -> None:
    engine.cards.all = {card.id: card for card in cards(stated=False)}
    engine.cards.preview_rails = lambda id: (  # type: ignore[method-assign]
        RailVerdict("cost", Verdict.ALLOW, "costs $0.00"), RailVerdict("gate", Verdict.ASK, "not by itself; phase 0"),
    )  # fmt: skip
    async with running(console, size=(200, 60)) as pilot:
        await carry_out(pilot, sees("▲ not by itself", "✓ cost: no objection"), hides("phase 0", "(weight"))
        await carry_out(pilot, press("enter"), sees("also: phase 0", "cost       ✓ costs $0.00"))


@pytest.mark.long
async def test_on_a_wide_terminal_the_evidence_gets_the_lines_that_the_queue_leaves(
    console: ConsoleApp, engine: StandIn
) -> None:
    engine.changes.all = []
    async with running(console, size=(200, 60)) as pilot:
        await carry_out(pilot, sees("Nothing."))
        await pilot.pause()
        why, queue = (console.screen.query_one(name).region for name in ("#pane-why", "#pane-queue"))
        assert queue.height == 2, "the heading and one line"
        assert why.bottom == queue.y
