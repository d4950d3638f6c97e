"""The base of views of many rows with a cursor."""

from __future__ import annotations

from dataclasses import dataclass

from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.reactive import reactive

from clawpy_console.widgets.row_view import RowView


class CursorView(RowView):
    """A view of entries, numbered from 0, with a cursor on one of them. Posts `Moved` when the cursor moves."""

    cursor: reactive[int] = reactive(0)

    @dataclass
    class Moved(Message):
        """The cursor of `view` stands on another entry."""

        view: CursorView

        @property
        def control(self) -> CursorView:
            return self.view

    @property
    def entry_count(self) -> int:
        """Number of entries. Here each entry is one row."""
        return self.row_count

    def accepts_cursor(self, number: int) -> bool:
        """Whether the cursor can stand on this entry."""
        return 0 <= number < self.entry_count

    def entry_region(self, number: int) -> Region:
        """The place of an entry among the rows."""
        return Region(0, number, 1, 1)

    def entry_at(self, row: int) -> int:
        """The entry that row `row` belongs to."""
        return row

    def move_cursor(self, number: int, step: int) -> None:
        """Put the cursor on entry `number`, else on the next that accepts it, or with a `step` of -1 the previous."""
        number = max(0, min(number, self.entry_count - 1))
        candidates = range(number, self.entry_count if step > 0 else -1, step)
        self.cursor = next(filter(self.accepts_cursor, candidates), self.cursor)

    def show_cursor(self) -> None:
        """Scroll the cursor into sight."""
        if self.accepts_cursor(self.cursor):
            self.scroll_to_region(self.entry_region(self.cursor), animate=False)

    def refresh_entry(self, number: int) -> None:
        """Draw entry `number` again, if it exists."""
        if self.accepts_cursor(number):
            region = self.entry_region(number)
            self.refresh_lines(region.y, region.height)

    def watch_cursor(self, before: int, after: int) -> None:
        self.refresh_entry(before)
        self.refresh_entry(after)
        self.show_cursor()
        self.post_message(self.Moved(self))

    def on_focus(self) -> None:
        self.refresh_entry(self.cursor)

    def on_blur(self) -> None:
        self.refresh_entry(self.cursor)

    def on_resize(self) -> None:
        self.show_cursor()

    def on_click(self, event: events.Click) -> None:
        number = self.entry_at(event.y + self.scroll_offset.y)
        if self.accepts_cursor(number):
            self.click(number)

    def click(self, number: int) -> None:
        """Put the cursor on entry `number`; open the entry when the cursor is there already."""
        if number == self.cursor:
            self.action_open()
        self.cursor = number

    def action_open(self) -> None:
        """Open the entry under the cursor. Called on Enter and on a click."""

    def action_step(self, by: int) -> None:
        self.move_cursor(self.cursor + by, by)

    def action_page(self, by: int) -> None:
        self.move_cursor(self.cursor + by * self.size.height, -by)

    def action_first(self) -> None:
        self.move_cursor(0, 1)

    def action_last(self) -> None:
        self.move_cursor(self.entry_count - 1, -1)
