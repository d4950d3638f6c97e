"""Long texts, one styled line each, drawn only where they are seen: transcripts and diffs.

A line costs nothing until it is on screen, and what arrives faster than ten times a second is drawn ten times a
second: a session that writes a thousand lines a second leaves the keys alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from rich.segment import Segment
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from clawpy_console.actions import bindings

GUTTERS = {"command": "$ ", "output": "  ", "note": "· ", "error": "✗ ", "exit": "→ ", "failed": "✗ "}


class LinesView(ScrollView, can_focus=True):
    """Lines of `(kind, text)`; each kind is a component class `lines--KIND`. Holds at most `cap` lines."""

    BINDINGS = [*(one for one in bindings("rows") if one.id != "rows.open"), *bindings("lines")]
    COMPONENT_CLASSES = {
        "lines--command", "lines--output", "lines--note", "lines--error", "lines--exit", "lines--failed",
        "lines--file", "lines--hunk", "lines--added", "lines--removed", "lines--same",
    }  # fmt: skip
    DEFAULT_CSS = """
    LinesView { height: 1fr; scrollbar-size: 0 1;
        & > .lines--command { color: $accent; text-style: bold; }
        & > .lines--output { color: $ink; }
        & > .lines--note { color: $grey; text-style: italic; }
        & > .lines--error { color: $wrong; }
        & > .lines--exit { color: $grey; }
        & > .lines--failed { color: $wrong; text-style: bold; }
        & > .lines--file { color: $ink; text-style: bold; }
        & > .lines--hunk { color: $faint; }
        & > .lines--added { color: $good; }
        & > .lines--removed { color: $wrong; }
        & > .lines--same { color: $grey; }
    }
    """

    def __init__(self, *, cap: int = 20_000, empty: str = "", gutter: bool = True, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: deque[tuple[str, str]] = deque(maxlen=cap)
        self._empty = empty
        self._gutter = gutter
        self._widest = 0
        self.cut = 0
        """Lines that fell off the top because of the cap."""

    @property
    def at_end(self) -> bool:
        """True while the newest line is in sight: then the view follows."""
        return self.scroll_offset.y >= self.max_scroll_y - 1

    def clear(self, *, empty: str | None = None) -> None:
        """Forget every line."""
        self._lines.clear()
        self._widest, self.cut = 0, 0
        self._empty = self._empty if empty is None else empty
        self.virtual_size = Size(0, 1)
        self.scroll_to(0, 0, animate=False, force=True)
        self.refresh()

    def extend(self, lines: Iterable[tuple[str, str]], *, follow: bool = True) -> None:
        """Add lines at the end; stays at the end if it was there and `follow`."""
        follow = follow and self.at_end
        before, added = len(self._lines), 0
        for kind, text in lines:
            self._lines.append((kind, text))
            self._widest = max(self._widest, len(text) + 2)
            added += 1
        if not added:
            return
        lost = before + added - len(self._lines)
        self.cut += lost
        self.virtual_size = Size(min(self._widest, 2000), max(1, len(self._lines)))
        if follow:
            self.scroll_end(animate=False, immediate=True, force=True, x_axis=False)
        elif lost:
            self.scroll_to(y=max(0, self.scroll_offset.y - lost), animate=False, force=True)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        number = y + self.scroll_offset.y
        width = self.scrollable_content_region.width
        base = self.rich_style
        if number >= len(self._lines):
            text = f"  {self._empty}" if number == 0 and not self._lines else ""
            return Strip([Segment(text, base + self._kind("hunk"))]).crop_extend(0, width, base)
        kind, text = self._lines[number]
        gutter = GUTTERS.get(kind, "  ") if self._gutter else ""
        strip = Strip([Segment(gutter + text, base + self._kind(kind))])
        left = self.scroll_offset.x
        drawn = strip.crop_extend(left, left + width, base)
        selection = self.text_selection
        if selection is not None and (marked := selection.get_span(number)) is not None:
            start, end = marked
            drawn = self._mark(drawn, start - left, (strip.cell_length if end == -1 else end) - left)
        return drawn.apply_offsets(left, number)

    def _mark(self, strip: Strip, start: int, end: int) -> Strip:
        style = self.screen.get_component_rich_style("screen--selection")
        start, end = max(0, start), max(0, min(end, strip.cell_length))
        parts = [strip.crop(0, start), strip.crop(start, end).apply_style(style), strip.crop(end)]
        return Strip.join(parts)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        gutter = (lambda kind: GUTTERS.get(kind, "  ")) if self._gutter else (lambda kind: "")
        return selection.extract("\n".join(gutter(kind) + text for kind, text in self._lines)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    def _kind(self, kind: str):  # type: ignore[no-untyped-def]
        name = f"lines--{kind}"
        return self.get_component_rich_style(name if name in self.COMPONENT_CLASSES else "lines--output", partial=True)

    def action_up(self) -> None:
        self.scroll_up(animate=False)

    def action_down(self) -> None:
        self.scroll_down(animate=False)

    def action_left(self) -> None:
        self.scroll_relative(x=-8, animate=False)

    def action_right(self) -> None:
        self.scroll_relative(x=8, animate=False)

    def action_page_up(self) -> None:
        self.scroll_page_up(animate=False)

    def action_page_down(self) -> None:
        self.scroll_page_down(animate=False)

    def action_first(self) -> None:
        self.scroll_home(animate=False)

    def action_last(self) -> None:
        self.scroll_end(animate=False)


def diff_lines(text: str) -> Iterable[tuple[str, str]]:
    """A unified diff as lines with their kinds."""
    for line in text.splitlines():
        if line.startswith("@@"):
            yield "hunk", line
        elif line.startswith(("+++", "---", "diff ", "index ", "new file", "deleted file", "similarity", "rename ")):
            continue  # the file is named above, in words
        elif line.startswith("+"):
            yield "added", line
        elif line.startswith("-"):
            yield "removed", line
        else:
            yield "same", line
