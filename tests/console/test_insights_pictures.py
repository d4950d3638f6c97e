"""The appearance of the insights screen (SPEC 9.1, 9.7)."""

import dataclasses

import pytest

from clawpy_console.app import ConsoleApp
from engine.model import CalibrationCheck, Phase
from tests.console.insights_steps import open_insights
from tests.console.snapshots import CompareSnapshot, in_four_sizes
from tests.console.stand_in import StandIn


@in_four_sizes
def test_the_insights_look_as_in_their_picture(console: ConsoleApp, compare_snapshot: CompareSnapshot, size: str):
    compare_snapshot(console, size, go=open_insights)


@pytest.mark.long
@pytest.mark.parametrize("pane", ["right", "third"])
def test_a_pane_of_a_narrow_terminal_looks_as_in_its_picture(
    console: ConsoleApp, compare_snapshot: CompareSnapshot, pane: str
):
    compare_snapshot(console, "80x24", "tab" if pane == "right" else "shift+tab", go=open_insights)


@pytest.mark.long
def test_the_insights_without_colour_look_as_in_their_picture(
    plain_console: ConsoleApp, compare_snapshot: CompareSnapshot
):
    compare_snapshot(plain_console, "120x40", "shift+tab", go=open_insights)


@in_four_sizes
def test_the_insights_before_any_card_look_as_in_their_picture(
    console: ConsoleApp, engine: StandIn, compare_snapshot: CompareSnapshot, size: str
):
    engine.insights.cards = []
    engine.insights.phase = Phase(0, 0, "0 of 30 decisions made; 30 more and the Twin joins in")
    engine.insights.check = CalibrationCheck(0, is_calibrated=False, reason="0 of 100 decisions were held out")
    empty = dataclasses.replace(engine.insights.training, runs=(), model="", pairs=0, needed=50)
    engine.insights.training = empty
    compare_snapshot(console, size, go=open_insights)
