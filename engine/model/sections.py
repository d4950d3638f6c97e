"""Reads and writes one marked section of a file that others own; every other byte stays. Pure.

The section is the first opening mark that is followed by a closing mark with no other opening mark in between.
"""

from __future__ import annotations

import re

from engine.frozen import frozen


@frozen
class Marks:
    """The comments around a section. `name` tells it from other sections."""

    name: str

    @property
    def opening(self) -> str:
        """The line before the section."""
        return f"<!-- {self.name} -->"

    @property
    def closing(self) -> str:
        """The line after the section."""
        return f"<!-- /{self.name} -->"


INHERITED = Marks("clawpy:inherited-wisdom")
"""In a `soul.md`: what the agent's leaders know (SPEC 1.6)."""

LEARNT = Marks("clawpy:learnt")
"""In an `AGENTS.md`: what was learnt in the project (SPEC 1.12)."""


def find_section(data: bytes, marks: Marks) -> tuple[int, int] | None:
    """Where the section is, marks included; None when there is none."""
    first, last = marks.opening.encode(), marks.closing.encode()
    at = data.find(first)
    while at >= 0:
        end = data.find(last, at + len(first))
        if end < 0:
            return None
        inner = data.rfind(first, at, end)
        if inner == at:
            return at, end + len(last)
        at = inner
    return None


def write_section(data: bytes, body: str, marks: Marks) -> bytes:
    """`data` with `body` (lines separated by "\\n", without marks) as its section.

    A new section comes at the end, after an empty line; with an empty body none is made, and one that is there keeps
    its marks only. Line ends are those of the file.
    """
    span = find_section(data, marks)
    if not body and span is None:
        return data
    newline = _newline(data)
    lines = [marks.opening, *(neutral(body, marks).split("\n") if body else ()), marks.closing]
    section = newline.join(line.encode(errors="replace") for line in lines)
    if span is not None:
        return data[: span[0]] + section + data[span[1] :]
    gap = b""
    if data:
        gap = newline if data.endswith((b"\n", b"\r")) else newline * 2
        if data.endswith(newline * 2):
            gap = b""
    return data + gap + section + newline


def read_section(data: bytes, marks: Marks) -> str:
    """What the section says, without its marks, lines separated by "\\n"; "" when there is none."""
    span = find_section(data, marks)
    if span is None:
        return ""
    inner = data[span[0] + len(marks.opening.encode()) : span[1] - len(marks.closing.encode())]
    return "\n".join(inner.decode(errors="replace").splitlines()).strip("\n")


def without_section(text: str, marks: Marks) -> str:
    """`text` without what the section says."""
    data = text.encode(errors="replace")
    span = find_section(data, marks)
    return text if span is None else (data[: span[0]] + data[span[1] :]).decode()


def neutral(body: str, marks: Marks) -> str:
    """`body` in which nothing is a mark."""
    for mark in (marks.opening, marks.closing):
        body = body.replace(mark, mark.replace("<", "&lt;", 1))
    return body


def _newline(data: bytes) -> bytes:
    first = re.search(rb"\r\n|\n|\r", data)
    return first[0] if first else b"\n"
