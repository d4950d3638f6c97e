"""The appearance of the learning screen (SPEC 9.5, 9.7)."""

import pytest
from textual.pilot import Pilot

from clawpy_console.app import ConsoleApp
from tests.console.driving import until_loaded
from tests.console.learning_steps import forget_all, open_item
from tests.console.snapshots import CompareSnapshot, in_four_sizes
from tests.console.stand_in import StandIn
from tests.console.stand_in_learning import PROJECT, ROUNDING, STOCK
from tests.console.stories import carry_out


@in_four_sizes
@pytest.mark.parametrize("item_id", [ROUNDING.id, STOCK.id, PROJECT.id], ids=["candidate", "lift", "learning"])
def test_candidates_and_learnings_look_as_in_their_pictures(
    console: ConsoleApp, compare_snapshot: CompareSnapshot, size: str, item_id: str
):
    async def open_details(pilot: Pilot):
        await until_loaded(pilot)
        await carry_out(pilot, *open_item(item_id))

    compare_snapshot(console, size, "right", go=open_details)


@in_four_sizes
def test_the_screen_before_anything_was_learned_looks_as_in_its_picture(
    console: ConsoleApp, engine: StandIn, compare_snapshot: CompareSnapshot, size: str
):
    forget_all(engine)
    compare_snapshot(console, size, "5")


@pytest.mark.long
def test_the_question_before_an_approval_looks_as_in_its_picture(
    console: ConsoleApp, engine: StandIn, compare_snapshot: CompareSnapshot
):
    engine.settings.current.console.theme = "clawpy-high-contrast"
    compare_snapshot(console, "80x24", "5", "a")
