"""One marked section in a file that belongs to somebody else: write it, read it, leave every other byte alone. Pure.

The section is the first opening mark that a closing mark follows with no other opening mark between them; marks that
make no such pair are text like any other.
"""

from __future__ import annotations

import re

OPEN = "<!-- clawpy:inherited-wisdom -->"
CLOSE = "<!-- /clawpy:inherited-wisdom -->"


def find_section(data: bytes, *, opening: str = OPEN, closing: str = CLOSE) -> tuple[int, int] | None:
    """Where the section is, marks included; None when there is none."""
    first, last = opening.encode(), closing.encode()
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


def write_section(data: bytes, body: str, *, opening: str = OPEN, closing: str = CLOSE) -> bytes:
    """`data` with `body` (lines separated by "\\n", without marks) as its section.

    A new section comes at the end, after an empty line; with an empty body none is made, and one that is there keeps
    its marks only. Line ends are those of the file.
    """
    found = find_section(data, opening=opening, closing=closing)
    if not body and found is None:
        return data
    newline = _newline(data)
    lines = [opening, *(neutral(body, opening, closing).split("\n") if body else ()), closing]
    section = newline.join(line.encode(errors="replace") for line in lines)
    if found is not None:
        return data[: found[0]] + section + data[found[1] :]
    gap = b""
    if data:
        gap = newline if data.endswith((b"\n", b"\r")) else newline * 2
        if data.endswith(newline * 2):
            gap = b""
    return data + gap + section + newline


def without_section(text: str) -> str:
    """`text` without what the section says."""
    data = text.encode(errors="replace")
    found = find_section(data)
    return text if found is None else (data[: found[0]] + data[found[1] :]).decode()


def neutral(body: str, opening: str = OPEN, closing: str = CLOSE) -> str:
    """`body` in which nothing is a mark."""
    for mark in (opening, closing):
        body = body.replace(mark, mark.replace("<", "&lt;", 1))
    return body


def _newline(data: bytes) -> bytes:
    first = re.search(rb"\r\n|\n|\r", data)
    return first[0] if first else b"\n"
