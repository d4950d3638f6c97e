"""Long texts, one styled line each, drawn only where they are seen: transcripts.

A line costs nothing until it is on screen, and what arrives faster than ten times a second is drawn ten times a
second: a session that writes a thousand lines a second leaves the keys alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from functools import lru_cache

from rich._wrap import divide_line  # what Textual wraps its own texts with
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.selection import Selection
from textual.strip import Strip

from clawpy_console import words
from clawpy_console.widgets.scrolled import SCROLLS, ScrollKeys
from clawpy_console.widgets.selecting import placed
from clawpy_console.widgets.toned import Toned

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


class LinesView(ScrollKeys, Toned, can_focus=True):
    """Lines of `(kind, text)`; each kind is one of the `TONES`. Holds at most `cap` lines."""

    BINDINGS = SCROLLS
    TONES = {
        "command": "bold $accent", "output": "$ink", "note": "italic $grey", "error": "$wrong", "exit": "$grey",
        "failed": "bold $wrong", "progress": "$accent", "file": "bold underline $accent", "hunk": "$faint",
        "added": "$good", "removed": "$wrong", "same": "$grey", "say": "$ink", "thought": "italic $faint",
        "tool": "$accent", "ask": "bold $wants", "reply": "bold $ink on $lit",
    }  # fmt: skip
    DEFAULT_CSS = "LinesView { height: 1fr; scrollbar-size: 0 1; scrollbar-gutter: stable; }"

    def __init__(
        self,
        *,
        cap: int = 20_000,
        empty: str = "",
        gutter: Mapping[str, str] = TRANSCRIPT,
        wrap: bool = True,
        tail: bool = True,
        id: str | None = None,
    ) -> None:
        """`gutter`: what stands before the lines, by kind. `wrap`: lines that are too long go on below, else they are
        cut and end in `…`. `tail`: what was added before there was a size is shown from its end, else from its top."""
        super().__init__(id=id)
        self._cap = cap
        self._empty = empty
        self._gutter = gutter
        self._wrap = wrap
        self._tail_first = tail
        self._width = 0  # cells for which the rows were counted
        self._height = 0  # rows that were in sight
        self._lines: list[tuple[str, str]] = []
        self._starts: list[int] = []  # the first row of each line; rows that fell off at the top are still counted
        self._end = 0  # the row after the last
        self.cut = 0
        """Lines that fell off the top because of the cap."""

    @property
    def at_end(self) -> bool:
        """True while the newest line is in sight: then the view follows."""
        return self.scroll_offset.y >= self.max_scroll_y - 1

    @property
    def _first(self) -> int:
        return self._starts[0] if self._starts else self._end

    def _room(self) -> int:
        """Cells of text in a row."""
        return max(8, self._width - len(self._gutter[""]))

    def _rows(self, text: str) -> int:
        return len(self._starts_in(text))

    def _starts_in(self, text: str) -> tuple[int, ...]:
        """The place in `text` of the first character of each of its rows."""
        return breaks(text, self._room()) if self._wrap else (0,)

    def clear(self, *, empty: str | None = None) -> None:
        """Forget every line."""
        self._lines.clear()
        self._starts.clear()
        self._end = self.cut = 0
        self._empty = self._empty if empty is None else empty
        self.virtual_size = Size(0, 1)
        self.scroll_to(0, 0, animate=False, force=True)
        self.refresh()

    def extend(self, lines: Iterable[tuple[str, str]], *, follow: bool = True) -> None:
        """Add lines at the end; stays at the end if it was there and `follow`."""
        follow = follow and self.at_end
        before, first = len(self._lines), self._first
        for kind, text in lines:
            self._lines.append((kind, text))
            self._starts.append(self._end)
            self._end += self._rows(text)
        if len(self._lines) == before:
            return
        lost = max(0, len(self._lines) - self._cap)
        if lost:
            del self._lines[:lost], self._starts[:lost]
            self.cut += lost
        self._sized(follow, self._first - first)

    def replace_last(self, text: str) -> None:
        """Show `text` in place of the last line."""
        follow = self.at_end
        self._lines[-1] = (self._lines[-1][0], text)
        self._end = self._starts[-1] + self._rows(text)
        self._sized(follow, 0)

    def _sized(self, follow: bool, lost_rows: int) -> None:
        self.virtual_size = Size(0, max(1, self._end - self._first))
        if follow:
            self.scroll_end(animate=False, immediate=True, force=True, x_axis=False)
        elif lost_rows:
            self.scroll_to(y=max(0, self.scroll_offset.y - lost_rows), animate=False, force=True)
        self.refresh()

    def on_resize(self) -> None:
        width, height = self.scrollable_content_region.size
        self._height, before = height, self._height
        if width == self._width:
            if self._tail_first and self.scroll_offset.y + before >= self.virtual_size.height - 1:
                self.scroll_end(animate=False, immediate=True, force=True, x_axis=False)  # the end stays in sight
            return
        at_end = self.scroll_offset.y + before >= self.virtual_size.height - 1
        follow = at_end if self._width else self._tail_first
        top = self._line_at(self.scroll_offset.y) if self._lines else 0
        self._width = width
        self._end, self._starts = 0, []
        for _, text in self._lines:
            self._starts.append(self._end)
            self._end += self._rows(text)
        self._sized(follow, 0)
        if not follow and self._starts:
            self.scroll_to(y=self._starts[top], animate=False, force=True)  # the same line stays on top

    def _line_at(self, row: int) -> int:
        """The index of the line of which row `row` of the view is a part."""
        return max(0, bisect_right(self._starts, row + self._first) - 1)

    def render_line(self, y: int) -> Strip:
        row = y + self.scroll_offset.y
        width = self.scrollable_content_region.width
        base = self.visual_style.rich_style
        if row >= self._end - self._first:
            text = f"  {self._empty}" if row == 0 and not self._lines else ""
            return Strip([Segment(text, base + self._kind("hunk"))]).crop_extend(0, width, base)
        number = self._line_at(row)
        part = row + self._first - self._starts[number]
        return Strip(self._row(number, part, base)).crop_extend(0, width, base)

    def _row(self, number: int, part: int, base: Style) -> list[Segment]:
        """Row `part` of line `number`, each segment with the place of its first character in the line as it is copied,
        and what is selected lit."""
        kind, text = self._lines[number]
        starts = self._starts_in(text)
        if part >= len(starts):
            return []  # its width is about to be counted anew
        base = self._base(number, base)
        before = self._before(number)
        start = starts[part]
        piece = text[start : starts[part + 1] if part + 1 < len(starts) else None]
        if not self._wrap:
            piece = words.crop(piece, self._room())
        place = len(before) + start
        row: list[Segment] = []
        for one in self._lead(number, part, base):
            if part == 0 and before:  # the sign of a line is copied with it
                row += placed(self, one.text, one.style, (0, number))
            else:  # nothing else before it is: a press there begins with the text
                row += [
                    Segment(c, (one.style or base) + Style.from_meta({"offset": (place, number)})) for c in one.text
                ]
        return row + placed(self, piece, base + self._kind(kind), (place, number))

    def _lead(self, number: int, part: int, base: Style) -> list[Segment]:
        """What stands before row `part` of line `number`."""
        gutter = self._gutter[""] if part else self._before(number)
        return [Segment(gutter, base + self._kind(self._lines[number][0]))]

    def _base(self, number: int, base: Style) -> Style:
        """The style under line `number`."""
        return base

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        lines = [self._before(number) + text for number, (_, text) in enumerate(self._lines)]
        return selection.extract("\n".join(lines)), "\n"

    def _before(self, number: int) -> str:
        """What stands before line `number`."""
        kind = self._lines[number][0]
        if kind in PARAGRAPHS and number and self._lines[number - 1][0] == kind:
            return self._gutter[""]
        return self._gutter.get(kind, self._gutter[""])

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    def _kind(self, kind: str) -> Style:
        return self.tone(kind if kind in self.TONES else "output")
