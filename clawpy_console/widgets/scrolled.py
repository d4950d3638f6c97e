"""Something long that is scrolled by the keys of a list."""

from __future__ import annotations

from textual.containers import VerticalScroll

from clawpy_console.actions import bindings


class Scrolled(VerticalScroll, can_focus=True):
    """A column with the focus: j and k, arrows, pages, ends."""

    BINDINGS = [one for one in bindings("rows") if one.id != "rows.open"]
    DEFAULT_CSS = "Scrolled { scrollbar-size-vertical: 1; }"

    def action_up(self) -> None:
        self.scroll_up(animate=False)

    def action_down(self) -> None:
        self.scroll_down(animate=False)

    def action_page_up(self) -> None:
        self.scroll_page_up(animate=False)

    def action_page_down(self) -> None:
        self.scroll_page_down(animate=False)

    def action_first(self) -> None:
        self.scroll_home(animate=False)

    def action_last(self) -> None:
        self.scroll_end(animate=False)
