"""A line of tabs: which there are, and which is shown."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget


class TabLine(Widget):
    """One line. Posts `Chosen` on a click on a tab."""

    DEFAULT_CSS = "TabLine { height: 1; padding: 0 1; }"

    tabs: reactive[tuple[tuple[str, str], ...]] = reactive(())
    here: reactive[str] = reactive("")

    class Chosen(Message):
        """The operator wants this tab."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def show(self, tabs: Sequence[tuple[str, str]], here: str) -> None:
        """`tabs` are names, each with what stands behind it (a count, "" for nothing)."""
        self.tabs, self.here = tuple(tabs), here

    def _words(self) -> list[tuple[str, str]]:
        """Each tab's name and what is written for it; the one that is shown is also told by brackets."""
        said = [(name, f"{name} {more}" if more else name) for name, more in self.tabs]
        return [(name, f"[{text}]" if name == self.here else f" {text} ") for name, text in said]

    def render(self) -> Content:
        parts = [(text, "bold $accent" if name == self.here else "$grey") for name, text in self._words()]
        return Content.assemble(*parts)

    def on_click(self, event: events.Click) -> None:
        at = 1
        for name, text in self._words():
            if at <= event.x < at + cell_len(text):
                self.post_message(self.Chosen(name))
            at += cell_len(text)
