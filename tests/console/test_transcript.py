"""Output (SPEC 9.4): long lines wrap at words, a selection is copied as it was, progress is one row with a bar, and the
end stays in sight while lines come."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.app import App, ComposeResult
from textual.selection import Selection
from textual.widget import Widget

from clawpy_console.app import ConsoleApp
from clawpy_console.widgets.transcript import PROGRESS_BAR_CELLS, LinesView, Progress, Transcript, find_row_starts
from engine.events.work import SessionOutput
from engine.model import CheckResult, SessionState, TranscriptLine
from tests.console.driving import read_screen, running, until, until_shown
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW
from tests.console.stories import carry_out, sees
from tests.support import read_table

RUNNING = "sess_000000000001"

LONG = "the quick brown fox jumps over the lazy dog and then over it once more"


def split_into_rows(text: str, room: int) -> list[str]:
    starts = find_row_starts(text, room)
    return [text[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]


class Showing(App[None]):
    def __init__(self, view: Widget):
        super().__init__()
        self.view = view

    get_theme_variable_defaults = ConsoleApp.get_theme_variable_defaults

    def compose(self) -> ComposeResult:
        yield self.view


def read_selected(view: LinesView, y: int) -> str:
    """What of row `y` is shown as selected."""
    colour = view.screen.get_component_rich_style("screen--selection").bgcolor
    return "".join(item.text for item in view.render_line(y) if item.style and item.style.bgcolor == colour)


def make_output(first: int, last: int) -> list[TranscriptLine]:
    return [TranscriptLine(number, NOW, "output", f"line {number}") for number in range(first, last + 1)]


@given(st.text(st.sampled_from("ab 漢é-"), max_size=60), st.integers(8, 30))
def test_wrapped_rows_are_the_whole_text_and_none_is_too_wide(text: str, room: int):
    rows = split_into_rows(text, room)
    assert "".join(rows) == text
    assert all(cell_len(row.rstrip()) <= room for row in rows)


async def test_a_selection_over_rows_is_copied_as_one_line():
    view = LinesView()
    app = Showing(view)
    async with app.run_test(size=(40, 10)) as pilot:
        view.extend([("say", LONG), ("output", "and the end")])
        await pilot.pause()
        _, start = app.screen.get_widget_and_offset_at(6, 0)
        _, end = app.screen.get_widget_and_offset_at(10, 1)
        chosen = Selection.from_offsets(start, end)
        app.screen.selections = {view: chosen}
        assert view.get_selection(chosen) == ("quick brown fox jumps over the lazy dog", "\n")
        assert [read_selected(view, y).strip() for y in range(3)] == ["quick brown fox jumps over the", "lazy dog", ""]


@pytest.mark.parametrize(
    "lines, row",
    read_table(__file__)["progress"],
)
def test_lines_of_progress_are_a_bar_with_numbers(lines: list[str], row: str):
    progress = Progress()
    row_text = [progress.make_row(line) for line in lines][-1]
    assert (row_text[PROGRESS_BAR_CELLS + 1 :] if row_text else "") == row


@pytest.mark.long
async def test_a_running_test_suite_moves_one_row_and_ends_with_its_causes(console: ConsoleApp, engine: StandIn):
    session = engine.sessions.all[0]
    output = ["collected 40 items", "...... [ 20%]", "......F [ 60%]", "...F... [100%]", "2 failed, 18 passed"]
    lines = [TranscriptLine(number, NOW, "output", text) for number, text in enumerate(output, 1)]
    failing = ("tests/test_cart.py::test_total", "tests/test_cart.py::test_tax")
    engine.sessions.transcripts[session.id] = lines[:2]
    engine.sessions.all[0] = dataclasses.replace(session, state=SessionState.RUNNING, lines=2)
    async with running(console, size=(200, 60)) as pilot:
        console.open("work", session.id)
        await until_shown(pilot, " 20 %  6 run")
        engine.sessions.transcripts[session.id] = lines
        engine.sessions.all[0] = dataclasses.replace(
            session, state=SessionState.SUCCEEDED, ended_at=NOW, lines=5,
            check=CheckResult("pytest", 18, 2, failing=failing),
            facts={"signatures": dict.fromkeys(failing, "TypeError: N is no price in cart.py")},
        )  # fmt: skip
        console.reload(["sessions"])
        await until_shown(pilot, "2 tests: TypeError: N is no price in cart.py")
        assert "100 %  20 run, 2 failed" in read_screen(console)
        assert " 20 %" not in read_screen(console)
        assert "test_total  and 1 more like it" in read_screen(console)


@pytest.mark.long
@pytest.mark.parametrize("scrolled", [False, True])
async def test_the_end_of_a_transcript_stays_in_sight_unless_it_was_scrolled(
    console: ConsoleApp, engine: StandIn, scrolled: bool
):
    lines = engine.sessions.transcripts[RUNNING] = make_output(1, 100)
    engine.sessions.all[0] = dataclasses.replace(engine.sessions.all[0], lines=100)
    async with running(console, "2", "up", "enter", size=(80, 24), notifications=True) as pilot:
        view = console.screen.query_one("#transcript", Transcript)

        async def add_lines(count: int):
            lines.extend(make_output(len(lines) + 1, len(lines) + count))
            engine.bus.publish(SessionOutput(subject=RUNNING, last_line=len(lines), text=""))
            await until(pilot, lambda: view.last_line == lines[-1].text)
            await pilot.pause()

        await until(pilot, lambda: view.last_line == "line 100" and view.is_at_end)
        if scrolled:
            await pilot.press("pageup")
        top = view.scroll_offset.y
        for number in range(3):  # toasts need lines
            console.show_toast(f"said {number}")
        await carry_out(pilot, sees("said 2"))
        for count in (1, 5000):
            await add_lines(count)
            assert (lines[-1].text in read_screen(console)) != scrolled
            assert not scrolled or view.scroll_offset.y == top


@pytest.mark.long
async def test_a_transcript_shows_the_last_20000_lines(console: ConsoleApp, engine: StandIn):
    engine.sessions.transcripts[RUNNING] = make_output(1, 30_000)
    engine.sessions.all[0] = dataclasses.replace(engine.sessions.all[0], lines=30_000)
    async with running(console, "2", "up") as pilot:
        view = console.screen.query_one("#transcript", Transcript)
        await until(pilot, lambda: view.last_line == "line 30000")
        assert view.row_count == 20_000
