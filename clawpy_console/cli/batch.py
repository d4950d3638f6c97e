"""What a verb reads besides its arguments: files of JSON lines, and secrets that are typed."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import engine
from clawpy_console.cli.options import CommonOptions, WrongUse

MAX_PIECE_BYTES = 1024 * 1024
"""A piece is at most so large, written as JSON: answers come out as they are made."""


def answer(name: str, ask: Callable[[list[str]], Mapping[str, Any]], *, most: int) -> bool:
    """Print one line of JSON for each line of the file `name`, in order, `-` for standard input; blank lines are
    passed over. `ask` answers up to `most` lines at once. True when every line could be answered.

    What had to be left out is told on standard error, once. Raises `Refusal`: `no_file`, and what the engine refuses.
    """
    all_answered, reported = True, set[str]()
    for piece in pieces(((number, line) for number, line in numbered(name) if line.strip()), most):
        for number, result in zip(piece, ask(list(piece.values()))["results"], strict=True):
            if "error" in result:
                result["error"]["message"] = f"line {number}: {result['error']['message']}"
                all_answered = False
            for words in result.get("leftOut", ()):
                if words not in reported:
                    reported.add(words)
                    print(f"left out: {words}", file=sys.stderr)
            print(json.dumps(result, ensure_ascii=False), flush=True)
    return all_answered


def pieces(lines: Iterable[tuple[int, str]], most: int) -> Iterator[dict[int, str]]:
    """Lines by their numbers, in pieces of at most so many, and of `MAX_PIECE_BYTES` but for one line that alone is
    larger."""
    piece, size = dict[int, str](), 0
    for number, line in lines:
        length = len(json.dumps(line))
        if piece and (len(piece) >= most or size + length > MAX_PIECE_BYTES):
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
        message = f"{name} cannot be read: {error.strerror}"
        raise engine.Refusal("no_file", message, "name a file of JSON lines") from error


MAX_PIECE_LINES = 200

MAX_LINE_BYTES = 3 * 1024 * 1024
"""Bytes, written as JSON once more: what the engine takes in one piece."""

MAX_BAD_LINES = 1_000
"""So many bad lines are named in the document; all are counted."""

SETTLE_S = 2.0


def remember(name: str, common: CommonOptions, *, opener: Callable[..., Any], wait: bool) -> dict[str, Any]:
    """Have the engine remember the file `name`, `-` for standard input; the document of the verb. Raises `Refusal`:
    `no_file`, and what the engine refuses. What was acknowledged before that stays remembered."""
    from rich.console import Console

    started = time.monotonic()
    counts = {"remembered": 0, "known": 0, "badLines": 0}
    bad: list[dict[str, Any]] = []
    source = "stdin" if name == "-" else Path(name).name[:200]
    answer: dict[str, Any] = {"missing": 0, "trouble": ""}

    def tally(bad_lines: Iterable[dict[str, Any]]) -> None:
        for item in bad_lines:
            counts["badLines"] += 1
            if len(bad) < MAX_BAD_LINES:
                bad.append(item)
            print(f"line {item['line']}: {item['message']}", file=sys.stderr)

    def lines() -> Iterator[tuple[int, str]]:
        """Those that fit into a piece. A longer one leaves an empty one in its place: the engine counts them too."""
        for number, line in numbered(name):
            fits = len(json.dumps(line)) <= MAX_LINE_BYTES
            if not fits:
                tally([{"line": number, "message": f"{len(line):,} characters is too long", "kept": False}])
            yield number, line if fits else ""

    with (
        Console(stderr=True).status("Reading…") as progress,
        engine.talk(common.home, workspaces=common.all(), opener=opener) as ask,
    ):
        for piece in pieces(lines(), MAX_PIECE_LINES):
            answer = ask("remember", {"lines": list(piece.values()), "first": min(piece), "source": source})
            counts["remembered"] += answer["remembered"]
            counts["known"] += answer["known"]
            tally(answer["bad"])
            progress.update(f"{counts['remembered'] + counts['known']} remembered")
        while wait:
            answer = ask("remember", {"settle": SETTLE_S})
            if answer["settled"] or answer["trouble"] or (not answer["missing"] and answer["index"] == "degraded"):
                break
            missing = answer["missing"]
            progress.update(f"{missing} not yet found by meaning" if missing else "all can be found by meaning")
    return counts | {
        "bad": bad,
        "missing": answer["missing"],
        "trouble": answer["trouble"],
        "seconds": round(time.monotonic() - started, 3),
    }


SECRET_BYTES = 8192
"""No key is longer."""


def key(options: argparse.Namespace, common: CommonOptions) -> dict[str, Any]:
    """Ask for a key and keep it; the document that says so. Raises `WrongUse` when it was given as an argument."""
    if options.never:
        raise WrongUse(
            "do not give a key as an argument: other programs can read it there, and the shell keeps it. "
            "Run `clawpy key set NAME` and paste it when you are asked. "
            "If this was a real key, get a new one from the provider"
        )
    from engine import keep_key

    return keep_key(common.home, options.name, _typed("Key (not shown): "), in_file=options.store == "file")


def address(options: argparse.Namespace, common: CommonOptions, *, opener: Callable[..., Any]) -> dict[str, Any]:
    """Ask for the address of a surface of notifications, which may hold a secret, and keep it. Raises `WrongUse` when
    it was given as an argument."""
    if options.never:
        raise WrongUse(
            "do not give an address as an argument: it may contain a token, and the shell keeps it. "
            f"Run `clawpy notify set {options.surface}` and paste it when you are asked"
        )
    from engine import call, keep_address

    def write(setting: str, value: str) -> None:
        call(common.home, "config", {"action": "set", "key": setting, "value": value}, opener=opener)

    address_text = _typed("Address (not shown): ")
    return keep_address(common.home, options.surface, address_text, in_file=options.store == "file", write=write)


def _typed(question: str) -> str:
    """What is typed unseen, or read from what is piped in."""
    if not sys.stdin.isatty():
        return sys.stdin.read(SECRET_BYTES).strip()
    import getpass

    try:
        return getpass.getpass(question)
    except EOFError:
        return ""
