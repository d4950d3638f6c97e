"""How a card describes its work, also with hostile text in it (SPEC 9.2)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.fields.states import FLOWS_BY_WORK, describe_work, name_work
from engine.execution.runners.flows import FLOWS
from engine.model import RailVerdict, Verdict
from tests.console import stand_in_data
from tests.console.card_steps import FIRST, change_cards, find_stack
from tests.console.driving import read_screen, running, until
from tests.console.stand_in import StandIn
from tests.console.stories import carry_out

HOSTILE = [
    "[/foo] [b]bold", "[@click=app.quit]x[/]", "a [link=http://x]b", "漢字 🎉 👩‍👩‍👧‍👦 e\u0301", "x" * 4000,
    "$accent $ %s {0}",
]  # fmt: skip


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_hostile_text_is_shown_literally_and_breaks_no_column(
    console: ConsoleApp, engine: StandIn, size: tuple[int, int]
) -> None:
    card = engine.cards.all[FIRST]
    async with running(console, size=size) as pilot:
        for text in HOSTILE:
            hostile = {
                "assignment": replace(card.assignment, prompt=text), "reasoning": text, "note": text, "undo_note": text,
                "signals": (replace(card.signals[4], evidence=(text,)),),
                "verdicts": (RailVerdict("content", Verdict.BLOCK, text, text),),
            }  # fmt: skip
            await carry_out(pilot, change_cards(replace(card, **hostile), FIRST))  # type: ignore[arg-type]
            await until(pilot, lambda text=text: find_stack(console).front.assignment.prompt == text)
            await pilot.pause()
            strips = console.screen._compositor.render_strips()
            assert {sum(segment.cell_length for segment in strip) for strip in strips} == {size[0]}
            assert text[:12].split(" 🎉")[0] in read_screen(console)
        await pilot.press("enter", "escape")


def test_every_flow_has_a_word_for_its_work() -> None:
    assert {flow for flows in FLOWS_BY_WORK.values() for flow in flows} == set(FLOWS)


@pytest.mark.parametrize(
    ("flow", "word"), [("tidy_imports", "tidy imports"), (None, "koji-core")], ids=["learned", "by a model"]
)
def test_a_learned_flow_is_called_by_its_name_and_work_of_a_model_by_its_channel(flow: str | None, word: str) -> None:
    assert name_work(stand_in_data.card(1, "x", flow=flow)) == word


def test_a_card_without_a_cost_shows_none() -> None:
    assert "est. $0.05" in describe_work(stand_in_data.card(1, "x", estimate=50_000))
    assert "$" not in describe_work(stand_in_data.card(1, "x", estimate=0))
