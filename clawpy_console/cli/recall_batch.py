"""`clawpy recall --batch`: one line of JSON for each line of a file, in order, from one engine."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from clawpy_console.cli.options import Where
from engine import Refusal

PIECE_LINES = 50
PIECE_BYTES = 1024 * 1024
"""What is asked at once: small enough that lines come out as they are answered."""


def recall_batch(name: str, where: Where, scope: dict[str, Any], *, opener: Callable[..., Any]) -> bool:
    """Answer the file `name`, `-` for standard input, on standard output; True when every line could be answered.

    What a layer had to do without is told on standard error, once. Raises `Refusal`: `no_file`, and what the engine
    refuses.
    """
    from engine import talk

    good, number, told = True, 0, set[str]()
    with talk(where.home, workspaces=where.all(), opener=opener) as ask:
        for lines in _pieces(name):
            for result in ask("recall", {"lines": lines, **scope})["results"]:
                number += 1
                if "error" in result:
                    result["error"]["message"] = f"line {number}: {result['error']['message']}"
                    good = False
                for words in result.get("leftOut", ()):
                    if words not in told:
                        told.add(words)
                        print(f"left out: {words}", file=sys.stderr)
                print(json.dumps(result, ensure_ascii=False), flush=True)
    return good


def _pieces(name: str) -> Iterator[list[str]]:
    try:
        with nullcontext(sys.stdin) if name == "-" else Path(name).open(encoding="utf-8", errors="replace") as file:
            lines: list[str] = []
            size = 0
            for line in file:
                if not line.strip():
                    continue
                lines.append(line)
                size += len(line)
                if len(lines) >= PIECE_LINES or size > PIECE_BYTES:
                    yield lines
                    lines, size = [], 0
            if lines:
                yield lines
    except OSError as error:
        raise Refusal("no_file", f"{name} cannot be read: {error.strerror}", "name a file of JSON lines") from error
