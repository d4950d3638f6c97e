"""A list of one-line rows that is updated in place: the cursor stays on the same thing, nothing jumps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Offset
from textual.message import Message
from textual.strip import Strip

from clawpy_console import words
from clawpy_console.keys import bindings
from clawpy_console.widgets.row_view import CursorView
from engine.frozen import frozen


@frozen
class Row:
    """One row: a glyph, a text, something at the right edge, each with the name of a style of `Rows`.

    `id` is what the row stands for; "" makes it a heading that the cursor passes over.
    """

    id: str
    text: str
    mark: str = ""
    right: str = ""
    style: str = "ink"
    mark_style: str = ""
    right_style: str = "faint"


def grouped(groups: Mapping[str, Sequence[Row]]) -> list[Row]:
    """Rows below the headings of their groups, a blank line between; groups without rows are left out."""
    rows: list[Row] = []
    for title, members in groups.items():
        if members:
            rows += [Row("", "")] if rows else []
            rows += [Row("", f" {title}"), *members] if title else members
    return rows


class Rows(CursorView, can_focus=True):
    """Rows with a cursor. Posts `Opened` on Enter or a click on the row under the cursor, `Moved` when it moves.

    Of class `-fit` it is as high as it has rows; of class `-lit` its cursor shows whoever has the focus. `opens` says
    whether Enter does anything with a row; where it does not, it zooms.
    """

    BINDINGS = bindings("rows")
    TONES = {"lit": "on $lit", "heading": "$faint"}
    DEFAULT_CSS = "Rows.-fit { height: auto; }"

    @dataclass
    class Opened(Message):
        """You opened the row of `row_id`."""

        rows: Rows
        row_id: str

        @property
        def control(self) -> Rows:
            return self.rows

    def __init__(
        self, *, empty: str = "", opens: bool = True, id: str | None = None, classes: str | None = None
    ) -> None:
        super().__init__(empty=empty, id=id, classes=classes)
        self._opens = opens
        self._rows: tuple[Row, ...] = ()

    @property
    def height(self) -> int:
        return len(self._rows)

    def takes(self, number: int) -> bool:
        return 0 <= number < len(self._rows) and bool(self._rows[number].id)

    @property
    def current(self) -> str:
        """The id under the cursor, "" when there is none."""
        return self._rows[self.cursor].id if self.takes(self.cursor) else ""

    def show(self, rows: Sequence[Row], *, empty: str | None = None) -> None:
        """Replace what is shown. The cursor stays on the id it is on, else as near as it can."""
        rows = tuple(rows)
        if rows == self._rows and (empty is None or empty == self.empty):
            return
        self.empty = self.empty if empty is None else empty
        was, at = self.current, self.cursor
        self._rows = rows
        numbers = [number for number, row in enumerate(rows) if row.id]
        self.set_reactive(
            Rows.cursor, min(numbers, key=lambda place: (rows[place].id != was, abs(place - at)), default=0)
        )
        self.resized()
        if self.has_class("-fit"):
            self.refresh(layout=True)
        if self.current != was:
            self.post_message(self.Moved(self))

    def select(self, row_id: str) -> None:
        """Put the cursor on `row_id`, if it is there."""
        for number, row in enumerate(self._rows):
            if row.id == row_id:
                self.cursor = number

    def on_resize(self) -> None:
        self.show_cursor()

    def row(self, number: int, width: int, base: Style) -> Strip:
        row = self._rows[number]
        if not row.id:
            return Strip([Segment(words.fit_to_width(row.text, width), base + self.tone("heading"))])
        lit = number == self.cursor and (self.has_focus or self.has_class("-lit"))
        base = base + self.tone("lit") if lit else base
        mark = f"{row.mark} " if row.mark else ""
        right = f" {row.right}" if row.right else ""
        room = width - 1 - cell_len(mark) - cell_len(right)
        if room < 8 and right:  # too narrow for both: the text matters more
            room, right = room + cell_len(right), ""
        parts = (
            ("▸" if lit else " ", "accent"),
            (mark, row.mark_style or row.style),
            (words.fit_to_width(row.text, max(0, room)), row.style),
            (right, row.right_style),
        )
        return Strip([Segment(text, base + self.tone(tone)) for text, tone in parts]).crop(0, width)

    @property
    def spots(self) -> list[tuple[Offset, Callable[[], object]]]:
        """The rows in sight, and what a click on each does."""
        first = self.scroll_offset.y
        shown = self._rows[first : first + self.size.height]
        return [(Offset(0, y), partial(self._press, row.id)) for y, row in enumerate(shown) if row.id]

    def _press(self, row_id: str) -> None:
        """Do what a click on the row of `row_id` does, wherever it is by now."""
        if row_id == self.current:
            self.action_open()
        self.select(row_id)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self._opens and bool(self.current) if action == "open" else super().check_action(action, parameters)

    def action_open(self) -> None:
        if self._opens and self.current:
            self.post_message(self.Opened(self, self.current))
