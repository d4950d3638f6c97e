"""A view of many styled lines, such as a transcript, of which only those in sight are drawn."""

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

TRANSCRIPT_SIGNS = {
    "command": "$ ", "note": "· ", "error": "✗ ", "exit": "→ ", "failed": "✗ ",
    "say": "● ", "thought": "○ ", "tool": "▸ ", "ask": "▲ ", "reply": "┃ ", "": "  ",
}  # fmt: skip
"""The sign before a line of each kind, "" for all other kinds. All are equally wide; wrapped lines are indented."""

PARAGRAPH_KINDS = frozenset({"say", "thought"})
"""Kinds whose consecutive lines are one text: only the first line has its sign."""


@lru_cache(maxsize=1024)
def row_starts(text: str, width: int) -> tuple[int, ...]:
    """The position in `text` at which each of its rows of `width` cells begins. Rows end between words, where they can.

    The spaces at a break stay at the end of the row, and may stand out.
    """
    if len(text) * 2 <= width or (len(text) <= width and text.isascii()):
        return (0,)
    return (0, *divide_line(text, width))


class LinesView(RowView, can_focus=True):
    """Lines of a kind and a text; each kind is one of the `TONES`. Long lines wrap."""

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
        max_lines: int = 20_000,
        empty: str = "",
        signs: Mapping[str, str] = TRANSCRIPT_SIGNS,
        follow_end: bool = True,
        id: str | None = None,
    ) -> None:
        """`max_lines`: older lines are dropped. `signs`: what stands before a line, by kind. `follow_end`: whether to
        scroll to what is added while the end is in sight."""
        super().__init__(empty=empty, id=id)
        self._max_lines = max_lines
        self._signs = signs
        self._follow_end = follow_end
        self._width = self._visible_rows = 0  # the size that the rows were counted for
        self._lines: list[tuple[str, str]] = []
        self._starts = [0]  # the first row of each line, and the row after the last; rows of dropped lines count too

    @property
    def row_count(self) -> int:
        return self._starts[-1] - self._starts[0]

    @property
    def at_end(self) -> bool:
        """True while the newest line is in sight."""
        return not self._width or self.scroll_offset.y + self._visible_rows >= self.virtual_size.height - 1

    def clear(self, *, empty: str | None = None) -> None:
        """Remove every line."""
        self._lines.clear()
        self._starts = [0]
        self.empty = self.empty if empty is None else empty
        self._scroll(to_end=False, top=0)

    def extend(self, lines: Iterable[tuple[str, str]]) -> None:
        """Add lines at the end."""
        to_end, top = self._follow_end and self.at_end, self._starts[0] + self.scroll_offset.y
        for kind, text in lines:
            self._lines.append((kind, text))
            self._starts.append(self._starts[-1] + len(self._row_starts(text)))
        excess = max(0, len(self._lines) - self._max_lines)
        del self._lines[:excess], self._starts[:excess]
        self._scroll(to_end=to_end, top=top - self._starts[0])

    def replace_last(self, text: str) -> None:
        """Show `text` in place of the last line."""
        kind, _ = self._lines.pop()
        self._starts.pop()
        self.extend([(kind, text)])

    def on_resize(self) -> None:
        to_end, top = self._follow_end and self.at_end, self.scroll_offset.y
        line = self.line_at(top)
        width, self._visible_rows = self.scrollable_content_region.size
        if width != self._width:
            self._width = width
            self._starts = list(accumulate((len(self._row_starts(text)) for _, text in self._lines), initial=0))
            top = self._starts[line]
        self._scroll(to_end=to_end, top=top)

    def _scroll(self, *, to_end: bool, top: int) -> None:
        """Scroll to the end of the lines, else to row `top`."""
        self.update_row_count()
        self.scroll_to(y=self.max_scroll_y if to_end else max(0, top), animate=False, force=True)

    def _row_starts(self, text: str) -> tuple[int, ...]:
        return row_starts(text, max(8, self._width - len(self._signs[""])))

    def line_at(self, row: int) -> int:
        """The number of the line that row `row` belongs to."""
        return bisect_right(self._starts, row + self._starts[0]) - 1

    def draw_row(self, number: int, width: int, base: Style) -> Strip:
        line = self.line_at(number)
        part = number + self._starts[0] - self._starts[line]
        kind, text = self._lines[line]
        base, sign = self.base_style(line, base), self.sign(line)
        start, end = (*self._row_starts(text), None)[part : part + 2]
        position = len(sign) + (start or 0)
        lead: Iterable[Segment] = self.lead_segments(line, part, base)
        if sign and not part:
            lead = selectable(self, lead, 0, line)
        else:  # it is not copied: a selection that begins there begins with the text
            begin = Style.from_meta({"offset": (position, line)})
            lead = [Segment(item, (style or base) + begin) for piece, style, _ in lead for item in piece]
        piece = Segment(text[start:end], base + self.kind_style(kind))
        return Strip([*lead, *selectable(self, [piece], position, line)]).crop_extend(0, width, base)

    def base_style(self, line: int, base: Style) -> Style:
        """The background style of a line."""
        return base

    def sign(self, line: int) -> str:
        """The sign before a line, which is copied with it."""
        kind = self._lines[line][0]
        if kind in PARAGRAPH_KINDS and line and self._lines[line - 1][0] == kind:
            kind = ""
        return self._signs.get(kind, self._signs[""])

    def lead_segments(self, line: int, part: int, base: Style) -> list[Segment]:
        """The segments before row `part` of a line."""
        return [Segment(self._signs[""] if part else self.sign(line), base + self.kind_style(self._lines[line][0]))]

    def kind_style(self, kind: str) -> Style:
        """The style of the lines of a kind."""
        return self.tone(kind if kind in self.TONES else "output")

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        lines = [self.sign(number) + text for number, (_, text) in enumerate(self._lines)]
        return selection.extract("\n".join(lines)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()
