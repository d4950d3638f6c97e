"""Lines whose wording depends on the width they get."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

Draw = Callable[[int], Sequence[Content]]
"""`draw(width)`: the lines for a width in cells."""


class Drawn(Widget):
    """Shows what `draw` gives for its present width, and asks again when the width changes."""

    DEFAULT_CSS = "Drawn { height: auto; }"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._draw: Draw = lambda width: ()
        self._drawn: Content | None = None

    def show(self, draw: Draw) -> None:
        """Draw with `draw` from now on; nothing happens on screen when the lines are the same."""
        self._draw = draw
        now = self._lines(self.content_size.width)
        if self._drawn is None or not now.is_same(self._drawn):
            lines = -1 if self._drawn is None else self._drawn.plain.count("\n")
            self._drawn = now
            self.refresh(layout=self.styles.is_auto_height and now.plain.count("\n") != lines)

    def _lines(self, width: int) -> Content:
        return Content("\n").join(self._draw(max(1, width)))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._draw(max(1, width)))

    def render(self) -> Content:
        self._drawn = self._lines(self.content_size.width)
        return self._drawn
