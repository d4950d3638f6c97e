"""What every dialog has: the screen behind it, dimmed once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from rich.segment import Segment, Segments
from rich.style import Style
from textual.renderables.background_screen import BackgroundScreen
from textual.screen import ModalScreen

from clawpy_console.widgets.whole import WholeScreen

Answer = TypeVar("Answer")


class Dialog(ModalScreen[Answer], WholeScreen[Answer]):  # styles come by the first base
    """A modal screen over a picture of the one behind it.

    Textual draws that picture anew whenever a part of the dialog is drawn, and mixes colours for each of its
    thousands of segments, which would hold the event loop. Here it is drawn once for a size and a colour.
    """

    _behind: tuple[object, Segments] | None = None

    def on_screen_resume(self) -> None:
        self._behind = None

    def render(self) -> Any:
        """The picture behind the dialog."""
        behind = super().render()
        if not isinstance(behind, BackgroundScreen):
            return behind
        key = (self.size, behind.color)
        if self._behind is None or self._behind[0] != key:
            options = self.app.console_options.update_width(self.size.width)
            drawn = self.app.console.render(behind.screen._compositor, options)
            self._behind = (key, Segments(_dimmed(drawn, behind)))
        return self._behind[1]


def _dimmed(segments: Iterable[Segment], behind: BackgroundScreen) -> list[Segment]:
    dim: dict[Style | None, Style | None] = {}
    result = []
    for segment in segments:
        if segment.control:
            result.append(segment)
            continue
        if segment.style not in dim:
            [one] = behind.process_segments([Segment(" ", segment.style)], behind.color)
            dim[segment.style] = one.style
        result.append(Segment(segment.text, dim[segment.style]))
    return result
