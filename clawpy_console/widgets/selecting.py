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
    chosen = strip.crop(start, end)
    chosen = Strip(Segment.apply_style(chosen, post_style=_light(widget)), chosen.cell_length)
    return Strip.join([strip.crop(0, start), chosen, strip.crop(end)])


def placed(widget: Widget, text: str, style: Style | None, place: tuple[int, int]) -> list[Segment]:
    """`text` as segments that say where they stand: `place` is (character, line) of its first character in what is
    copied from `widget`. What is selected is lit."""
    x, y = place
    marked = widget.text_selection.get_span(y) if widget.text_selection is not None else None
    start, end = (len(text), len(text)) if marked is None else marked
    begin = min(max(0, start - x), len(text))
    stop = len(text) if end == -1 else min(max(begin, end - x), len(text))
    style = style or Style()
    return [
        Segment(piece, (style + _light(widget) if chosen else style) + Style.from_meta({"offset": (x + at, y)}))
        for piece, at, chosen in ((text[:begin], 0, False), (text[begin:stop], begin, True), (text[stop:], stop, False))
        if piece
    ]


def _light(widget: Widget) -> Style:
    return Style(bgcolor=widget.screen.get_component_rich_style("screen--selection").bgcolor)
