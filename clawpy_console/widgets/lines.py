"""Long texts, one styled line each, drawn only where they are seen: transcripts.

A line costs nothing until it is on screen, and what arrives faster than ten times a second is drawn ten times a
second: a session that writes a thousand lines a second leaves the keys alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import accumulate

from rich._wrap import divide_line  # what Textual wraps its own texts with
from rich.segment import Segment
from rich.style import Style
from textual.selection import Selection
from textual.strip import Strip

from clawpy_console.widgets.row_view import RowView, selectable

TRANSCRIPT = {
    "command": "$ ", "note": "· ", "error": "✗ ", "exit": "→ ", "failed": "✗ ",
    "say": "● ", "thought": "○ ", "tool": "▸ ", "ask": "▲ ", "reply": "┃ ", "": "  ",
}  # fmt: skip
"""What stands before a line of each kind, "" for all others; all are equally wide, and lines that wrap are indented."""

PARAGRAPHS = frozenset({"say", "thought"})
"""Kinds of which lines in a row are one text: only the first has its sign."""


@lru_cache(maxsize=1024)
def breaks(text: str, room: int) -> tuple[int, ...]:
    """Where the rows of `text` begin when each has `room` cells: at words, within a word that is longer than a row.

    The spaces at a break stay at the end of the row, where they may stand out.
    """
    if len(text) * 2 <= room or (len(text) <= room and text.isascii()):
        return (0,)
    return (0, *divide_line(text, room))


class LinesView(RowView, can_focus=True):
    """Lines of `(kind, text)`; each kind is one of the `TONES`. Holds at most `cap` lines; long ones go on below."""

    TONES = {
        "command": "bold $accent", "output": "$ink", "note": "italic $grey", "error": "$wrong", "exit": "$grey",
        "failed": "bold $wrong", "progress": "$accent", "file": "bold underline $accent", "hunk": "$faint",
        "added": "$good", "removed": "$wrong", "same": "$grey", "say": "$ink", "thought": "italic $faint",
        "tool": "$accent", "ask": "bold $wants", "reply": "bold $ink on $lit",
    }  # fmt: skip
    DEFAULT_CSS = "LinesView { scrollbar-gutter: stable; }"

    def __init__(
        self,
        *,
        cap: int = 20_000,
        empty: str = "",
        gutter: Mapping[str, str] = TRANSCRIPT,
        tail: bool = True,
        id: str | None = None,
    ) -> None:
        """`gutter`: what stands before the lines, by kind. `tail`: while its end is in sight, it shows the end of what
        is added; else it stays where it is."""
        super().__init__(empty=empty, id=id)
        self._cap = cap
        self._gutter = gutter
        self._keeps_end = tail
        self._width = self._in_sight = 0  # cells that the rows were counted for; rows that were in sight
        self._lines: list[tuple[str, str]] = []
        self._starts = [0]  # the first row of each line, and the row after the last; rows that fell off are counted

    @property
    def height(self) -> int:
        return self._starts[-1] - self._starts[0]

    @property
    def at_end(self) -> bool:
        """True while the newest line is in sight."""
        return not self._width or self.scroll_offset.y + self._in_sight >= self.virtual_size.height - 1

    def clear(self, *, empty: str | None = None) -> None:
        """Forget every line."""
        self._lines.clear()
        self._starts = [0]
        self.empty = self.empty if empty is None else empty
        self._show(False, 0)

    def extend(self, lines: Iterable[tuple[str, str]]) -> None:
        """Add lines at the end."""
        follows, top = self._keeps_end and self.at_end, self._starts[0] + self.scroll_offset.y
        for kind, text in lines:
            self._lines.append((kind, text))
            self._starts.append(self._starts[-1] + len(self._breaks(text)))
        lost = max(0, len(self._lines) - self._cap)
        del self._lines[:lost], self._starts[:lost]
        self._show(follows, top - self._starts[0])

    def replace_last(self, text: str) -> None:
        """Show `text` in place of the last line."""
        kind, _ = self._lines.pop()
        self._starts.pop()
        self.extend([(kind, text)])

    def on_resize(self) -> None:
        follows, top = self._keeps_end and self.at_end, self.scroll_offset.y
        line = self.line_at(top)
        width, self._in_sight = self.scrollable_content_region.size
        if width != self._width:
            self._width = width
            self._starts = list(accumulate((len(self._breaks(text)) for _, text in self._lines), initial=0))
            top = self._starts[line]
        self._show(follows, top)

    def _show(self, end: bool, top: int) -> None:
        """Show the end of the lines, else what is from row `top` on."""
        self.resized()
        self.scroll_to(y=self.max_scroll_y if end else max(0, top), animate=False, force=True)

    def _breaks(self, text: str) -> tuple[int, ...]:
        """The place in `text` of the first character of each of its rows."""
        return breaks(text, max(8, self._width - len(self._gutter[""])))

    def line_at(self, row: int) -> int:
        """The line that row `row` is a part of."""
        return bisect_right(self._starts, row + self._starts[0]) - 1

    def row(self, number: int, width: int, base: Style) -> Strip:
        line = self.line_at(number)
        part = number + self._starts[0] - self._starts[line]
        kind, text = self._lines[line]
        base, sign = self.base(line, base), self.sign(line)
        start, end = (*self._breaks(text), None)[part : part + 2]
        place = len(sign) + (start or 0)
        lead: Iterable[Segment] = self.lead(line, part, base)
        if sign and not part:
            lead = selectable(self, lead, 0, line)
        else:  # it is not copied: a press there begins with the text
            begin = Style.from_meta({"offset": (place, line)})
            lead = [Segment(item, (style or base) + begin) for piece, style, _ in lead for item in piece]
        piece = Segment(text[start:end], base + self.kind(kind))
        return Strip([*lead, *selectable(self, [piece], place, line)]).crop_extend(0, width, base)

    def base(self, line: int, base: Style) -> Style:
        """The style under a line."""
        return base

    def sign(self, line: int) -> str:
        """What stands before a line, and is copied with it."""
        kind = self._lines[line][0]
        if kind in PARAGRAPHS and line and self._lines[line - 1][0] == kind:
            kind = ""
        return self._gutter.get(kind, self._gutter[""])

    def lead(self, line: int, part: int, base: Style) -> list[Segment]:
        """What stands before row `part` of a line."""
        return [Segment(self._gutter[""] if part else self.sign(line), base + self.kind(self._lines[line][0]))]

    def kind(self, kind: str) -> Style:
        """The style of a kind of lines."""
        return self.tone(kind if kind in self.TONES else "output")

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        lines = [self.sign(number) + text for number, (_, text) in enumerate(self._lines)]
        return selection.extract("\n".join(lines)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()
