"""Files of JSON lines that a verb reads: `clawpy check --batch`, `clawpy recall --batch`, `clawpy remember`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import engine

PIECE_BYTES = 1024 * 1024
"""A piece is at most so large, written as JSON: answers come out as they are made."""


def answer(name: str, ask: Callable[[list[str]], Mapping[str, Any]], *, most: int) -> bool:
    """Print one line of JSON for each line of the file `name`, in order, `-` for standard input; blank lines are
    passed over. `ask` answers up to `most` lines at once. True when every line could be answered.

    What had to be left out is told on standard error, once. Raises `Refusal`: `no_file`, and what the engine refuses.
    """
    good, told = True, set[str]()
    for piece in pieces(((number, line) for number, line in numbered(name) if line.strip()), most):
        for number, result in zip(piece, ask(list(piece.values()))["results"], strict=True):
            if "error" in result:
                result["error"]["message"] = f"line {number}: {result['error']['message']}"
                good = False
            for words in result.get("leftOut", ()):
                if words not in told:
                    told.add(words)
                    print(f"left out: {words}", file=sys.stderr)
            print(json.dumps(result, ensure_ascii=False), flush=True)
    return good


def pieces(lines: Iterable[tuple[int, str]], most: int) -> Iterator[dict[int, str]]:
    """Lines by their numbers, in pieces of at most so many, and of `PIECE_BYTES` but for one line that alone is
    larger."""
    piece, size = dict[int, str](), 0
    for number, line in lines:
        length = len(json.dumps(line))
        if piece and (len(piece) >= most or size + length > PIECE_BYTES):
            yield piece
            piece, size = {}, 0
        piece[number] = line
        size += length
    if piece:
        yield piece


def parsed(line: str) -> Any:
    """A line of JSON, None when it is none."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def numbered(name: str) -> Iterator[tuple[int, str]]:
    """The lines of a file, `-` for standard input, with their numbers from 1. Raises `Refusal` `no_file`."""
    try:
        with nullcontext(sys.stdin) if name == "-" else Path(name).open(encoding="utf-8", errors="replace") as file:
            yield from enumerate(file, 1)
    except OSError as error:
        told = f"{name} cannot be read: {error.strerror}"
        raise engine.Refusal("no_file", told, "name a file of JSON lines") from error
