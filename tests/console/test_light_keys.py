"""What a key must not cost: layouts, drawings and pauses that nobody asked for."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from datetime import timedelta

import pytest
from textual import events
from textual.app import App, ComposeResult
from textual.content import Content
from textual.geometry import Offset
from textual.keys import _character_to_key
from textual.selection import Selection
from textual.widgets import TextArea

from clawpy_console.app import ConsoleApp
from clawpy_console.attach.host import DUE, IDLE_S, OVERDUE, GarbageCollector
from clawpy_console.widgets.reflowing_text import ReflowingText
from clawpy_console.widgets.rows import Rows
from tests.console.conftest import running, until
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW


@pytest.mark.long
async def test_what_is_read_while_the_app_ends_is_drawn_on_nothing(console: ConsoleApp) -> None:
    async with running(console) as pilot:
        drawn: list[str] = []
        console.screen.read(lambda _: "there", drawn.append, group="before")
        await until(pilot, lambda: drawn == ["there"])
        await console.screen.remove_children()
        console.screen.read(lambda _: "gone", drawn.append, group="after")
        await pilot.pause()
        assert not any(worker.group == "after" for worker in console.workers)
        assert drawn == ["there"]


async def test_clocks_of_running_tasks_turn_together(console: ConsoleApp, engine: StandIn) -> None:
    async with running(console):
        tasks = console.screen.query_one("#sessions", Rows)
        seen = set()
        for tenth in range(10):
            console.screen.tick(NOW.replace(microsecond=0) + timedelta(seconds=tenth / 10))
            seen.add(tuple(tasks.rows))
        assert len(seen) == 1


class Lines(App[None]):
    """Three drawn lines."""

    def compose(self) -> ComposeResult:
        yield ReflowingText()


async def test_drawn_lines_can_be_selected() -> None:
    app = Lines()
    async with app.run_test(size=(40, 5)) as pilot:
        drawn = app.query_one(ReflowingText)
        drawn.show(lambda width: [Content("one"), Content("two"), Content("three")])
        await pilot.pause()
        chosen = Selection(Offset(1, 1), Offset(2, 2))
        app.screen.selections = {drawn: chosen}
        await pilot.pause()
        marked = app.screen.get_component_rich_style("screen--selection").bgcolor
        rows = (drawn.render_line(y) for y in range(3))
        lit = ["".join(item.text for item in row if item.style and item.style.bgcolor == marked) for row in rows]
        assert lit == ["", "wo", "th"]
        assert drawn.get_selection(chosen) == ("wo\nth", "\n")


@pytest.fixture
def restore_collector() -> Iterator[None]:
    """Puts the interpreter's collector and its switch interval back."""
    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.collect()
    yield
    gc.set_threshold(*thresholds)
    sys.setswitchinterval(interval)


@pytest.mark.long
def test_full_collections_wait_until_nobody_types(restore_collector: None) -> None:
    now = [0.0]
    collector = GarbageCollector(lambda: now[0])

    def young(count: int) -> None:
        for _ in range(count):
            gc.collect(1)

    def waiting() -> int:
        return gc.get_count()[2]

    collector.collect_if_due()  # before the beginning the interpreter does it by itself
    collector.take_over()
    young(DUE)
    collector.note_key()
    now[0] = IDLE_S - 0.1
    collector.collect_if_due()
    assert waiting() >= DUE, "a key was pressed just now"
    now[0] = IDLE_S
    collector.collect_if_due()
    assert waiting() == 0
    young(DUE // 2)
    collector.collect_if_due()
    assert waiting() >= DUE // 2, "none is due"
    collector.note_key()
    young(OVERDUE)
    collector.collect_if_due()
    assert waiting() == 0, "who types on and on does not keep the rubbish for ever"


@pytest.mark.long
@pytest.mark.parametrize(
    ("before", "key", "opens"),
    [
        ((), "n", "PromptArea"),
        ((), "?", "Filter"),
        (("2",), "/", "Filter"),
        (("2", "tab", "tab", "tab", "]", "down"), "c", "ReplyLine"),
    ],
)
async def test_what_is_typed_in_one_burst_after_the_key_goes_into_the_text_it_opens(
    console: ConsoleApp, before: tuple[str, ...], key: str, opens: str
) -> None:
    async with running(console, *before) as pilot:
        for character in f"{key}why so":
            console.post_message(events.Key(_character_to_key(character), character))
        await until(pilot, lambda: type(console.focused).__name__ == opens)
        text = console.focused
        await until(pilot, lambda: (text.text if isinstance(text, TextArea) else text.value) == "why so")
