"""The insights screen: what it says and each key."""

from __future__ import annotations

import dataclasses

import pytest
from textual.pilot import Pilot

from clawpy_console.app import ConsoleApp
from engine.learning.decisions.metrics import Outcome
from engine.model import CalibrationCheck, Phase
from tests.console.conftest import at, live, screen_text, until, wait_for_text
from tests.console.snapshots import SIZES, CompareSnapshot
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import SHOP
from tests.support.texts import assert_contains


async def open_insights(pilot: Pilot, *keys: str) -> None:
    await live(pilot)
    await pilot.press("7")
    await until(pilot, lambda: getattr(pilot.app.screen, "_insights", None) is not None, "for the figures")
    await pilot.press(*keys)
    await pilot.pause()


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES)
def test_how_it_looks(console: ConsoleApp, compare_snapshot: CompareSnapshot, size: str) -> None:
    compare_snapshot(console, size, go=open_insights)


@pytest.mark.long
@pytest.mark.parametrize("pane", ["right", "third"])
def test_panes_when_narrow(console: ConsoleApp, compare_snapshot: CompareSnapshot, pane: str) -> None:
    compare_snapshot(console, "80x24", "tab" if pane == "right" else "shift+tab", go=open_insights)


@pytest.mark.long
def test_without_colour(plain_console: ConsoleApp, compare_snapshot: CompareSnapshot) -> None:
    compare_snapshot(plain_console, "120x40", "shift+tab", go=open_insights)


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES)
def test_before_any_card(console: ConsoleApp, engine: StandIn, compare_snapshot: CompareSnapshot, size: str) -> None:
    engine.insights.cards = []
    engine.insights.phase = Phase(0, 0, "0 of 30 decisions made; 30 more and the Twin joins in")
    engine.insights.check = CalibrationCheck(0, False, "0 of 100 decisions were held out")
    empty = dataclasses.replace(engine.insights.training, runs=(), model="", pairs=0, needed=50)
    engine.insights.training = empty
    compare_snapshot(console, size, go=open_insights)


async def test_the_error_stands_beside_the_threshold_and_the_phase_says_why(console: ConsoleApp) -> None:
    async with at(console, open_insights):
        text = screen_text(console)
        assert_contains(
            text,
            "error       ✓ 0.041",
            "acts from   0.80: you approved 100% of 8 cards",
            "phase       2: its calibration holds on 212",
        )


async def test_cards_that_were_withdrawn_are_told_so_that_all_add_up(console: ConsoleApp, engine: StandIn) -> None:
    newest = engine.insights.cards[-1]
    outcomes = [Outcome.WITHDRAWN, Outcome.WITHDRAWN, Outcome.EXPIRED, Outcome.CANNOT_RUN]
    engine.insights.cards = [dataclasses.replace(newest, outcome=outcome) for outcome in outcomes]
    async with at(console, open_insights) as pilot:
        told = "0 approved, 0 dismissed, 1 expired, 2 withdrawn, 1 could not run"
        shown = console.screen.query_one("#left-text").render
        await until(pilot, lambda: told in " ".join(shown().plain.split()))


async def test_period_and_workspace_change_what_is_read(console: ConsoleApp, engine: StandIn) -> None:
    async with at(console, open_insights) as pilot:
        assert ("insights", 30, "") in engine.noted
        await pilot.press("p")
        await wait_for_text(pilot, "last 90 days:")
        await pilot.press("p")
        await wait_for_text(pilot, "all time:")
        await pilot.press("w")
        await until(pilot, lambda: ("insights", None, SHOP) in engine.noted)
        await wait_for_text(pilot, "Cards of shop")
