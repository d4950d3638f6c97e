"""What the mouse selected, shown on lines that a widget draws by itself."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from rich.segment import Segment
from rich.style import Style
from textual.widget import Widget


def selectable(widget: Widget, segments: Iterable[Segment], x: int, y: int) -> list[Segment]:
    """`segments` of `widget` that say where they stand; what is selected is lit. They begin at character `x` of line
    `y` of the text that is copied from the widget."""
    span = widget.text_selection.get_span(y) if widget.text_selection is not None else None
    light = widget.screen.get_component_rich_style("screen--selection").background_style if span else Style()
    found = []
    for text, style, _ in segments:
        start, end = (max(0, min(one - x, len(text))) if one >= 0 else len(text) for one in span or (0, 0))
        for begin, stop in pairwise((0, start, max(start, end), len(text))):
            lit = light if begin == start and stop == end else Style()
            place = Style.from_meta({"offset": (x + begin, y)})
            found += [Segment(text[begin:stop], (style or Style()) + lit + place)] if begin < stop else []
        x += len(text)
    return found
