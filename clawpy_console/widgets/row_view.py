"""Views of many rows that draw only those in sight, in styles that have names; such views with a cursor; and what the
keys of a list and the mouse do to all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.containers import VerticalScroll
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.style import Style as TextualStyle
from textual.widget import Widget

from clawpy_console import words
from clawpy_console.keys import bindings


def selectable(widget: Widget, segments: Iterable[Segment], x: int, y: int) -> list[Segment]:
    """`segments` of `widget` that say where they stand; what is selected is lit. They begin at character `x` of line
    `y` of the text that is copied from the widget."""
    span = widget.text_selection.get_span(y) if widget.text_selection is not None else None
    light = widget.screen.get_component_rich_style("screen--selection").background_style if span else Style()
    pieces = []
    for text, style, _ in segments:
        start, end = (max(0, min(item - x, len(text))) if item >= 0 else len(text) for item in span or (0, 0))
        for begin, stop in pairwise((0, start, max(start, end), len(text))):
            lit = light if begin == start and stop == end else Style()
            place = Style.from_meta({"offset": (x + begin, y)})
            pieces += [Segment(text[begin:stop], (style or Style()) + lit + place)] if begin < stop else []
        x += len(text)
    return pieces


if TYPE_CHECKING:
    from textual.widget import Widget as Scrolling
else:
    Scrolling = object  # a second widget among its bases would cost a widget the styles of the first

SCROLLS = bindings("rows", but="rows.open")
"""The bindings of a widget with `ScrollKeys`."""


class ScrollKeys(Scrolling):
    """What j and k, arrows, pages, ends do to a widget that scrolls and has no cursor."""

    def action_step(self, by: int) -> None:
        self.scroll_relative(y=by, animate=False)

    def action_page(self, by: int) -> None:
        self.scroll_relative(y=by * self.scrollable_content_region.height, animate=False)

    def action_first(self) -> None:
        self.scroll_home(animate=False)

    def action_last(self) -> None:
        self.scroll_end(animate=False)


class Scrolled(ScrollKeys, VerticalScroll, can_focus=True):
    """A column with the focus."""

    BINDINGS = SCROLLS
    DEFAULT_CSS = "Scrolled { scrollbar-size-vertical: 1; }"


class RowView(ScrollKeys, ScrollView):
    """Rows that are drawn in `TONES`: by name, a style as `Content` takes it; other names are colours of the theme.

    In place of Textual's component classes: for each of them it makes up a widget and matches it with every style rule
    whenever the real one is styled, which was more work than all the widgets of a screen.
    """

    BINDINGS = SCROLLS
    TONES: ClassVar[Mapping[str, str]] = {}
    DEFAULT_CSS = "RowView { height: 1fr; scrollbar-size: 0 1; overflow-x: hidden; }"

    def __init__(self, *, empty: str = "", id: str | None = None, classes: str | None = None) -> None:
        """`empty` is said in place of the rows where there are none."""
        super().__init__(id=id, classes=classes)
        self.empty = empty
        self.set_reactive(RowView.virtual_size, Size(0, 1))
        self._tones: dict[str, Style] = {}

    @property
    def height(self) -> int:
        """How many rows there are."""
        raise NotImplementedError

    def row(self, number: int, width: int, base: Style) -> Strip:
        """Row `number`, counted from 0, in `width` cells; `base` is the style of the widget."""
        raise NotImplementedError

    def resized(self) -> None:
        """There are more rows, or fewer."""
        self.virtual_size = Size(0, max(1, self.height))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        number, width = y + self.scroll_offset.y, self.scrollable_content_region.width
        base = self.visual_style.rich_style
        if number < self.height:
            return self.row(number, width, base)
        if self.height or number or not self.empty:
            return Strip.blank(width, base)
        return Strip([Segment(words.fit_to_width(f"  {self.empty}", width), base + self.tone("faint"))])

    def tone(self, name: str) -> Style:
        """The style `name` in the colours of the theme, to lay over the widget's own."""
        if name not in self._tones:
            style = TextualStyle.parse(self.TONES.get(name, f"${name}"))
            if style.background is not None and style.background.a < 1:
                style = TextualStyle(background=self.background_colors[1]) + style
            self._tones[name] = style.rich_style
        return self._tones[name]

    def notify_style_update(self) -> None:
        super().notify_style_update()
        before, self._tones = self._tones, {}
        if any(self.tone(name) != style for name, style in before.items()):
            self.refresh()


class CursorView(RowView):
    """Entries, numbered from 0, with a cursor on one of them. Posts `Moved` when it moves."""

    cursor: reactive[int] = reactive(0)

    @dataclass
    class Moved(Message):
        """The cursor of `view` stands on another entry."""

        view: CursorView

        @property
        def control(self) -> CursorView:
            return self.view

    @property
    def entries(self) -> int:
        """How many entries there are; each is a row where a class does not say otherwise."""
        return self.height

    def takes(self, number: int) -> bool:
        """Whether the cursor can stand on this entry."""
        return 0 <= number < self.entries

    def place(self, number: int) -> Region:
        """The rows of an entry."""
        return Region(0, number, 1, 1)

    def entry_at(self, row: int) -> int:
        """The entry that row `row` belongs to."""
        return row

    def go(self, number: int, by: int) -> None:
        """Put the cursor on entry `number`, or on the next one that takes it, in steps of `by` (1 or -1)."""
        number = max(0, min(number, self.entries - 1))
        self.cursor = next(filter(self.takes, range(number, self.entries if by > 0 else -1, by)), self.cursor)

    def show_cursor(self) -> None:
        """Scroll to where the cursor is."""
        if self.takes(self.cursor):
            self.scroll_to_region(self.place(self.cursor), animate=False)

    def refresh_entry(self, number: int) -> None:
        """Draw this entry again, if it is there."""
        if self.takes(number):
            place = self.place(number)
            self.refresh_lines(place.y, place.height)

    def watch_cursor(self, before: int, now: int) -> None:
        self.refresh_entry(before)
        self.refresh_entry(now)
        self.show_cursor()
        self.post_message(self.Moved(self))

    def on_focus(self) -> None:
        self.refresh_entry(self.cursor)

    def on_blur(self) -> None:
        self.refresh_entry(self.cursor)

    def on_click(self, event: events.Click) -> None:
        number = self.entry_at(event.y + self.scroll_offset.y)
        if self.takes(number):
            self.click(number)

    def click(self, number: int) -> None:
        """Put the cursor on this entry; open it where it is there already."""
        if number == self.cursor:
            self.action_open()
        self.cursor = number

    def action_open(self) -> None:
        """Do what Enter does with the entry under the cursor."""

    def action_step(self, by: int) -> None:
        self.go(self.cursor + by, by)

    def action_page(self, by: int) -> None:
        self.go(self.cursor + by * self.size.height, -by)

    def action_first(self) -> None:
        self.go(0, 1)

    def action_last(self) -> None:
        self.go(self.entries - 1, -1)
