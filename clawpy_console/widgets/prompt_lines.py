"""A prompt as it was sent, each line with its source in a gutter, and a cursor that leads there (SPEC 9.6)."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.reactive import reactive

from clawpy_console import words
from clawpy_console.keys import bindings
from clawpy_console.widgets.lines import LinesView
from engine.values import PromptPart, PromptSource, SourceKind, Trust
from engine.values.trust import APPROVED

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


class PromptLines(LinesView):
    """Lines of a prompt. Posts `Opened` when the source of the line under the cursor is wanted."""

    BINDINGS = bindings("rows")

    cursor: reactive[int] = reactive(0)

    class Opened(Message):
        """The operator wants to see where a line came from."""

        def __init__(self, source: PromptSource) -> None:
            super().__init__()
            self.source = source

    class Moved(Message):
        """The cursor stands on another line."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, cap=1_000_000, gutter={"": " " * GUTTER}, empty="Select a call.", tail=False)
        self._sources: list[PromptSource | None] = []  # None: a heading of ours, that was not sent
        self._hostile: list[str] = []

    @property
    def source(self) -> PromptSource | None:
        """Where the line under the cursor came from."""
        return self._source(self.cursor)

    @property
    def standing(self) -> str:
        """How far the line under the cursor may be followed, and what the content filter has against it."""
        source = self.source
        hostile = self._objection(self.cursor)
        said = source.standing or "text from Clawpy Console" if source is not None else ""
        return f"{said}, ▲ hostile: {hostile}" if hostile else said

    @property
    def line(self) -> str:
        """The text under the cursor."""
        return self._lines[self.cursor][1] if self._source(self.cursor) else ""

    @property
    def whole(self) -> str:
        """Everything that was sent."""
        texts = zip(self._sources, self._lines, strict=True)
        return "\n".join(text for source, (_, text) in texts if source is not None)

    def show(self, parts: Sequence[PromptPart], reply: str = "", objections: Sequence[Sequence[str]] = ()) -> None:
        """Show a prompt from its top, what was answered below it. `objections`: for each line of each part what the
        content filter has against it."""
        lines: list[tuple[str, str]] = []
        sources: list[PromptSource | None] = []
        for part in parts:
            lines += [("hunk", ""), ("file", f"{part.role} · {part.name} · ≈{part.tokens:,} tokens")]
            sources += [None, None]
            lines += [("output" if part.role != "assistant" else "say", line.text) for line in part.lines]
            sources += [line.source for line in part.lines]
        if reply:
            lines += [("hunk", ""), ("file", "answered"), *(("say", one) for one in reply.rstrip("\n").split("\n"))]
            sources += [None] * (len(lines) - len(sources))
        hostile: list[str] = []
        for number, part in enumerate(parts):
            hostile += ["", "", *(objections[number] if objections else [""] * len(part.lines))]
        self.clear(empty="nothing was sent")
        self._sources = sources[1:]  # no empty line on top
        self._hostile = hostile[1:]
        self.extend(lines[1:], follow=False)
        self.set_reactive(PromptLines.cursor, 0)
        self._step(1)
        self.scroll_home(animate=False)

    def seek(self, kind: SourceKind) -> None:
        """Put the cursor on the first line of this kind, the view stays at its top."""
        found = (number for number, one in enumerate(self._sources) if one is not None and one.kind is kind)
        self.set_reactive(PromptLines.cursor, next(found, self.cursor))
        self.refresh()

    def watch_cursor(self) -> None:
        if 0 <= self.cursor < len(self._starts):
            row = self._starts[self.cursor] - self._first
            self.scroll_to_region(Region(0, row, 1, self._rows(self._lines[self.cursor][1])), animate=False)
        self.refresh()
        self.post_message(self.Moved())

    def _source(self, number: int) -> PromptSource | None:
        return self._sources[number] if 0 <= number < len(self._sources) else None

    def _objection(self, number: int) -> str:
        return self._hostile[number] if 0 <= number < len(self._hostile) else ""

    def _base(self, number: int, base: Style) -> Style:
        lit = number == self.cursor and self.has_focus and self._source(number) is not None
        return base + self.tone("reply") if lit else base

    def _lead(self, number: int, part: int, base: Style) -> list[Segment]:
        kind, _ = self._lines[number]
        source = self._source(number)
        if source is None:
            return [] if kind == "file" else [Segment(self._gutter[""], base)]
        name = ""
        if not part and source != self._source(number - 1):
            name = source.label.rpartition("/")[2] or source.kind.value
        lead = Segment(words.fit(name, GUTTER - 3) + " ", base + self._kind(COLOURS[source.kind]))
        marker = "▲" if self._objection(number) else MARKS.get(source.standing, "│")
        marker = "▸" if number == self.cursor and self.has_focus and not part else marker
        return [lead, Segment(f"{marker} ", base + self._kind("error" if marker == "▲" else "hunk"))]

    def _before(self, number: int) -> str:
        return ""  # what is selected with the mouse is copied as it was sent

    def _step(self, by: int) -> None:
        number = self.cursor + by
        while 0 <= number < len(self._sources) and self._sources[number] is None:
            number += 1 if by > 0 else -1
        if 0 <= number < len(self._sources):
            self.cursor = number

    def action_up(self) -> None:
        self._step(-1)

    def action_down(self) -> None:
        self._step(1)

    def _leap(self, number: int, by: int) -> None:
        """Near to `number`: as far as there are lines, and not onto a heading."""
        self.cursor = min(max(0, number), max(0, len(self._sources) - 1))
        if self._sources and self._source(self.cursor) is None:
            self._step(by)

    def action_page_up(self) -> None:
        self._leap(self.cursor - self.size.height, 1)

    def action_page_down(self) -> None:
        self._leap(self.cursor + self.size.height, -1)

    def action_first(self) -> None:
        self._leap(0, 1)

    def action_last(self) -> None:
        self._leap(len(self._sources) - 1, -1)

    def action_open(self) -> None:
        if (source := self._source(self.cursor)) is not None:
            self.post_message(self.Opened(source))

    def on_click(self, event: events.Click) -> None:
        number = self._line_at(event.y + self.scroll_offset.y)
        if self._source(number) is not None:
            if number == self.cursor:
                self.action_open()
            self.cursor = number

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()
