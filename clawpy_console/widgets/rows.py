"""A list of one-line rows that is updated in place: the cursor stays on the same thing, nothing jumps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Offset, Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip

from clawpy_console import words
from clawpy_console.keys import bindings
from clawpy_console.widgets.toned import Toned


@dataclass(frozen=True, slots=True)
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


class Rows(Toned, can_focus=True):
    """Rows with a cursor. Posts `Opened` on Enter or a click on the row under the cursor, `Moved` when it moves.

    Of class `-fit` it is as high as it has rows; of class `-lit` its cursor shows whoever has the focus. `opens` says
    whether Enter does anything with a row; where it does not, it zooms.
    """

    BINDINGS = bindings("rows")
    TONES = {
        "ink": "$ink", "grey": "$grey", "faint": "$faint", "accent": "$accent", "wants": "$wants", "wrong": "$wrong",
        "good": "$good", "lit": "on $lit", "heading": "$faint",
    }  # fmt: skip
    DEFAULT_CSS = "Rows { height: 1fr; scrollbar-size-vertical: 1; overflow-x: hidden; &.-fit { height: auto; } }"

    cursor: reactive[int] = reactive(0)

    class Opened(Message):
        """The operator opened the row of `row_id`."""

        def __init__(self, rows: Rows, row_id: str) -> None:
            super().__init__()
            self.rows, self.row_id = rows, row_id

        @property
        def control(self) -> Rows:
            return self.rows

    class Moved(Message):
        """The cursor stands on `row_id` now."""

        def __init__(self, rows: Rows, row_id: str) -> None:
            super().__init__()
            self.rows, self.row_id = rows, row_id

        @property
        def control(self) -> Rows:
            return self.rows

    def __init__(
        self, *, empty: str = "", opens: bool = True, id: str | None = None, classes: str | None = None
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._opens = opens
        self._rows: tuple[Row, ...] = ()
        self._empty = empty
        self._width = 0

    @property
    def current(self) -> str:
        """The id under the cursor, "" when there is none."""
        return self._rows[self.cursor].id if 0 <= self.cursor < len(self._rows) else ""

    def show(self, rows: Sequence[Row], *, empty: str | None = None) -> None:
        """Replace what is shown. The cursor stays on the id it is on, else as near as it can."""
        rows = tuple(rows)
        if rows == self._rows and (empty is None or empty == self._empty):
            return
        self._empty = self._empty if empty is None else empty
        was, at = self.current, self.cursor
        self._rows = rows
        places = [number for number, row in enumerate(rows) if row.id]
        again = next((number for number in places if rows[number].id == was), None)
        nearest = min(places, key=lambda number: abs(number - at), default=0)
        self.virtual_size = Size(self._inner_width(), max(1, len(rows)))
        if self.has_class("-fit"):
            self.refresh(layout=True)
        self.set_reactive(Rows.cursor, nearest if again is None or not was else again)
        if self.current != was:
            self.post_message(self.Moved(self, self.current))
        self.refresh()

    def select(self, row_id: str) -> None:
        """Put the cursor on `row_id`, if it is there."""
        for number, row in enumerate(self._rows):
            if row.id == row_id:
                self.cursor = number

    def watch_cursor(self) -> None:
        self.scroll_to_region(Region(0, self.cursor, 1, 1), animate=False)
        self.refresh()
        self.post_message(self.Moved(self, self.current))

    def _inner_width(self) -> int:
        return max(1, self.scrollable_content_region.width)

    def on_resize(self) -> None:
        self.virtual_size = Size(self._inner_width(), max(1, len(self._rows)))
        self.scroll_to_region(Region(0, self.cursor, 1, 1), animate=False)

    def render_line(self, y: int) -> Strip:
        number = y + self.scroll_offset.y
        width = self._inner_width()
        base = self.visual_style.rich_style
        if not self._rows and number == 0 and self._empty:
            return Strip([Segment(words.fit("  " + self._empty, width), base + self.tone("faint"))])
        if number >= len(self._rows):
            return Strip.blank(width, base)
        row = self._rows[number]
        lit = number == self.cursor and (self.has_focus or self.has_class("-lit")) and bool(row.id)
        if lit:
            base += self.tone("lit")
        if not row.id:
            return Strip([Segment(words.fit(row.text, width), base + self.tone("heading"))])
        return self._row(row, width, base, lit)

    def _row(self, row: Row, width: int, base: Style, lit: bool) -> Strip:
        marker = Segment("▸" if lit else " ", base + self.tone("accent"))
        mark = f"{row.mark} " if row.mark else ""
        right = f" {row.right}" if row.right else ""
        room = width - 1 - cell_len(mark) - cell_len(right)
        if room < 8 and right:  # too narrow for both: the text matters more
            room, right = room + cell_len(right), ""
        return Strip(
            [
                marker,
                Segment(mark, base + self.tone(row.mark_style or row.style)),
                Segment(words.fit(row.text, max(0, room)), base + self.tone(row.style)),
                Segment(right, base + self.tone(row.right_style)),
            ]
        ).crop(0, width)

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        number = event.y + self.scroll_offset.y
        if number < len(self._rows) and self._rows[number].id:
            self.click(self._rows[number].id)

    @property
    def spots(self) -> list[tuple[Offset, Callable[[], object]]]:
        """The rows in sight, and what a click on each does."""
        first = self.scroll_offset.y
        shown = self._rows[first : first + self.size.height]
        return [(Offset(0, y), partial(self.click, row.id)) for y, row in enumerate(shown) if row.id]

    def click(self, row_id: str) -> None:
        """Put the cursor on this row; open it if it is there already."""
        if row_id == self.current:
            self.action_open()
        self.select(row_id)

    def _step(self, by: int) -> None:
        number = self.cursor + by
        while 0 <= number < len(self._rows) and not self._rows[number].id:
            number += 1 if by > 0 else -1
        if 0 <= number < len(self._rows):
            self.cursor = number

    def action_up(self) -> None:
        self._step(-1)

    def action_down(self) -> None:
        self._step(1)

    def action_page_up(self) -> None:
        self.cursor = max(self.cursor - self.size.height, 0)
        self._settle(1)

    def action_page_down(self) -> None:
        self.cursor = min(self.cursor + self.size.height, max(0, len(self._rows) - 1))
        self._settle(-1)

    def action_first(self) -> None:
        self.cursor = 0
        self._settle(1)

    def action_last(self) -> None:
        self.cursor = max(0, len(self._rows) - 1)
        self._settle(-1)

    def _settle(self, by: int) -> None:
        if self._rows and not self.current:
            self._step(by)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self._opens and bool(self.current) if action == "open" else super().check_action(action, parameters)

    def action_open(self) -> None:
        if self._opens and self.current:
            self.post_message(self.Opened(self, self.current))
