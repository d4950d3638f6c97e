"""Something long that is scrolled by the keys of a list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.containers import VerticalScroll

from clawpy_console.keys import bindings

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
