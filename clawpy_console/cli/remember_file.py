"""`clawpy remember`: a file of any size goes to the engine piece by piece, with progress on standard error."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from clawpy_console.cli.batch import numbered, pieces
from clawpy_console.cli.options import Where

PIECE_LINES = 200

LONGEST_LINE = 3 * 1024 * 1024
"""Bytes, written as JSON once more: what the engine takes in one piece."""

BAD_NAMED = 1_000
"""So many bad lines are named in the document; all are counted."""

SETTLE_SECONDS = 2.0


def remember(name: str, where: Where, *, opener: Callable[..., Any], wait: bool) -> dict[str, Any]:
    """Have the engine remember the file `name`, `-` for standard input; the document of the verb. Raises `Refusal`:
    `no_file`, and what the engine refuses. What was acknowledged before that stays remembered."""
    from engine import talk

    began = time.monotonic()
    found = {"remembered": 0, "known": 0, "badLines": 0}
    bad: list[dict[str, Any]] = []
    source = "stdin" if name == "-" else Path(name).name[:200]
    answer: dict[str, Any] = {"missing": 0, "trouble": ""}

    def tally(some: Iterable[dict[str, Any]]) -> None:
        for one in some:
            found["badLines"] += 1
            if len(bad) < BAD_NAMED:
                bad.append(one)
            print(f"line {one['line']}: {one['message']}", file=sys.stderr)

    def lines() -> Iterator[tuple[int, str]]:
        """Those that fit into a piece. A longer one leaves an empty one in its place: the engine counts them too."""
        for number, line in numbered(name):
            fits = len(json.dumps(line)) <= LONGEST_LINE
            if not fits:
                tally([{"line": number, "message": f"{len(line):,} characters is too long", "kept": False}])
            yield number, line if fits else ""

    with (
        Console(stderr=True).status("Reading…") as progress,
        talk(where.home, workspaces=where.all(), opener=opener) as ask,
    ):
        for piece in pieces(lines(), PIECE_LINES):
            answer = ask("remember", {"lines": list(piece.values()), "first": min(piece), "source": source})
            found["remembered"] += answer["remembered"]
            found["known"] += answer["known"]
            tally(answer["bad"])
            progress.update(f"{found['remembered'] + found['known']} remembered")
        while wait:
            answer = ask("remember", {"settle": SETTLE_SECONDS})
            if answer["settled"] or answer["trouble"] or (not answer["missing"] and answer["index"] == "degraded"):
                break
            missing = answer["missing"]
            progress.update(f"{missing} not yet found by meaning" if missing else "all can be found by meaning")
    return found | {
        "bad": bad,
        "missing": answer["missing"],
        "trouble": answer["trouble"],
        "seconds": round(time.monotonic() - began, 3),
    }
