"""A prompt of one's own: written, kept, refused, made a card."""

from __future__ import annotations

import pytest

from clawpy_console.app import ConsoleApp
from engine.values import (
    Card,
    Refusal,
)
from tests.console import stand_in
from tests.console.cards import front, named
from tests.console.conftest import live, screen_text, until
from tests.console.stand_in import StandIn


@pytest.mark.long
async def test_a_prompt_of_ones_own(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        await pilot.press("n", *"look", "ctrl+w", "ctrl+s")
        await until(pilot, lambda: named(engine, "propose"))
        assert named(engine, "propose") == [("propose", "look", stand_in.BLOG)]


@pytest.mark.long
async def test_a_prompt_that_was_left_is_there_again_until_it_is_a_card(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        await pilot.press("n", *"look", "escape", "n", *"er", "ctrl+s")
        await until(pilot, lambda: named(engine, "propose"))
        assert [call[1] for call in named(engine, "propose")] == ["looker"]
        await pilot.press("n", "ctrl+s")
        assert len(named(engine, "propose")) == 1, "nothing is left"


@pytest.mark.long
async def test_a_prompt_that_is_refused_is_there_again_with_what_is_right(
    console: ConsoleApp, engine: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    propose = engine.cards.propose

    def strict(text: str, *, workspace: str) -> Card:
        if "=" in text:
            return propose(text, workspace=workspace)
        raise Refusal("bad_parameters", f"bisect: '{text[7:]}' is not a parameter", "`bisect test=… good=… [bad=…]`")

    monkeypatch.setattr(engine.cards, "propose", strict)
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        await pilot.press("n", *"bisect a.py", "ctrl+w", "ctrl+s")
        await until(pilot, lambda: "`bisect test=… good=… [bad=…]`" in screen_text(console))
        await pilot.press("=", "b", "ctrl+s")
        await until(pilot, lambda: named(engine, "propose"))
        assert named(engine, "propose") == [("propose", "bisect a.py=b", stand_in.BLOG)]


@pytest.mark.long
async def test_a_prompt_of_ones_own_comes_on_top(console: ConsoleApp) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        await live(pilot)
        await pilot.press("n", *"lint it", "ctrl+s")
        await until(pilot, lambda: front(console) == stand_in.card(90, "").id)
