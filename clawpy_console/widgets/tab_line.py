"""Lines that say which parts there are, and which is shown: tabs, and the columns of a terminal that shows one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.geometry import Offset, Region
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget


class _Line(Widget):
    """Names in a row, that of what is shown in brackets, and a hint at the end. A click on one chooses it."""

    tabs: reactive[tuple[tuple[str, str], ...]] = reactive(())
    here: reactive[str] = reactive("")
    hint: reactive[str] = reactive("")

    def show(self, tabs: Sequence[tuple[str, str]], here: str, hint: str = "") -> None:
        """Show `tabs`, names and words of each, and that `here` is the one that is shown."""
        self.tabs, self.here, self.hint = tuple(tabs), here, hint

    def _said(self, name: str, more: str) -> str:
        """What stands for a tab."""
        raise NotImplementedError

    def _chosen(self, name: str) -> Message:
        raise NotImplementedError

    def _words(self) -> list[tuple[str, str]]:
        """Each tab's name and what is written for it; the one that is shown is also told by brackets."""
        said = [(name, self._said(name, more)) for name, more in self.tabs]
        return [(name, f"[{text}]" if name == self.here else f" {text} ") for name, text in said]

    def render(self) -> Content:
        parts = [(text, "bold $accent" if name == self.here else "$grey") for name, text in self._words()]
        return Content.assemble(*parts, (f"  {self.hint}" if self.hint else "", "$faint"))

    @property
    def spots(self) -> list[tuple[Offset, Callable[[], object]]]:
        """The tabs, and what a click on each does."""
        return [(place.offset, partial(self.post_message, self._chosen(name))) for place, name in self._places()]

    def _places(self) -> Iterator[tuple[Region, str]]:
        at = self._start
        for name, text in self._words():
            yield Region(at, 0, cell_len(text), 1), name
            at += cell_len(text)

    @property
    def _start(self) -> int:
        """The cell of the first tab."""
        moved = self.content_size.width - self.render().cell_length if self.styles.text_align == "right" else 0
        return self.styles.padding.left + moved

    def on_click(self, event: events.Click) -> None:
        for place, name in self._places():
            if place.x <= event.x < place.right:
                self.post_message(self._chosen(name))


class TabLine(_Line):
    """Tabs, each with what stands behind its name: a count, "" for nothing. Posts `Chosen` on a click."""

    DEFAULT_CSS = "TabLine { height: 1; padding: 0 1; }"

    class Chosen(Message):
        """The operator wants this tab."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def _said(self, name: str, more: str) -> str:
        return f"{name} {more}" if more else name

    def _chosen(self, name: str) -> Message:
        return self.Chosen(name)


class Columns(_Line):
    """The columns of a screen by the words for each, for a terminal that has room for one. Posts `Chosen`."""

    DEFAULT_CSS = "Columns { height: 1; padding: 0 1; }"

    class Chosen(Message):
        """The operator wants this column."""

        def __init__(self, column: str) -> None:
            super().__init__()
            self.column = column

    def _said(self, name: str, more: str) -> str:
        return more

    def _chosen(self, name: str) -> Message:
        return self.Chosen(name)
