"""Names in a row, one of which is shown: the tabs of a pane, the columns of a narrow terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.content import Content
from textual.reactive import Reactive, reactive
from textual.widget import Widget


class Tabs(Widget):
    """Names in a row, the one that is shown in brackets, and a hint at the end. A click does `ACTION` with a name."""

    ACTION: ClassVar[str]
    DEFAULT_CSS = "Tabs { height: 1; padding: 0 1; }"

    auto_links = Reactive(False)
    tabs: reactive[tuple[tuple[str, str], ...]] = reactive(())
    here: reactive[str] = reactive("")
    hint: reactive[str] = reactive("")

    def show(self, tabs: Sequence[tuple[str, str]], here: str, hint: str = "") -> None:
        """Show `tabs`, names and words of each, and that `here` is the one that is shown."""
        self.tabs, self.here, self.hint = tuple(tabs), here, hint

    def render(self) -> Content:
        parts = [
            (f"[{text}]", f"bold $accent @click={self.ACTION}('{name}')")
            if name == self.here
            else (f" {text} ", f"$grey @click={self.ACTION}('{name}')")
            for name, text in self.tabs
        ]
        return Content.assemble(*parts, (f"  {self.hint}" if self.hint else "", "$faint"))


class TabLine(Tabs):
    """The tabs of a pane."""

    ACTION = "screen.show_tab"


class Columns(Tabs):
    """The columns of a screen, for a terminal that has room for one."""

    ACTION = "screen.show_column"
