"""`clawpy remember`: a file of any size goes to the engine piece by piece, with progress on standard error."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from clawpy_console.cli.batch import numbered
from clawpy_console.cli.options import Where

PIECE_LINES = 200
PIECE_BYTES = 1024 * 1024
"""A piece is at most so large, written as JSON once more; but for one line that alone is larger."""

LONGEST_LINE = 3 * 1024 * 1024
"""Bytes, written as JSON once more: what the engine takes in one piece."""

BAD_NAMED = 1_000
"""So many bad lines are named in the document; all are counted."""

SETTLE_SECONDS = 2.0
TELL_SECONDS = 1.0


def remember(name: str, where: Where, *, opener: Callable[..., Any], wait: bool) -> dict[str, Any]:
    """Have the engine remember the file `name`, `-` for standard input; the document of the verb. Raises `Refusal`:
    `no_file`, and what the engine refuses. What was acknowledged before that stays remembered."""
    from engine import talk

    began = time.monotonic()
    tell = _Teller()
    found = {"remembered": 0, "known": 0, "badLines": 0}
    bad: list[dict[str, Any]] = []
    source = "stdin" if name == "-" else Path(name).name[:200]
    answer: dict[str, Any] = {"missing": 0, "trouble": ""}

    def tally(some: list[dict[str, Any]]) -> None:
        found["badLines"] += len(some)
        bad.extend(some[: BAD_NAMED - len(bad)])
        for one in some:
            tell.bad(one)

    with talk(where.home, workspaces=where.all(), opener=opener) as ask:
        for first, lines, too_long in _pieces(name):
            tally(too_long)
            if not lines:
                continue
            answer = ask("remember", {"lines": lines, "first": first, "source": source})
            found["remembered"] += answer["remembered"]
            found["known"] += answer["known"]
            tally(answer["bad"])
            tell.now(f"{found['remembered'] + found['known']} remembered")
        while wait:
            answer = ask("remember", {"settle": SETTLE_SECONDS})
            if answer["settled"] or answer["trouble"] or (not answer["missing"] and answer["index"] == "degraded"):
                break
            tell.now(
                f"{answer['missing']} not yet found by meaning" if answer["missing"] else "all can be found by meaning"
            )
    tell.end()
    return found | {
        "bad": bad,
        "missing": answer["missing"],
        "trouble": answer["trouble"],
        "seconds": round(time.monotonic() - began, 3),
    }


def _pieces(name: str) -> Iterator[tuple[int, list[str], list[dict[str, Any]]]]:
    """Pieces of the file: the number of the first line, the lines, and those that are too long for any piece.

    A line that is too long leaves an empty one in its place, so that the numbers stay true."""
    lines: list[str] = []
    bad: list[dict[str, Any]] = []
    first, size = 1, 0
    for number, line in numbered(name):
        length = len(json.dumps(line))
        if length > LONGEST_LINE:
            bad.append({"line": number, "message": f"{len(line):,} characters is too long", "kept": False})
            line, length = "", 2
        if lines and (len(lines) >= PIECE_LINES or size + length > PIECE_BYTES):
            yield first, lines, bad
            lines, bad, first, size = [], [], number, 0
        lines.append(line)
        size += length
    if lines:
        yield first, lines, bad


class _Teller:
    """Progress, for a person at a terminal; bad lines, for whoever reads standard error."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._told = time.monotonic()
        self._shown = False

    def now(self, words: str) -> None:
        if self._live and time.monotonic() - self._told >= TELL_SECONDS:
            self._told = time.monotonic()
            self._shown = True
            print(f"\r\x1b[K{words}", end="", file=sys.stderr, flush=True)

    def bad(self, one: dict[str, Any]) -> None:
        self.end()
        print(f"line {one['line']}: {one['message']}", file=sys.stderr)

    def end(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._shown = False
