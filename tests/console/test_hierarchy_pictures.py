"""The appearance of the hierarchy screen (SPEC 9.1, 9.7)."""

import pytest

from clawpy_console.app import ConsoleApp
from tests.console.snapshots import SIZES, CompareSnapshot
from tests.hierarchy.guidance_world import Organisation

pytestmark = pytest.mark.long


SHOTS = {
    "who": ("3", "end", *["up"] * 4),
    "guidance": ("3", "end", *["up"] * 4, "right_square_bracket", "enter"),
    "findings": ("3", "end", *["up"] * 4, *["right_square_bracket"] * 2, "enter"),
}


@pytest.mark.parametrize(
    "shot, size",
    [
        *(("who", size) for size in SIZES),
        *((shot, size) for shot in ("guidance", "findings") for size in ("80x24", "200x60")),
    ],
)
def test_the_hierarchy_looks_as_in_its_picture(
    console: ConsoleApp, world: Organisation, compare_snapshot: CompareSnapshot, shot: str, size: str
):
    compare_snapshot(console, size, *SHOTS[shot])


def test_a_move_looks_as_in_its_picture(console: ConsoleApp, world: Organisation, compare_snapshot: CompareSnapshot):
    keys = (*SHOTS["who"], "m", *"frontend_l")
    compare_snapshot(console, "120x40", *keys, theme="clawpy-light")
