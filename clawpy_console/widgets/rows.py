"""A list of one-line rows with a cursor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Offset
from textual.message import Message
from textual.strip import Strip

from clawpy_console.formats import fit_to_width
from clawpy_console.keys import bindings
from clawpy_console.widgets.row_view import CursorView
from engine.frozen import frozen

T = TypeVar("T")

MIN_TEXT_CELLS = 8
"""Minimum number of cells for the text of a row; with less, what stands at the right edge is left out."""


@frozen
class Row:
    """One row: a sign, a text and a text at the right edge, each with the name of a style of `Rows`."""

    id: str
    """The id of what the row stands for; "" for a heading, which the cursor skips."""
    text: str
    mark: str = ""
    right: str = ""
    style: str = "ink"
    mark_style: str = ""
    right_style: str = "faint"


def grouped(groups: Mapping[str, Sequence[Row]]) -> list[Row]:
    """The rows of `groups` below their headings, with blank lines between; groups without rows are left out."""
    rows: list[Row] = []
    for title, members in groups.items():
        if members and rows:
            rows.append(Row("", ""))
        if members and title:
            rows.append(Row("", f" {title}"))
        rows += members
    return rows


class Rows(CursorView, can_focus=True):
    """A list of rows with a cursor. Posts `Opened` on Enter, and on a click on the row under the cursor.

    With the class `-fit` the list is as high as its rows. With `-lit` the cursor is shown without the focus, too. The
    list is updated in place: the cursor stays on the same id.
    """

    BINDINGS = bindings("rows")
    TONES = {"lit": "on $lit", "heading": "$faint"}
    DEFAULT_CSS = "Rows.-fit { height: auto; }"

    @dataclass
    class Opened(Message):
        """The operator opened the row of `row_id`."""

        rows: Rows
        row_id: str

        @property
        def control(self) -> Rows:
            return self.rows

    def __init__(
        self, *, empty: str = "", can_open: bool = True, id: str | None = None, classes: str | None = None
    ) -> None:
        """`can_open`: whether Enter opens a row; else it zooms the pane."""
        super().__init__(empty=empty, id=id, classes=classes)
        self._can_open = can_open
        self.rows: Sequence[Row] = ()

    @property
    def row_count(self) -> int:
        return len(self.rows)

    def accepts_cursor(self, number: int) -> bool:
        return super().accepts_cursor(number) and bool(self.rows[number].id)

    @property
    def current(self) -> str:
        """The id under the cursor, "" when there is none."""
        return self.rows[self.cursor].id if self.accepts_cursor(self.cursor) else ""

    def find(self, items: Iterable[T]) -> T | None:
        """The one of `items` whose `id` is under the cursor."""
        return next((item for item in items if str(getattr(item, "id", "")) == self.current), None)

    def show(self, rows: Sequence[Row], *, empty: str | None = None) -> None:
        """Replace the rows. The cursor stays on its id; where that is gone it goes to the nearest row."""
        if list(rows) == list(self.rows) and empty in (None, self.empty):
            return
        self.empty = self.empty if empty is None else empty
        current, cursor, self.rows = self.current, self.cursor, rows
        numbers = [number for number, row in enumerate(rows) if row.id]
        nearest = min(numbers, key=lambda number: (rows[number].id != current, abs(number - cursor)), default=0)
        self.set_reactive(Rows.cursor, nearest)
        self.update_row_count()
        if self.has_class("-fit"):
            self.refresh(layout=True)
        if self.current != current:
            self.post_message(self.Moved(self))

    def select(self, row_id: str) -> None:
        """Put the cursor on the row of `row_id`, if there is one, and scroll it into sight."""
        self.cursor = next((number for number, row in enumerate(self.rows) if row.id == row_id), self.cursor)
        self.show_cursor()

    def draw_row(self, number: int, width: int, base: Style) -> Strip:
        row = self.rows[number]
        if not row.id:
            return Strip([Segment(fit_to_width(row.text, width), base + self.tone("heading"))])
        has_cursor = number == self.cursor and (self.has_focus or self.has_class("-lit"))
        base = base + self.tone("lit") if has_cursor else base
        mark = f"{row.mark} " if row.mark else ""
        right = f" {row.right}" if row.right else ""
        text_width = width - 1 - cell_len(mark) - cell_len(right)
        if text_width < MIN_TEXT_CELLS and right:
            text_width, right = text_width + cell_len(right), ""
        parts = (
            ("▸" if has_cursor else " ", "accent"),
            (mark, row.mark_style or row.style),
            (fit_to_width(row.text, max(0, text_width)), row.style),
            (right, row.right_style),
        )
        return Strip([Segment(text, base + self.tone(tone)) for text, tone in parts]).crop(0, width)

    @property
    def spots(self) -> list[tuple[Offset, Callable[[], object]]]:
        """The rows in sight, each with what a click on it does."""
        first = self.scroll_offset.y
        numbers = range(first, min(first + self.size.height, len(self.rows)))
        return [(Offset(0, at - first), partial(self.click, at)) for at in numbers if self.accepts_cursor(at)]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "open":
            return self._can_open and bool(self.current)
        return super().check_action(action, parameters)

    def action_open(self) -> None:
        if self._can_open and self.current:
            self.post_message(self.Opened(self, self.current))
