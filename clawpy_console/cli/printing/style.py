"""How verbs print: colour where there is a terminal, and times, spans and counts as people read them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePath
from typing import Any, TextIO

from clawpy_console import words
from clawpy_console.fields import Field, label_width
from engine.values import sanitise
from engine.values.text import count as count
from engine.values.text import failures

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Style:
    """How to write: in colour or not."""

    colour: bool = False

    @classmethod
    def of(cls, stream: TextIO) -> Style:
        """What fits `stream`; NO_COLOR and TERM=dumb are honoured."""
        if not stream.isatty():
            return cls()
        plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        return cls(not plain)

    def _paint(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text else text

    def paint(self, tone: str, text: str) -> str:
        """`text` in the tone of a field."""
        return self._paint(PAINTS[tone], text) if tone in PAINTS else text

    def bold(self, text: str) -> str:
        return self._paint("1", text)

    def dim(self, text: str) -> str:
        return self._paint("2", text)

    def good(self, text: str) -> str:
        return self._paint("32", text)

    def bad(self, text: str) -> str:
        return self._paint("31", text)

    def wants(self, text: str) -> str:
        return self._paint("33", text)


PAINTS = {
    "title": "1", "heading": "1", "grey": "2", "faint": "2", "good": "32", "accent": "32", "wants": "33", "wrong": "31",
}  # fmt: skip
"""The escape codes of the tones of fields."""


def printed(fields: Iterable[Field], style: Style) -> list[str]:
    """Fields as lines, a blank one before each part."""
    lines: list[str] = []
    fields = list(fields)
    label = label_width(fields)
    for one in fields:
        lines += [""] if lines and one.tone == "heading" else []
        name = f"  {one.name:<{label}}" if one.name else "" if one.tone in ("title", "heading") else "  "
        lines.append((style.dim(name) + style.paint(one.tone, clean(one.text))).rstrip())
    return lines


def table(heads: Sequence[str], rows: Sequence[Sequence[object]], style: Style) -> list[str]:
    """Rows under their headings, numbers and money at the right of their column; nothing without rows."""
    cells = [[clean(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]

    def line(row: Sequence[str], values: Sequence[object]) -> str:
        aligned = (
            f"{text:>{width}}" if isinstance(value, int) or text.startswith("$") else f"{text:<{width}}"
            for text, value, width in zip(row, values, widths, strict=True)
        )
        return "  ".join(aligned).rstrip()

    return [style.bold(line(heads, rows[0])), *map(line, cells, rows)] if rows else []


def place(one: Document) -> str:
    return f"{clean(PurePath(one['workspace']).name)} → {clean(one['targetChannel'])}"


def clean(text: Any) -> str:
    return sanitise(str(text))


def one_line(text: Any) -> str:
    """`clean`, on one line: a prompt of several lines stays one entry of a list."""
    return " ".join(clean(text).split())


def indented(text: Any) -> list[str]:
    """`clean`, each of its lines under the entry that it belongs to."""
    return [f"    {line}" for line in clean(text).splitlines()]


def how_it_ended(session: Document, style: Style) -> str:
    """The state of a session, coloured. One that ran to its end and found failing tests says so, as on the screens."""
    check = session.get("check")
    if session["state"] == "succeeded" and session["result"] == "failed" and check:
        return style.wants(failures(check["failed"], check["errors"]))
    tones = {"succeeded": "good", "discarded": "grey", "running": "title", "queued": "grey", "cannot_run": "wants"}
    return style.paint(tones.get(session["state"], "wrong"), words.session_state(session["state"]))


def time(instant: str | None) -> str:
    """An instant in the operator's own time: the hour today, else with the date."""
    if not instant:
        return "now"
    local = datetime.fromisoformat(instant).astimezone()
    return local.strftime("%H:%M" if local.date() == datetime.now().astimezone().date() else "%Y-%m-%d %H:%M")


def span(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"
