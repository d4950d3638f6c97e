"""The way of a candidate as a line of stations (SPEC 5.3). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from rich.cells import cell_len
from textual.content import Content

from clawpy_console import words
from engine.values.adaptation import Station

STATIONS: Mapping[str, tuple[str, str, str]] = {
    "done": ("✓", "grey", "grey"), "now": ("◐", "accent", "ink"), "ahead": ("○", "faint", "faint"),
    "failed": ("✗", "wrong", "ink"),
}  # fmt: skip
"""Glyph, its style, and that of the words, by the state of a station."""

YOURS = "review"
"""The station at which it waits for the operator."""

SHORT = 7
"""Cells of a name in a line that is too narrow for the names."""

COLUMN_LINES = 3
"""Lines of words that a station has there; all its words stand in the list of stations."""

COLUMN = 18
"""Cells a station takes at least where they stand side by side."""


def _look(one: Station) -> tuple[str, str, str]:
    if one.state == "now" and one.name == YOURS:
        return "▲", "wants", "ink"
    return STATIONS.get(one.state, STATIONS["ahead"])


def station_line(stations: Sequence[Station], width: int) -> Content:
    """The stations in one line, each with its glyph; names are cut where that takes less."""
    names = [one.name for one in stations]
    joint = " ── "
    if _length(names, joint) > width:
        joint = " "
    if _length(names, joint) > width:
        names = [words.crop(name, SHORT) for name in names]
    parts: list[Content] = []
    for one, name in zip(stations, names, strict=True):
        glyph, style, said = _look(one)
        bold = "bold " if one.state in ("now", "failed") else ""
        parts.append(Content.assemble((f"{glyph} ", f"{bold}${style}"), (name, f"{bold}${said}")))
    return Content.styled(joint, "$faint").join(parts)


def _length(names: Sequence[str], joint: str) -> int:
    return sum(2 + cell_len(name) for name in names) + cell_len(joint) * max(0, len(names) - 1)


def station_lines(stations: Sequence[Station], now: datetime, width: int) -> list[Content]:
    """Each station with its time and words: side by side where there is room, else one below the other."""
    if beside(stations, width):
        return _columns(stations, now, width // len(stations))
    return station_list(stations, now, width)


def beside(stations: Sequence[Station], width: int) -> bool:
    """Whether stations can stand side by side."""
    return bool(stations) and width >= COLUMN * len(stations)


def told_whole(stations: Sequence[Station], width: int) -> bool:
    """Whether `station_lines` says all their words."""
    if not beside(stations, width):
        return True
    room = width // len(stations) - 2
    return all(len(Content(words.one_line(one.words)).wrap(room)) <= COLUMN_LINES for one in stations if one.words)


def station_list(stations: Sequence[Station], now: datetime, width: int) -> list[Content]:
    """Each station with its time and words, one below the other."""
    lines: list[Content] = []
    wide = max((cell_len(one.name) for one in stations), default=0)
    for one in stations:
        glyph, style, said = _look(one)
        at = words.moment(one.at, now) if one.at else ""
        head = f"{words.fit(one.name, wide)}  {at:>9}  "
        first, *rest = Content.styled(words.one_line(one.words) or " ", f"${said}").wrap(max(8, width - 2 - len(head)))
        lines.append(Content.assemble((f"{glyph} ", f"${style}"), (head, f"${said}"), first))
        lines += [Content.assemble(" " * (2 + len(head)), line) for line in rest]
    return lines


def _columns(stations: Sequence[Station], now: datetime, column: int) -> list[Content]:
    """Stations in columns: a line between them, below each its time, then its words."""
    track: list[Content] = []
    cells: list[list[Content]] = []
    for number, one in enumerate(stations):
        glyph, style, said = _look(one)
        bold = "bold " if one.state in ("now", "failed") else ""
        name = words.crop(one.name, column - 4)
        last = number == len(stations) - 1
        rest = column - cell_len(name) - 4
        line = " " + "─" * rest + " " if not last else " " * (rest + 2)
        track.append(Content.assemble((f"{glyph} ", f"{bold}${style}"), (name, f"{bold}${said}"), (line, "$faint")))
        at = Content.styled(words.moment(one.at, now) if one.at else "·", "$faint")
        told = Content.styled(words.one_line(one.words), f"${said}").wrap(max(6, column - 2)) if one.words else []
        if len(told) > COLUMN_LINES:
            last_line = words.crop(told[COLUMN_LINES - 1].plain, column - 3) + "…"
            told = [*told[: COLUMN_LINES - 1], Content.styled(last_line, f"${said}")]
        cells.append([at, *told])
    lines = [Content("").join(track)]
    for row in range(max(len(cell) for cell in cells)):
        lines.append(
            Content("")
            .join([_padded(cell[row] if row < len(cell) else Content(""), column) for cell in cells])
            .rstrip()
        )
    return lines


def _padded(line: Content, width: int) -> Content:
    return line.pad_right(max(0, width - line.cell_length))
