"""What every screen does (SPEC 9.7): a pane zooms, text typed ahead is kept, results are drawn only on widgets."""

import pytest
from textual import events
from textual._compositor import Compositor, CompositorUpdate
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.geometry import Size
from textual.keys import _character_to_key
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import TextArea

from clawpy_console.app import ConsoleApp
from clawpy_console.keys import bindings
from clawpy_console.screens.base import BaseScreen, ConsoleScreen
from clawpy_console.widgets.frame import Frame, KeyLine
from clawpy_console.widgets.rows import Row, Rows
from clawpy_console.widgets.texts import Filter
from tests.console.driving import read_lines, running, until, until_loaded

MODES = [*ConsoleApp.MODES]


async def open_screen(pilot: Pilot, mode: str) -> ConsoleScreen:
    await until_loaded(pilot)
    await pilot.app.switch_mode(mode)
    await pilot.press("escape")  # the greeting goes with the first key
    await until(pilot, lambda: not any(worker.is_running for worker in pilot.app.workers), "for what it shows")
    return pilot.app.screen


class LongList(BaseScreen[None]):
    """A screen with a list that is longer than it."""

    BINDINGS = bindings("zoom", "panes")

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Rows(id="list")
            yield Rows(id="beside")

    def on_mount(self):
        self.query_one("#list", Rows).show([Row(str(number), f"row {number}") for number in range(200)])


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
async def test_every_pane_zooms_and_returns(console: ConsoleApp, mode: str):
    async with console.run_test(size=(120, 40)) as pilot:
        screen = await open_screen(pilot, mode)
        reached = [pane for pane in screen.PANES if screen.go_to(pane)]
        assert reached
        for pane in reached:
            screen.go_to(pane)
            await pilot.pause()
            focused, before = screen.focused, {widget: widget.region for widget in screen.query("*")}
            offset = focused.scroll_offset
            await pilot.press("z")
            assert screen.maximized.region.size == (120, 37), pane
            assert focused.region.height, pane
            assert screen.focused is focused
            assert "esc back" in str(screen.query_one(KeyLine).render()), pane
            await pilot.press("escape")
            assert screen.focused is focused
            assert {item: item.region for item in before} == before, pane
            assert focused.scroll_offset == offset


@pytest.mark.long
async def test_the_zoom_goes_with_the_focus(console: ConsoleApp):
    async with console.run_test(size=(120, 40)) as pilot:
        screen = await open_screen(pilot, "work")
        await pilot.press("z", "enter")  # a session under the cursor is opened
        assert screen.pane == "transcript"
        assert screen.focused in screen.maximized.walk_children(with_self=True)
        await pilot.press("enter")
        assert screen.maximized is None, "where Enter opens nothing it zooms"


@pytest.mark.long
async def test_z_is_a_letter_while_a_filter_is_typed_and_escape_leaves_the_filter_first(console: ConsoleApp):
    async with console.run_test(size=(120, 40)) as pilot:
        screen = await open_screen(pilot, "work")
        await pilot.press("z", "slash", "z")
        assert screen.query_one(Filter).words == ["z"]
        await pilot.press("escape")
        assert screen.maximized is not None
        assert not screen.query_one(Filter).words
        await pilot.press("escape")
        assert screen.maximized is None


async def test_a_long_list_is_scrolled_as_it_was_and_its_cursor_is_in_sight(console: ConsoleApp):
    async with running(console, size=(80, 24)) as pilot:
        await console.push_screen(LongList())
        rows = console.screen.query_one("#list", Rows)
        rows.focus()
        await pilot.press("end", *["up"] * 30)
        before = rows.scroll_offset
        await pilot.press("z", "z")
        assert rows.scroll_offset == before
        await pilot.press("z", "home", "z")
        assert rows.scroll_offset.y == rows.cursor == 0


@pytest.mark.long
async def test_results_are_not_drawn_while_the_app_ends(console: ConsoleApp):
    async with running(console) as pilot:
        drawn = []
        console.screen.read(lambda _: "there", drawn.append, group="before")
        await until(pilot, lambda: drawn == ["there"])
        await console.screen.remove_children()
        console.screen.read(lambda _: "gone", drawn.append, group="after")
        await pilot.pause()
        assert not any(worker.group == "after" for worker in console.workers)
        assert drawn == ["there"]


async def test_the_lines_on_top_are_not_drawn_while_the_app_ends(console: ConsoleApp, monkeypatch: pytest.MonkeyPatch):
    drawn = []
    monkeypatch.setattr(Frame, "draw", lambda frame: drawn.append(frame))
    monkeypatch.setattr(Frame, "on_unmount", lambda frame: frame.app.draw_frames(), raising=False)
    async with running(console):
        assert drawn
        drawn.clear()
    assert drawn == []


