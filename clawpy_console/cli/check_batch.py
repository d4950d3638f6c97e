"""`clawpy check --batch`: one line of JSON for each line of a file, in order (SPEC 3.5)."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from clawpy_console.cli.options import Where
from engine import Refusal

BATCH_BYTES = 2 * 1024 * 1024
"""A batch goes to the engine in pieces of about this size."""


def check_batch(name: str, where: Where, *, opener: Callable[..., Any]) -> bool:
    """Judge the file `name`, `-` for standard input, on standard output; True when every line could be judged. Lines
    that are no JSON are answered with their error. Raises `Refusal`: `no_file`, and what the engine refuses."""
    from engine import call

    good, number = True, 0
    for lines in _pieces(name):
        asked = {"lines": [_parsed(line) for line in lines], "cwd": str(Path.cwd())}
        for result in call(where.home, "check", asked, opener=opener)["results"]:
            number += 1
            if "error" in result:
                result["error"]["message"] = f"line {number}: {result['error']['message']}"
                good = False
            print(json.dumps(result, ensure_ascii=False))
    return good


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _pieces(name: str) -> Iterator[list[str]]:
    try:
        with nullcontext(sys.stdin) if name == "-" else Path(name).open(encoding="utf-8", errors="replace") as file:
            lines: list[str] = []
            size = 0
            for line in file:
                lines.append(line)
                size += len(line)
                if size > BATCH_BYTES:
                    yield lines
                    lines, size = [], 0
            if lines:
                yield lines
    except OSError as error:
        raise Refusal("no_file", f"{name} cannot be read: {error.strerror}", "name a file of JSON lines") from error
