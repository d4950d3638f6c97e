"""A prompt as it was sent, each line with its source in a gutter, and a cursor that leads there (SPEC 9.6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.message import Message

from clawpy_console import words
from clawpy_console.keys import bindings
from clawpy_console.widgets.lines import LinesView
from clawpy_console.widgets.row_view import CursorView
from engine.model import PromptPart, PromptSource, SourceKind, Trust
from engine.model.trust import APPROVED

GUTTER = 17
"""Cells for the name of a source, the line beside it included."""

MARKS = {Trust.QUOTED.value: "”", APPROVED: "✓", Trust.MEASURED.value: "="}
"""The sign before a line that says how far it may be followed; `▲` where the content filter objects to it."""

COLOURS = {
    SourceKind.RUNNER: "note", SourceKind.SOUL: "tool", SourceKind.LEADER: "ask", SourceKind.PROJECT: "added",
    SourceKind.MEMORY: "tool", SourceKind.OVERLAY: "ask", SourceKind.LEARNING: "ask", SourceKind.TASK: "say",
    SourceKind.OPERATOR: "say", SourceKind.CONVERSATION: "hunk",
}  # fmt: skip
"""The style of a source's name. The name says it too."""


OURS = (None, "")
"""The origin of a heading, which was not sent."""


class PromptLines(LinesView, CursorView):
    """Lines of a prompt. Posts `Opened` when the source of the line under the cursor is wanted."""

    BINDINGS = bindings("rows")

    @dataclass
    class Opened(Message):
        """You want to see where a line came from."""

        source: PromptSource

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, cap=1_000_000, gutter={"": " " * GUTTER}, empty="Select a call.", tail=False)
        self._origins: list[tuple[PromptSource | None, str]] = []  # of each line: its source, and what is hostile in it

    @property
    def source(self) -> PromptSource | None:
        """Where the line under the cursor came from."""
        return self._origins[self.cursor][0] if self.takes(self.cursor) else None

    @property
    def standing(self) -> str:
        """How far the line under the cursor may be followed, and what the content filter has against it."""
        source = self.source
        if source is None:
            return ""
        label, hostile = source.standing or "text from Clawpy Console", self._origins[self.cursor][1]
        return f"{label}, ▲ hostile: {hostile}" if hostile else label

    @property
    def line(self) -> str:
        """The text under the cursor."""
        return self._lines[self.cursor][1] if self.source else ""

    @property
    def whole(self) -> str:
        """Everything that was sent."""
        texts = zip(self._origins, self._lines, strict=True)
        return "\n".join(text for (source, _), (_, text) in texts if source is not None)

    def show(self, parts: Sequence[PromptPart], reply: str = "", objections: Sequence[Sequence[str]] = ()) -> None:
        """Show a prompt from its top, what was answered below it. `objections`: for each line of each part what the
        content filter has against it."""
        lines: list[tuple[str, str]] = []
        origins: list[tuple[PromptSource | None, str]] = []
        for number, part in enumerate(parts):
            lines += [("hunk", ""), ("file", f"{part.role} · {part.name} · ≈{part.tokens:,} tokens")]
            lines += [("output" if part.role != "assistant" else "say", line.text) for line in part.lines]
            line_objections = objections[number] if objections else repeat("")
            origins += [OURS, OURS, *zip((line.source for line in part.lines), line_objections, strict=False)]
        if reply:
            lines += [("hunk", ""), ("file", "answered"), *(("say", item) for item in reply.rstrip("\n").split("\n"))]
        origins += [OURS] * (len(lines) - len(origins))
        self.clear(empty="nothing was sent")
        self._origins = origins[1:]  # no empty line on top
        self.extend(lines[1:])
        self.set_reactive(PromptLines.cursor, 0)
        self.go(0, 1)
        self.scroll_home(animate=False)

    def seek(self, kind: SourceKind) -> None:
        """Put the cursor on the first line of this kind, the view stays at its top."""
        numbers = (
            number for number, (origin, _) in enumerate(self._origins) if origin is not None and origin.kind is kind
        )
        self.set_reactive(PromptLines.cursor, next(numbers, self.cursor))
        self.refresh()

    @property
    def entries(self) -> int:
        return len(self._lines)

    def takes(self, number: int) -> bool:
        return super().takes(number) and self._origins[number][0] is not None

    def place(self, number: int) -> Region:
        first, end = self._starts[number : number + 2]
        return Region(0, first, 1, end - first)

    def entry_at(self, row: int) -> int:
        return self.line_at(row)

    def base(self, line: int, base: Style) -> Style:
        lit = line == self.cursor and self.has_focus and self.takes(line)
        return base + self.tone("reply") if lit else base

    def lead(self, line: int, part: int, base: Style) -> list[Segment]:
        source, hostile = self._origins[line]
        if source is None:
            return [] if self._lines[line][0] == "file" else [Segment(self._gutter[""], base)]
        name = ""
        if not part and (not line or source != self._origins[line - 1][0]):
            name = source.label.rpartition("/")[2] or source.kind.value
        marker = "▲" if hostile else MARKS.get(source.standing, "│")
        marker = "▸" if line == self.cursor and self.has_focus and not part else marker
        return [
            Segment(words.fit_to_width(name, GUTTER - 3) + " ", base + self.tone(COLOURS[source.kind])),
            Segment(f"{marker} ", base + self.tone("error" if marker == "▲" else "hunk")),
        ]

    def sign(self, line: int) -> str:
        return ""  # what is selected with the mouse is copied as it was sent

    def action_open(self) -> None:
        if (source := self.source) is not None:
            self.post_message(self.Opened(source))
