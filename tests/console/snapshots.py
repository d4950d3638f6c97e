"""Snapshots of the console: their sizes, and the comparison with the stored picture."""

from collections.abc import Callable
from itertools import groupby

import pytest
from textual.pilot import Pilot

from clawpy_console.app import ConsoleApp
from tests.console.driving import read_lines, until, until_loaded

SIZES = {"80x24": (80, 24), "120x40": (120, 40), "160x50": (160, 50), "200x60": (200, 60)}


def in_four_sizes(test: Callable[..., None]) -> Callable[..., None]:
    """Marks a test of pictures that gets each of `SIZES` as `size`."""
    return pytest.mark.long(pytest.mark.parametrize("size", SIZES)(test))


CompareSnapshot = Callable[[ConsoleApp, str, str], None]
"""`compare(console, size, keys)`: after these keys, which are separated by spaces, it looks as in its picture."""


def make_comparison(snap_compare: Callable[..., bool]) -> CompareSnapshot:
    """The comparison, with the fixture of pytest-textual-snapshot."""

    def compare(console: ConsoleApp, size: str, keys: str):
        async def before(pilot: Pilot):
            await until_loaded(pilot)
            await wait_for_workers(pilot)
            for _, same in groupby(keys.split()):  # who walks down a list does not wait at each row
                read_lines(pilot.app)  # what jump mode labels has its place once it is drawn
                await pilot.press(*same)
                await wait_for_workers(pilot)
            for box in pilot.app.screen.query("Input, TextArea"):
                box.cursor_blink = False  # there, whenever the picture is taken

        assert snap_compare(console, terminal_size=SIZES[size], run_before=before)

    return compare


async def wait_for_workers(pilot: Pilot):
    """Wait until nothing is read any more."""
    await until(pilot, lambda: not any(worker.is_running for worker in pilot.app.workers), "for workers")
