"""Pieces used by more than one screen. They draw values; they ask nobody anything.

Here is what most of them consist of: panes, and views of many rows, of which only those in sight are drawn. `RowView`
draws rows, `CursorView` adds a cursor, and `Rows` is the list that most screens use. Transcripts, diffs and prompts are
other views of these two kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, TypedDict, TypeVar, Unpack

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual import style as textual_style
from textual.containers import ScrollableContainer, Vertical, VerticalScroll
from textual.geometry import Offset, Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from clawpy_console.formats import fit_to_width
from clawpy_console.keys import make_bindings
from engine.frozen import frozen


class WidgetOptions(TypedDict, total=False):
    """What every widget takes."""

    id: str
    classes: str
    """Names of classes of the style sheets, with spaces between."""


class RowViewOptions(WidgetOptions, total=False):
    """What every view of rows takes."""

    empty: str
    """Shown in place of the rows where there are none."""


class ScrollKeys(ScrollableContainer):
    """The actions of the keys of lists, for a widget that scrolls and has no cursor.

    It comes after the widget among the bases of a class, because Textual takes styles from the first widget there.
    """

    def action_step(self, by: int) -> None:
        self.scroll_relative(y=by, animate=False)

    def action_page(self, by: int) -> None:
        self.scroll_relative(y=by * self.scrollable_content_region.height, animate=False)

    def action_first(self) -> None:
        self.scroll_home(animate=False)

    def action_last(self) -> None:
        self.scroll_end(animate=False)


class Pane(Vertical):
    """A pane of a screen: widgets one below the other. The one in focus is marked at its left edge."""

    DEFAULT_CLASSES = "pane"


class ScrollPane(VerticalScroll, ScrollKeys, can_focus=True):
    """A column of widgets that takes the focus and scrolls."""

    BINDINGS = make_bindings("rows", without="rows.open")
    DEFAULT_CSS = "ScrollPane { scrollbar-size-vertical: 1; }"


def make_selectable(widget: Widget, segments: Iterable[Segment], x: int, y: int) -> list[Segment]:
    """`segments` of `widget` with their place in the text that is copied from it; the selected part is highlighted.

    The segments begin at character `x` of line `y` of that text.
    """
    span = widget.text_selection.get_span(y) if widget.text_selection is not None else None
    first, last = span or (0, 0)  # a `last` of -1 is the end of the line
    plain = Style()
    highlight = widget.screen.get_component_rich_style("screen--selection").background_style if span else plain
    pieces = []
    for text, style, _ in segments:
        length = len(text)
        start = max(0, min(first - x, length))
        end = length if last < 0 else max(start, min(last - x, length))
        for begin, stop, selection in ((0, start, plain), (start, end, highlight), (end, length, plain)):
            if begin < stop:
                offset = Style.from_meta({"offset": (x + begin, y)})
                pieces.append(Segment(text[begin:stop], (style or plain) + selection + offset))
        x += length
    return pieces


class RowView(ScrollView, ScrollKeys):
    """Base of a view of many rows, which are drawn in named styles.

    Textual's component classes are not used: for each of them Textual makes a widget and matches it with every style
    rule whenever the real one is styled, which took longer than styling all the widgets of a screen.
    """

    BINDINGS = make_bindings("rows", without="rows.open")
    TONES: ClassVar[Mapping[str, str]] = {}
    """Styles by name, as `Content` takes them; other names are colours of the theme."""

    DEFAULT_CSS = "RowView { height: 1fr; scrollbar-size: 0 1; overflow-x: hidden; }"

    def __init__(self, *, empty: str = "", **options: Unpack[WidgetOptions]) -> None:
        super().__init__(**options)
        self.empty = empty
        self.set_reactive(RowView.virtual_size, Size(0, 1))
        self._styles_by_tone: dict[str, Style] = {}

    @property
    def row_count(self) -> int:
        """Number of rows."""
        raise NotImplementedError

    def draw_row(self, number: int, width: int, base: Style) -> Strip:
        """Row `number`, counted from 0, in `width` cells; `base` is the style of the widget."""
        raise NotImplementedError

    def update_row_count(self) -> None:
        """Adapt the scrollbar to `row_count`, and draw all rows again. The screen is laid out again only if the view
        is as high as its rows, or if the scrollbar comes or goes."""
        size = Size(0, max(1, self.row_count))
        has_scrollbar = size.height > self.container_size.height
        if self.styles.is_auto_height or has_scrollbar != self.show_vertical_scrollbar:
            self.virtual_size = size
        elif size != self.virtual_size:
            self.set_reactive(RowView.virtual_size, size)
            self._scroll_update(size)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        number = y + self.scroll_offset.y
        width = self.scrollable_content_region.width
        base = self.visual_style.rich_style
        if number < self.row_count:
            return self.draw_row(number, width, base)
        if self.row_count or number or not self.empty:
            return Strip.blank(width, base)
        return Strip([Segment(fit_to_width(f"  {self.empty}", width), base + self.get_style("faint"))])

    def get_style(self, name: str) -> Style:
        """The style `name` in the colours of the theme; it is added to the widget's own.

        Textual reads the style, because it knows the theme. Rows are drawn with the style of Rich that it gives.
        """
        if name not in self._styles_by_tone:
            style = textual_style.Style.parse(self.TONES.get(name, f"${name}"))
            if style.background is not None and style.background.a < 1:
                style = textual_style.Style(background=self.background_colors[1]) + style
            self._styles_by_tone[name] = style.rich_style
        return self._styles_by_tone[name]

    def notify_style_update(self) -> None:
        super().notify_style_update()
        before = self._styles_by_tone
        self._styles_by_tone = {}
        if any(self.get_style(name) != style for name, style in before.items()):
            self.refresh()

    def selection_updated(self, selection: object) -> None:
        self.refresh()


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

    def compute_entry_region(self, number: int) -> Region:
        """The place of an entry among the rows."""
        return Region(0, number, 1, 1)

    def find_entry(self, row: int) -> int:
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
            self.scroll_to_region(self.compute_entry_region(self.cursor), animate=False)

    def refresh_entry(self, number: int) -> None:
        """Draw entry `number` again, if it exists."""
        if self.accepts_cursor(number):
            region = self.compute_entry_region(number)
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
        number = self.find_entry(event.y + self.scroll_offset.y)
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


T = TypeVar("T")


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


def group_rows(groups: Mapping[str, Sequence[Row]]) -> list[Row]:
    """The rows of `groups` below their headings, with blank lines between; groups without rows are left out."""
    rows: list[Row] = []
    for title, members in groups.items():
        if members and rows:
            rows.append(Row("", ""))
        if members and title:
            rows.append(Row("", f" {title}"))
        rows += members
    return rows


MIN_TEXT_CELLS = 8
"""Minimum number of cells for the text of a row; with less, what stands at the right edge is left out."""


class Rows(CursorView, can_focus=True):
    """A list of rows with a cursor. Posts `Opened` on Enter, and on a click on the row under the cursor.

    With the class `-fit` the list is as high as its rows. With `-lit` the cursor is shown without the focus, too. The
    list is updated in place: the cursor stays on the same id.
    """

    BINDINGS = make_bindings("rows")
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

    def __init__(self, *, can_open: bool = True, **options: Unpack[RowViewOptions]) -> None:
        """`can_open`: whether Enter opens a row; else it zooms the pane."""
        super().__init__(**options)
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
        current = self.current
        cursor = self.cursor
        self.rows = rows
        numbers = [number for number, row in enumerate(rows) if row.id]
        nearest = min(numbers, key=lambda number: (rows[number].id != current, abs(number - cursor)), default=0)
        self.set_reactive(Rows.cursor, nearest)
        self.update_row_count()
        if self.current != current:
            self.post_message(self.Moved(self))

    def select(self, row_id: str) -> None:
        """Put the cursor on the row of `row_id`, if there is one, and scroll it into sight."""
        self.cursor = next((number for number, row in enumerate(self.rows) if row.id == row_id), self.cursor)
        self.show_cursor()

    def draw_row(self, number: int, width: int, base: Style) -> Strip:
        """A row: cursor, mark, text, and what stands at its right end if there is room for it."""
        row = self.rows[number]
        if not row.id:
            return Strip([Segment(fit_to_width(row.text, width), base + self.get_style("heading"))])
        has_cursor = number == self.cursor and (self.has_focus or self.has_class("-lit"))
        base = base + self.get_style("lit") if has_cursor else base
        mark = f"{row.mark} " if row.mark else ""
        right = f" {row.right}" if row.right else ""
        text_width = width - 1 - cell_len(mark) - cell_len(right)
        if text_width < MIN_TEXT_CELLS and right:
            text_width += cell_len(right)
            right = ""
        parts = (
            ("▸" if has_cursor else " ", "accent"),
            (mark, row.mark_style or row.style),
            (fit_to_width(row.text, max(0, text_width)), row.style),
            (right, row.right_style),
        )
        return Strip([Segment(text, base + self.get_style(tone)) for text, tone in parts]).crop(0, width)

    @property
    def spots(self) -> list[tuple[Offset, Callable[[], object]]]:
        """The rows in sight, each with what a click on it does."""
        first = self.scroll_offset.y
        numbers = range(first, min(first + self.size.height, len(self.rows)))
        return [
            (Offset(0, number - first), partial(self.click, number))
            for number in numbers
            if self.accepts_cursor(number)
        ]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "open":
            return self._can_open and bool(self.current)
        return super().check_action(action, parameters)

    def action_open(self) -> None:
        if self._can_open and self.current:
            self.post_message(self.Opened(self, self.current))
