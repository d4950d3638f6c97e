"""A diff of 200 files and 50,000 lines: how long it takes to open, and how long a key takes to show (SPEC 9.4, 11.4).

    pytest -m benchmark -s tests/benchmarks/test_diff_view.py

The change set is one of a real repository. The view is that of the work screen, in an app that draws everything that it
would send to a terminal. Opening lasts from the call that reads the diff to the first frame with its lines. For
comparison, the same run shows the same text as plain lines (`LinesView`).
Bars: open within 300 ms, p95 from a key to its frame within 50 ms.
"""

import asyncio
import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from textual import events
from textual.app import App, ComposeResult
from textual.drivers.headless_driver import HeadlessDriver
from textual.screen import Screen
from textual.widget import Widget

from clawpy_console.appearance import find_shipped_folder, load_theme
from clawpy_console.cli.main import GC_THRESHOLD
from clawpy_console.screens import diff as diff_files
from clawpy_console.screens.diff_view import DiffView
from clawpy_console.widgets.transcript import LinesView
from tests.benchmarks.measuring import compute_p95, print_table, time_call
from tests.execution.changesets.landing_world import Change, LandingWorld


class SilentTerminal(HeadlessDriver):
    """A terminal that gets every frame, and shows none."""

    @property
    def is_headless(self) -> bool:
        return False


class FrameCounter(App[None]):
    """An app with one widget, which counts the frames that it draws."""

    def __init__(self, widget: Widget):
        super().__init__(driver_class=SilentTerminal)
        self._widget = widget
        self.frames = 0

    def compose(self) -> ComposeResult:
        yield self._widget

    def on_mount(self):
        theme = load_theme(find_shipped_folder() / "clawpy-dark.toml")
        self.register_theme(theme)
        self.theme = theme.name
        self._widget.focus()

    def _display(self, screen: Screen[object], renderable: object):
        super()._display(screen, renderable)
        self.frames += renderable is not None

    async def time_frame(self, act: Callable[[], Awaitable[None]]) -> float:
        """Seconds from `act` to the next frame."""
        before, began = self.frames, time.perf_counter()
        await act()
        while self.frames == before:
            await asyncio.sleep(0.002)
            assert time.perf_counter() < began + 60, "nothing was drawn"
        return time.perf_counter() - began

    async def time_key(self, key: str) -> float:
        """Seconds from a key to the next frame."""

        async def press():
            self.post_message(events.Key(key, key if len(key) == 1 else None))

        return await self.time_frame(press)


FILES, LINES = 200, 170
"""Changed files, and lines of each."""

OPEN_BAR, KEY_BAR = 0.300, 0.050
"""Maximum seconds of opening (median) and of a key (p95)."""

OPENINGS, KEYS = 5, 210
SIZE = (200, 60)
"""Columns and rows of the terminal."""


def make_module(file: int, factor: int) -> str:
    """A module, half of whose lines contain `factor`."""
    factors = [factor if number % 10 < 5 else 0 for number in range(LINES)]
    lines = [f'    total += round(price_{n} * {factor}, 2)  # "{n}" of the cart' for n, factor in enumerate(factors)]
    return f"def module_{file}(cart):\n    total = 0\n" + "\n".join(lines) + "\n    return total\n"


@pytest.fixture(autouse=True)
def _gc_as_in_the_console() -> Iterator[None]:
    """Garbage is collected as seldom as in the console."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLD)
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.fixture
def change(tmp_path: Path) -> tuple[LandingWorld, Change]:
    world = LandingWorld(tmp_path)
    names = [f"shop/part{number % 9}/module{number}.py" for number in range(FILES)]
    world.repository.commit("one", {name: make_module(number, 0) for number, name in enumerate(names)})

    def edit(folder: Path):
        for number, name in enumerate(names):
            (folder / name).write_text(make_module(number, number + 1))

    return world, world.make_change(edit)


async def measure(
    widget: Widget, opening: Callable[[Widget], Awaitable[None]], keys: list[str]
) -> tuple[list[float], list[float]]:
    """Seconds of each opening and of each key."""
    app = FrameCounter(widget)
    task = asyncio.create_task(app.run_async(headless=False, size=SIZE, mouse=False))
    while not app.frames or not widget.size:
        await asyncio.sleep(0.01)
    opened = [await app.time_frame(lambda: opening(widget)) for _ in range(OPENINGS)]
    await asyncio.sleep(0.2)
    pressed = [await app.time_key(keys[number % len(keys)]) for number in range(KEYS)]
    app.exit()
    await task
    return opened, pressed


async def test_a_large_diff_opens_at_once_and_scrolls(change: tuple[LandingWorld, Change]):
    world, change_set = change
    hunks = [file.hunks for file in world.changes.read_diff(change_set.id)]
    line_count = sum(text.count("\n") for text in hunks)

    def read_diff() -> object:
        return diff_files.read_files(change_set.files, world.changes.read_diff(change_set.id))

    async def show_diff(view: Widget):
        assert isinstance(view, DiffView)
        view.show(await asyncio.to_thread(read_diff))

    async def show_plain(view: Widget):
        assert isinstance(view, LinesView)
        view.clear()
        view.extend(("output", line) for text in hunks for line in text.split("\n"))

    git = [time_call(lambda: world.changes.read_diff(change_set.id)) for _ in range(OPENINGS)]
    opened, pressed = await measure(
        DiffView(), show_diff, ["j", "pagedown", "right_square_bracket", "k", "G", "pageup", "g"]
    )
    lines_view = LinesView(max_lines=200_000, follow_end=False)
    plain_opened, plain_pressed = await measure(lines_view, show_plain, ["j", "pagedown", "k", "pageup"])
    print(f"\n{len(hunks)} files, {line_count:,} lines, {SIZE[0]}x{SIZE[1]}")
    diff_view, lines = "this view", "LinesView, plain"
    git_rows = {"of it git, and text made safe": git}
    print_table("open", git_rows | {diff_view: opened, lines: plain_opened}, baseline=diff_view)
    print_table("key to frame", {diff_view: pressed, lines: plain_pressed}, baseline=diff_view)
    assert line_count >= 50_000
    assert statistics.median(opened) <= OPEN_BAR
    assert compute_p95(pressed) <= KEY_BAR
    world.close()
