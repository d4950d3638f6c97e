"""How a card describes its work, also with hostile text in it (SPEC 9.2)."""

from dataclasses import replace

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.screens.card_stack import describe_work, make_headline
from engine.model import GateRuleName, RailVerdict, Verdict
from tests.console import stand_in_data
from tests.console.card_steps import FIRST, change_cards, find_stack
from tests.console.driving import read_lines, read_screen, running, until
from tests.console.stand_in import StandIn
from tests.console.stories import carry_out

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
            await carry_out(pilot, change_cards(replace(card, **hostile), FIRST))
            await until(pilot, lambda text=text: find_stack(console).front.assignment.prompt == text)
            await pilot.pause()
            assert {sum(segment.cell_length for segment in line) for line in read_lines(console)} == {size[0]}
            assert text[:12].split(" 🎉")[0] in read_screen(console)
        await pilot.press("enter", "escape")


def test_the_engine_gives_the_words_for_the_work_of_a_flow_that_the_console_does_not_know():
    card = replace(
        stand_in_data.make_card(1, "x", flow="paint_the_shed", check_only=False),
        work="painting",
        changes="paints it red",
    )
    assert "shop · painting" in make_headline(card, 80).plain
    assert "paints it red · runs: paint_the_shed" in describe_work(card)


@pytest.mark.parametrize(
    "check_only, words", [(True, "only checks, without a sandbox"), (False, "you land the changes")]
)
def test_nothing_that_runs_without_a_sandbox_is_called_read_only(check_only: bool, words: str):
    assert "read-only" in describe_work(stand_in_data.make_card(1, "x"))
    waived = RailVerdict("gate", Verdict.ALLOW, "the settings allow that", GateRuleName.SANDBOX_WAIVED)
    assert words in describe_work(stand_in_data.make_card(1, "x", check_only=check_only, verdicts=(waived,)))


@pytest.mark.parametrize(
    "check_only, undo_note, end",
    [
        (True, "nothing to undo: it only reads your tree", " · nothing to undo: it only reads your tree"),
        (False, "delete the branch", " · undo: delete the branch"),
        (False, "creates .venv; nothing to undo", " · undo: creates .venv; nothing to undo"),
    ],
    ids=["read-only", "a branch", "an installation"],
)
def test_a_card_ends_with_how_to_undo_it(check_only: bool, undo_note: str, end: str):
    card = stand_in_data.make_card(1, "x", check_only=check_only, undo_note=undo_note)
    assert describe_work(card).endswith(end)


def test_a_card_without_a_cost_shows_none():
    assert "est. $0.05" in describe_work(stand_in_data.make_card(1, "x", estimate=50_000))
    assert "$" not in describe_work(stand_in_data.make_card(1, "x", estimate=0))
