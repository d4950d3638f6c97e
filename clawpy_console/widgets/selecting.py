"""What the mouse selected, shown on lines that a widget draws by itself."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget


def lit(widget: Widget, strip: Strip, start: int, end: int) -> Strip:
    """`strip` of `widget` with the cells from `start` to before `end` as selected."""
    start, end = max(0, start), min(end, strip.cell_length)
    if start >= end:
        return strip
    light = Style(bgcolor=widget.screen.get_component_rich_style("screen--selection").bgcolor)
    chosen = strip.crop(start, end)
    chosen = Strip(Segment.apply_style(chosen, post_style=light), chosen.cell_length)
    return Strip.join([strip.crop(0, start), chosen, strip.crop(end)])
