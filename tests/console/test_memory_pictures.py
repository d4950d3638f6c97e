"""The appearance of the memory screen (SPEC 9.5, 9.7)."""

import pytest

from clawpy_console.app import ConsoleApp
from tests.console.snapshots import SIZES, CompareSnapshot
from tests.console.stand_in import StandIn

pytestmark = pytest.mark.long


SCREENS = {
    "files": ("4",),
    "vectors": ("4", "down", "down", "enter"),
    "tasks": ("4", *["down"] * 5, "enter", "down"),
    "facts": ("4", *["down"] * 6, "enter", "down", "down"),
    "recalled": ("4", "down", "down", "enter", "r", "tab", "down"),
    "edit": ("4", "enter", "e"),
    "forget": ("4", "down", "down", "enter", "x"),
}
SHOWN = (
    *(("files", size) for size in SIZES),
    *(("recalled", size) for size in SIZES),
    *((screen, "120x40") for screen in SCREENS if screen not in ("files", "recalled")),
    ("facts", "80x24"),
)


@pytest.mark.parametrize("screen, size", SHOWN)
def test_the_layers_look_as_in_their_pictures(
    console: ConsoleApp, compare_snapshot: CompareSnapshot, screen: str, size: str
):
    compare_snapshot(console, size, *SCREENS[screen])


def test_a_layer_that_is_built_looks_as_in_its_picture(
    console: ConsoleApp, engine: StandIn, compare_snapshot: CompareSnapshot
):
    engine.memory.building = 0.41
    compare_snapshot(console, "120x40", *SCREENS["vectors"])


def test_one_entry_on_a_narrow_terminal_looks_as_in_its_picture(console: ConsoleApp, compare_snapshot: CompareSnapshot):
    compare_snapshot(console, "80x24", *SCREENS["tasks"], "enter")


def test_facts_without_colour_look_as_in_their_picture(plain_console: ConsoleApp, compare_snapshot: CompareSnapshot):
    compare_snapshot(plain_console, "120x40", *SCREENS["facts"])
