"""The base of views of many rows, of which only those in sight are drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import style as textual_style
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from clawpy_console.formats import fit_to_width
from clawpy_console.keys import bindings
from clawpy_console.widgets.scrolling import ScrollKeys


class RowView(ScrollView, ScrollKeys):
    """Base of a view of many rows, which are drawn in named styles.

    Textual's component classes are not used: for each of them Textual makes a widget and matches it with every style
    rule whenever the real one is styled, which took longer than styling all the widgets of a screen.
    """

    BINDINGS = bindings("rows", but="rows.open")
    TONES: ClassVar[Mapping[str, str]] = {}
    """Styles by name, as `Content` takes them; other names are colours of the theme."""

    DEFAULT_CSS = "RowView { height: 1fr; scrollbar-size: 0 1; overflow-x: hidden; }"

    def __init__(self, *, empty: str = "", id: str | None = None, classes: str | None = None) -> None:
        """`empty` is shown in place of the rows where there are none."""
        super().__init__(id=id, classes=classes)
        self.empty = empty
        self.set_reactive(RowView.virtual_size, Size(0, 1))
        self._tones: dict[str, Style] = {}

    @property
    def row_count(self) -> int:
        """Number of rows."""
        raise NotImplementedError

    def draw_row(self, number: int, width: int, base: Style) -> Strip:
        """Row `number`, counted from 0, in `width` cells; `base` is the style of the widget."""
        raise NotImplementedError

    def update_row_count(self) -> None:
        """Adapt the scrollbar to `row_count`, and draw all rows again."""
        self.virtual_size = Size(0, max(1, self.row_count))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        number, width = y + self.scroll_offset.y, self.scrollable_content_region.width
        base = self.visual_style.rich_style
        if number < self.row_count:
            return self.draw_row(number, width, base)
        if self.row_count or number or not self.empty:
            return Strip.blank(width, base)
        return Strip([Segment(fit_to_width(f"  {self.empty}", width), base + self.tone("faint"))])

    def tone(self, name: str) -> Style:
        """The style `name` in the colours of the theme; it is added to the widget's own.

        Textual reads the style, because it knows the theme. Rows are drawn with the style of Rich that it gives.
        """
        if name not in self._tones:
            style = textual_style.Style.parse(self.TONES.get(name, f"${name}"))
            if style.background is not None and style.background.a < 1:
                style = textual_style.Style(background=self.background_colors[1]) + style
            self._tones[name] = style.rich_style
        return self._tones[name]

    def notify_style_update(self) -> None:
        super().notify_style_update()
        before, self._tones = self._tones, {}
        if any(self.tone(name) != style for name, style in before.items()):
            self.refresh()

    def selection_updated(self, selection: object) -> None:
        self.refresh()
