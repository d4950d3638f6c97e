"""The keys of lists in widgets that scroll and have no cursor, and a pane with these keys."""

from __future__ import annotations

from textual.containers import ScrollableContainer, VerticalScroll

from clawpy_console.keys import bindings


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


class ScrollPane(VerticalScroll, ScrollKeys, can_focus=True):
    """A column of widgets that takes the focus and scrolls."""

    BINDINGS = bindings("rows", but="rows.open")
    DEFAULT_CSS = "ScrollPane { scrollbar-size-vertical: 1; }"
