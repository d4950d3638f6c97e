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
"""Bytes of JSON in one request, so that answers come out while a long file is read."""


def answer_lines(name: str, ask: Callable[[list[str]], Mapping[str, Any]], *, limit: int) -> bool:
    """Print one line of JSON for each line of the file `name`, in order, `-` for standard input; blank lines are
    skipped. `ask` answers up to `limit` lines at once. True when every line could be answered.

    What was left out of an answer is printed once on standard error. Raises `Refusal`: `no_file`, and those of the
    engine.
    """
    all_answered, reported = True, set[str]()
    for piece in split_lines(((number, line) for number, line in numbered_lines(name) if line.strip()), limit):
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


def split_lines(lines: Iterable[tuple[int, str]], limit: int) -> Iterator[dict[int, str]]:
    """Lines by number, in pieces of at most `limit` lines and `MAX_PIECE_BYTES`; a single larger line is a piece of its
    own."""
    piece, size = dict[int, str](), 0
    for number, line in lines:
        length = len(json.dumps(line))
        if piece and (len(piece) >= limit or size + length > MAX_PIECE_BYTES):
            yield piece
            piece, size = {}, 0
        piece[number] = line
        size += length
    if piece:
        yield piece


def parse_json(line: str) -> Any:
    """The value of a line of JSON, None when it is invalid."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def numbered_lines(name: str) -> Iterator[tuple[int, str]]:
    """The lines of a file, `-` for standard input, with their numbers from 1. Raises `Refusal` `no_file`."""
    try:
        with nullcontext(sys.stdin) if name == "-" else Path(name).open(encoding="utf-8", errors="replace") as file:
            yield from enumerate(file, 1)
    except OSError as error:
        message = f"{name} cannot be read: {error.strerror}"
        raise engine.Refusal("no_file", message, "name a file of JSON lines") from error


MAX_PIECE_LINES = 200

MAX_LINE_BYTES = 3 * 1024 * 1024
"""The engine accepts no longer line, encoded as JSON."""

MAX_BAD_LINES = 1_000
"""Bad lines that the document names; all are counted."""

SETTLE_S = 2.0


def remember(name: str, common: CommonOptions, *, opener: Callable[..., Any], wait: bool) -> dict[str, Any]:
    """Store the lines of the file `name` in memory, `-` for standard input; returns the document of the verb.

    Raises `Refusal`: `no_file`, and those of the engine. Lines that were acknowledged before that stay stored.
    """
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
        """Lines that fit into a request. A longer one is replaced by an empty line, because the engine counts lines
        too."""
        for number, line in numbered_lines(name):
            fits = len(json.dumps(line)) <= MAX_LINE_BYTES
            if not fits:
                tally([{"line": number, "message": f"{len(line):,} characters is too long", "kept": False}])
            yield number, line if fits else ""

    with (
        Console(stderr=True).status("Reading…") as progress,
        engine.connect(common.home, workspaces=common.all(), opener=opener) as ask,
    ):
        for piece in split_lines(lines(), MAX_PIECE_LINES):
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
"""The length of a key at most."""


def key(options: argparse.Namespace, common: CommonOptions) -> dict[str, Any]:
    """Ask for a key and store it; returns the document. Raises `WrongUse` when the key was given as an argument."""
    if options.never:
        raise WrongUse(
            "do not give a key as an argument: other programs can read it there, and the shell keeps it. "
            "Run `clawpy key set NAME` and paste it when you are asked. "
            "If this was a real key, get a new one from the provider"
        )
    from engine import store_key

    return store_key(common.home, options.name, _read_secret("Key (not shown): "), in_file=options.store == "file")


def address(options: argparse.Namespace, common: CommonOptions, *, opener: Callable[..., Any]) -> dict[str, Any]:
    """Ask for the address of a notification surface, which may contain a secret, and store it. Raises `WrongUse` when
    the address was given as an argument."""
    if options.never:
        raise WrongUse(
            "do not give an address as an argument: it may contain a token, and the shell keeps it. "
            f"Run `clawpy notify set {options.surface}` and paste it when you are asked"
        )
    from engine import call, store_address

    def write(setting: str, value: str) -> None:
        call(common.home, "config", {"action": "set", "key": setting, "value": value}, opener=opener)

    address_text = _read_secret("Address (not shown): ")
    return store_address(common.home, options.surface, address_text, in_file=options.store == "file", write=write)


def _read_secret(question: str) -> str:
    """A secret, typed without echo or read from a pipe."""
    if not sys.stdin.isatty():
        return sys.stdin.read(SECRET_BYTES).strip()
    import getpass

    try:
        return getpass.getpass(question)
    except EOFError:
        return ""
