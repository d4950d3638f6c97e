"""Makes what a widget draws selectable with the mouse, so that it can be copied."""

from __future__ import annotations

from collections.abc import Iterable

from rich.segment import Segment
from rich.style import Style
from textual.widget import Widget


def make_selectable(widget: Widget, segments: Iterable[Segment], x: int, y: int) -> list[Segment]:
    """`segments` of `widget` with their place in the text that is copied from it; the selected part is highlighted.

    The segments begin at character `x` of line `y` of that text.
    """
    span = widget.text_selection.get_span(y) if widget.text_selection is not None else None
    first, last = span or (0, 0)  # a `last` of -1 is the end of the line
    plain = Style()
    highlight = widget.screen.get_component_rich_style("screen--selection").background_style if span else plain
    pieces = []
    for text, style, _ in segments:
        length = len(text)
        start = max(0, min(first - x, length))
        end = length if last < 0 else max(start, min(last - x, length))
        for begin, stop, selection in ((0, start, plain), (start, end, highlight), (end, length, plain)):
            if begin < stop:
                place = Style.from_meta({"offset": (x + begin, y)})
                pieces.append(Segment(text[begin:stop], (style or plain) + selection + place))
        x += length
    return pieces