@pytest.mark.long
@pytest.mark.parametrize(
    "before, key, opens",
    [
        ((), "n", "PromptArea"),
        ((), "?", "Filter"),
        (("2",), "/", "Filter"),
        (("2", "tab", "tab", "tab", "]", "down"), "c", "ReplyLine"),
    ],
)
async def test_text_typed_ahead_goes_into_the_text_that_its_key_opens(
    console: ConsoleApp, before: tuple[str, ...], key: str, opens: str
):
    async with running(console, *before) as pilot:
        for character in f"{key}why so":
            console.post_message(events.Key(_character_to_key(character), character))
        await until(pilot, lambda: type(console.focused).__name__ == opens)
        text = console.focused
        await until(pilot, lambda: (text.text if isinstance(text, TextArea) else text.value) == "why so")


async def test_a_terminal_that_is_lost_after_its_console_has_ended_changes_nothing(console: ConsoleApp):
    async with console.run_test(size=(120, 40)) as pilot:
        await until_loaded(pilot)
        console.quit()
        await pilot.pause()
    assert not console.is_running
    before = len(console.workers)
    console.quit()
    assert len(console.workers) == before


@pytest.mark.long
@pytest.mark.parametrize("dialog", ["question_mark", "n", "M", "apostrophe", "colon", "enter"])
@pytest.mark.parametrize("sizes", [((80, 24), (120, 40)), ((120, 40), (80, 24))], ids=["larger", "smaller"])
async def test_the_terminal_can_be_resized_behind_a_dialog(
    console: ConsoleApp, monkeypatch: pytest.MonkeyPatch, dialog: str, sizes: tuple[tuple[int, int], tuple[int, int]]
):
    def write_to_terminal(screen: Screen[object], update: CompositorUpdate):
        assert update.render_segments(console.console)
        drawn.append(screen)

    before, after = sizes
    drawn = []
    draw = Compositor.render_update
    async with console.run_test(size=before) as pilot:
        await open_screen(pilot, "mission")
        console._display = write_to_terminal
        monkeypatch.setattr(Compositor, "render_update", lambda self, screen_stack: draw(self, True, screen_stack))
        await pilot.press(dialog)
        await until(pilot, lambda: drawn and drawn[-1] is console.screen, "for its first frame")
        await pilot.pause()
        assert console.screen.is_modal, "it stays open"
        await pilot.resize_terminal(*after)
        await until(pilot, lambda: drawn and drawn[-1]._compositor.size == after, "for a frame of the new size")
        assert [line.cell_length for line in read_lines(console)] == [after[0]] * after[1]


async def test_nothing_is_drawn_until_it_can_be_shown(console: ConsoleApp, monkeypatch: pytest.MonkeyPatch):
    drawn = []
    async with console.run_test(size=(120, 40)) as pilot:
        await open_screen(pilot, "mission")
        monkeypatch.setattr(Compositor, "render_update", lambda self, screen_stack: drawn.append(self.size))
        with console.batch_update():  # as before the first frame
            await pilot.resize_terminal(100, 40)
            assert console.screen.has_class("-normal")
            assert console.screen.size == (100, 40)
            assert drawn == []
        await until(pilot, lambda: drawn and drawn[-1] == (100, 40), "for a frame of the new size")


@pytest.mark.parametrize("size", [Size(40, 12), Size(160, 50)], ids=["smaller", "larger"])
async def test_a_dialog_is_drawn_in_its_old_size_until_the_new_one_has_reached_it(console: ConsoleApp, size: Size):
    async with console.run_test(size=(100, 40)) as pilot:
        await open_screen(pilot, "mission")
        await pilot.press("n")
        await until(pilot, lambda: console.screen.is_modal, "for the dialog")
        await pilot.pause()
        await console._on_resize(events.Resize(size, size))  # its screens get it 1/120 s later
        assert [line.cell_length for line in read_lines(console)] == [100] * 40


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
async def test_a_terminal_that_was_narrow_for_a_moment_shows_what_it_showed_before(
    console: ConsoleApp, monkeypatch: pytest.MonkeyPatch, mode: str
):
    draw = Compositor.render_update
    async with console.run_test(size=(100, 40)) as pilot:
        screen = await open_screen(pilot, mode)
        before = read_lines(console)
        monkeypatch.setattr(Compositor, "render_update", lambda self, screen_stack: draw(self, True, screen_stack))
        await pilot.resize_terminal(40, 12)  # the first frame still has all columns, some of them without any width
        await until(pilot, lambda: screen.has_class("-narrow"), "for the columns of the new size")
        await pilot.resize_terminal(100, 40)
        await until(pilot, lambda: screen.has_class("-normal"), "for the columns of the old size")
        await pilot.pause()
        assert read_lines(console) == before
