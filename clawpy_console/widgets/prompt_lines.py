"""A prompt as it was sent, each line with its source beside it; Enter on a line opens its source (SPEC 9.6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.message import Message

from clawpy_console.formats import fit_to_width
from clawpy_console.keys import bindings
from clawpy_console.widgets.row_view import CursorView
from clawpy_console.widgets.transcript import LinesView
from engine.model import PromptPart, PromptSource, SourceKind, Trust
from engine.model.base import APPROVED

SOURCE_CELLS = 17
"""Cells for the name of a source, with the sign after it."""

TRUST_SIGNS = {Trust.QUOTED.value: "”", APPROVED: "✓", Trust.MEASURED.value: "="}
"""The sign before a line that says how far it may be followed; `▲` where the content filter objects to it."""

SOURCE_TONES = {
    SourceKind.RUNNER: "note", SourceKind.SOUL: "tool", SourceKind.LEADER: "ask", SourceKind.PROJECT: "added",
    SourceKind.MEMORY: "tool", SourceKind.OVERLAY: "ask", SourceKind.LEARNING: "ask", SourceKind.TASK: "say",
    SourceKind.OPERATOR: "say", SourceKind.CONVERSATION: "hunk",
}  # fmt: skip
"""The tone of a source's name, by its kind."""

NOT_SENT = (None, "")
"""The origin of a line that was not sent, such as a heading."""


class PromptLines(LinesView, CursorView):
    """Lines of a prompt with a cursor. Posts `Opened` when the operator opens the source of a line."""

    BINDINGS = bindings("rows")

    @dataclass
    class Opened(Message):
        """The operator opened the source of a line."""

        source: PromptSource

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(
            id=id, max_lines=1_000_000, signs={"": " " * SOURCE_CELLS}, empty="Select a call.", follow_end=False
        )
        self._origins: list[tuple[PromptSource | None, str]] = []  # of each line: its source and its objections

    @property
    def source(self) -> PromptSource | None:
        """The source of the line under the cursor, None for a heading."""
        return self._origins[self.cursor][0] if self.accepts_cursor(self.cursor) else None

    @property
    def standing(self) -> str:
        """The trust in the line under the cursor, with the objections of the content filter to it."""
        source = self.source
        if source is None:
            return ""
        label, hostile = source.standing or "text from Clawpy Console", self._origins[self.cursor][1]
        return f"{label}, ▲ hostile: {hostile}" if hostile else label

    @property
    def line(self) -> str:
        """The line under the cursor, "" for a heading."""
        return self._lines[self.cursor][1] if self.source else ""

    @property
    def prompt_text(self) -> str:
        """The whole prompt as it was sent."""
        texts = zip(self._origins, self._lines, strict=True)
        return "\n".join(text for (source, _), (_, text) in texts if source is not None)

    def show(self, parts: Sequence[PromptPart], reply: str = "", objections: Sequence[Sequence[str]] = ()) -> None:
        """Show a prompt from its top, with the reply below it. `objections` are those of the content filter to each
        line of each part."""
        lines: list[tuple[str, str]] = []
        origins: list[tuple[PromptSource | None, str]] = []
        for number, part in enumerate(parts):
            lines += [("hunk", ""), ("file", f"{part.role} · {part.name} · ≈{part.tokens:,} tokens")]
            lines += [("output" if part.role != "assistant" else "say", line.text) for line in part.lines]
            line_objections = objections[number] if objections else repeat("")
            origins += [NOT_SENT, NOT_SENT, *zip((line.source for line in part.lines), line_objections, strict=False)]
        if reply:
            lines += [("hunk", ""), ("file", "answered"), *(("say", item) for item in reply.rstrip("\n").split("\n"))]
        origins += [NOT_SENT] * (len(lines) - len(origins))
        self.clear(empty="nothing was sent")
        self._origins = origins[1:]  # no empty line on top
        self.extend(lines[1:])
        self.set_reactive(PromptLines.cursor, 0)
        self.move_cursor(0, 1)
        self.scroll_home(animate=False)

    def seek(self, kind: SourceKind) -> None:
        """Put the cursor on the first line from a source of this kind, without scrolling."""
        numbers = (
            number for number, (source, _) in enumerate(self._origins) if source is not None and source.kind is kind
        )
        self.set_reactive(PromptLines.cursor, next(numbers, self.cursor))
        self.refresh()

    @property
    def entry_count(self) -> int:
        return len(self._lines)

    def accepts_cursor(self, number: int) -> bool:
        return super().accepts_cursor(number) and self._origins[number][0] is not None

    def entry_region(self, number: int) -> Region:
        first, end = self._starts[number : number + 2]
        return Region(0, first, 1, end - first)

    def entry_at(self, row: int) -> int:
        return self.line_at(row)

    def base_style(self, line: int, base: Style) -> Style:
        has_cursor = line == self.cursor and self.has_focus and self.accepts_cursor(line)
        return base + self.tone("reply") if has_cursor else base

    def lead_segments(self, line: int, part: int, base: Style) -> list[Segment]:
        source, objections = self._origins[line]
        if source is None:
            return [] if self._lines[line][0] == "file" else [Segment(self._signs[""], base)]
        name = ""
        if not part and (not line or source != self._origins[line - 1][0]):
            name = source.label.rpartition("/")[2] or source.kind.value
        if line == self.cursor and self.has_focus and not part:
            sign = "▸"
        else:
            sign = "▲" if objections else TRUST_SIGNS.get(source.standing, "│")
        return [
            Segment(fit_to_width(name, SOURCE_CELLS - 3) + " ", base + self.tone(SOURCE_TONES[source.kind])),
            Segment(f"{sign} ", base + self.tone("error" if sign == "▲" else "hunk")),
        ]

    def sign(self, line: int) -> str:
        return ""  # a selection is copied as it was sent

    def action_open(self) -> None:
        if (source := self.source) is not None:
            self.post_message(self.Opened(source))
