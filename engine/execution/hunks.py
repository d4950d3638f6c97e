"""Hunks of one file's patch: where they are, a file with some of them, and which of them a file has. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from io import BytesIO

_HEADER = re.compile(rb"(?m)^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")

Span = tuple[int, int, int, int]
"""Where a hunk begins and ends in the old file, and in the new one: lines from 0, the end not included."""


def spans(patch: bytes) -> list[Span]:
    """The hunks of one file's patch."""
    return [_span(found) for found in _HEADER.finditer(patch)]


def with_hunks(old: bytes, new: bytes, hunks: Sequence[Span], chosen: Collection[int]) -> bytes:
    """`old` with the hunks of these numbers, from 1, as in `new`."""
    before, after = BytesIO(old).readlines(), BytesIO(new).readlines()
    lines: list[bytes] = []
    place = 0
    for number, (start, end, new_start, new_end) in enumerate(hunks, 1):
        lines += before[place:start]
        lines += after[new_start:new_end] if number in chosen else before[start:end]
        place = end
    return b"".join([*lines, *before[place:]])


def hunks_in(file: bytes, old: bytes, new: bytes, hunks: Sequence[Span]) -> frozenset[int] | None:
    """The numbers with which `with_hunks` made `file`; None when no numbers do."""
    lines, before, after = (BytesIO(text).readlines() for text in (file, old, new))
    found = {0: frozenset[int]()}  # by line of `file`: the hunks in the lines before it
    place = 0
    for number, (start, end, new_start, new_end) in enumerate(hunks, 1):
        further: dict[int, frozenset[int]] = {}
        for line, numbers in found.items():
            for then, chosen in (
                (before[place:end], numbers),
                (before[place:start] + after[new_start:new_end], numbers | {number}),
            ):
                if lines[line : line + len(then)] == then:
                    further.setdefault(line + len(then), chosen)
        found, place = further, end
    return next((numbers for line, numbers in found.items() if lines[line:] == before[place:]), None)


def _span(found: re.Match[bytes]) -> Span:
    start, count, new_start, new_count = (1 if text is None else int(text) for text in found.groups())
    first, new_first = start - (count > 0), new_start - (new_count > 0)
    return first, first + count, new_first, new_first + new_count
