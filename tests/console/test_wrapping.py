"""Long lines: rows that break at words, and what the mouse selects copied as it was before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.app import App, ComposeResult
from textual.selection import Selection
from textual.widget import Widget

from clawpy_console.app import ConsoleApp
from clawpy_console.widgets.prompt_lines import SOURCE_CELLS, PromptLines
from clawpy_console.widgets.transcript import LinesView, row_starts
from engine.model import PromptLine, PromptPart, PromptSource, SourceKind

LONG = "the quick brown fox jumps over the lazy dog and then over it once more"


def rows_of(text: str, room: int) -> list[str]:
    starts = row_starts(text, room)
    return [text[a:b] for a, b in zip(starts, [*starts[1:], None], strict=True)]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("one two three", ["one two ", "three"]),
        ("12345678", ["12345678"]),
        ("123456789", ["12345678", "9"]),
        ("to unbelievable", ["to ", "unbeliev", "able"]),
        ("漢字漢字漢字", ["漢字漢字", "漢字"]),
        ("", [""]),
    ],
)
def test_rows_break_at_words_and_within_a_word_only_where_it_is_too_long(text: str, rows: list[str]) -> None:
    assert rows_of(text, 8) == rows


@given(st.text(st.sampled_from("ab 漢é-"), max_size=60), st.integers(8, 30))
def test_rows_are_the_whole_text_and_none_is_too_wide(text: str, room: int) -> None:
    rows = rows_of(text, room)
    assert "".join(rows) == text
    assert all(cell_len(row.rstrip()) <= room for row in rows)


class Showing(App[None]):
    def __init__(self, view: Widget) -> None:
        super().__init__()
        self.view = view

    get_theme_variable_defaults = ConsoleApp.get_theme_variable_defaults  # type: ignore[assignment]

    def compose(self) -> ComposeResult:
        yield self.view


def shown(view: LinesView, y: int) -> str:
    return "".join(segment.text for segment in view.render_line(y)).rstrip()


def lit(view: LinesView, y: int) -> str:
    """What of row `y` is shown as selected."""
    colour = view.screen.get_component_rich_style("screen--selection").bgcolor
    return "".join(item.text for item in view.render_line(y) if item.style and item.style.bgcolor == colour)


async def test_a_selection_over_rows_is_copied_as_one_line() -> None:
    view = LinesView()
    app = Showing(view)
    async with app.run_test(size=(40, 10)) as pilot:
        view.extend([("say", LONG), ("output", "漢字 and the end")])
        await pilot.pause()
        assert [shown(view, y) for y in range(3)] == [
            "● the quick brown fox jumps over the", "  lazy dog and then over it once more", "  漢字 and the end",
        ]  # fmt: skip
        _, start = app.screen.get_widget_and_offset_at(6, 0)
        _, end = app.screen.get_widget_and_offset_at(10, 1)
        assert start is not None
        assert end is not None
        chosen = Selection.from_offsets(start, end)
        app.screen.selections = {view: chosen}
        assert view.get_selection(chosen) == ("quick brown fox jumps over the lazy dog", "\n")
        assert [lit(view, y).strip() for y in range(3)] == ["quick brown fox jumps over the", "lazy dog", ""]
        _, end = app.screen.get_widget_and_offset_at(6, 2)
        assert end is not None
        chosen = Selection.from_offsets(start, end)
        app.screen.selections = {view: chosen}
        copied = view.get_selection(chosen)
        assert copied is not None
        assert copied[0].endswith("once more\n  漢字")
        assert lit(view, 2) == "  漢字", "what is lit is what is copied"


async def test_a_prompt_is_copied_without_its_gutter() -> None:
    view = PromptLines()
    app = Showing(view)
    async with app.run_test(size=(60, 10)) as pilot:
        source = PromptSource(SourceKind.SOUL, label="soul.md")
        view.show([PromptPart("identity", (PromptLine(LONG, source),))])
        await pilot.pause()
        row = next(y for y in range(6) if "the quick" in shown(view, y))
        for x in (0, SOURCE_CELLS):  # in the gutter, and on the first character
            _, start = app.screen.get_widget_and_offset_at(x, row)
            _, end = app.screen.get_widget_and_offset_at(SOURCE_CELLS + 3, row)
            assert start is not None
            assert end is not None
            chosen = Selection.from_offsets(start, end)
            assert view.get_selection(chosen) == ("the", "\n")
        _, below = app.screen.get_widget_and_offset_at(3, row + 1)
        assert below is not None
        copied = view.get_selection(Selection.from_offsets(start, below))
        assert copied is not None
        assert LONG.startswith(copied[0])
        assert copied[0].endswith(" ")
