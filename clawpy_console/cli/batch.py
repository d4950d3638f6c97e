"""The verbs that read files of JSON lines: check and recall, which answer one question or a file of them, and
remember.

`cli.requests` and `cli.main` call them. A file is answered line by line, so that answers come out while it is read.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import engine
from clawpy_console.cli import Invocation, WrongUse, print_output
from clawpy_console.cli.verbs import Document

FILE_FIX = "name a file of JSON lines, such as chats.jsonl, or - for stdin"
"""How to name what `remember` and `--batch` read."""


def check(options: Namespace, invocation: Invocation) -> Document:
    """The verdict of the content filter on a command or a prompt."""
    _require_one_check(options)
    command = options.command
    question = {"prompt": options.prompt}
    if options.prompt is None:
        question = {"command": command[0] if len(command) == 1 else shlex.join(command)}
    return invocation.call("check", question)


def check_batch(options: Namespace, invocation: Invocation) -> bool:
    """Print the verdict on the command or the prompt of each line of `--batch`; see `answer_lines`."""
    _require_one_check(options)
    return answer_lines(options.batch, ("command", "prompt"), lambda question: invocation.call("check", question))


def _require_one_check(options: Namespace) -> None:
    """Raise `WrongUse` unless there is exactly one thing to check."""
    if [any(options.command), options.prompt is not None, options.batch is not None].count(True) != 1:
        raise WrongUse("give a command, or --prompt TEXT, or --batch FILE.jsonl")


def recall(options: Namespace, invocation: Invocation) -> Document:
    """The memories that fit a question."""
    scope = _make_recall_scope(options, invocation)
    with invocation.connect() as call_verb:
        document: Document = call_verb("recall", scope | {"query": " ".join(options.query), "k": options.k})
        return document


FIRST_SETTLE_S = 30.0
"""Seconds that the first question waits for vectors, for all of them."""


def recall_batch(options: Namespace, invocation: Invocation) -> bool:
    """Print the memories that fit the question of each line of `--batch`; see `answer_lines`."""
    scope = _make_recall_scope(options, invocation)
    settle = iter([FIRST_SETTLE_S])  # only the first question waits for vectors
    with invocation.connect() as call_verb:
        return answer_lines(
            options.batch,
            ("query", "k"),
            lambda line: call_verb("recall", scope | line | {"settle": next(settle, 0.0)}),
        )


def _make_recall_scope(options: Namespace, invocation: Invocation) -> Document:
    """The agent and the workspaces whose memories are recalled. Raises `WrongUse` unless there is a question or a
    file of them."""
    if bool(options.query) == (options.batch is not None):
        raise WrongUse("give a question, or --batch FILE.jsonl")
    scope: Document = {"agent": options.agent} if options.agent else {}
    return scope | {"workspaces": invocation.find_chosen_workspaces()} if invocation.workspace_names else scope


def answer_lines(file_name: str, keys: Collection[str], answer: Callable[[Document], Document]) -> bool:
    """Answer each line of a file (`-` for standard input) with a line of JSON on standard output, in order.

    `answer` gets the `keys` of a line and returns its answer. A bad line is answered with its error, a blank one is
    skipped. Returns whether every line could be answered.

    What was left out of an answer is printed once on standard error. Raises `Refusal` `no_file`, `not_text`.
    """
    all_answered = True
    reported: set[str] = set()
    for number, line in read_numbered_lines(file_name):
        if not line.strip():
            continue
        result = _answer_line(number, line, keys, answer)
        all_answered = all_answered and "error" not in result
        for reason in set(result.get("leftOut", ())) - reported:
            reported.add(reason)
            print(f"left out: {reason}", file=sys.stderr)
        print_output(json.dumps(result, ensure_ascii=False))
    return all_answered


def _answer_line(number: int, line: str, keys: Collection[str], answer: Callable[[Document], Document]) -> Document:
    """The answer to a line, or its error; with the `id` of the line if it has one."""
    identity: Document = {}
    try:
        fields = json.loads(line)
        if not isinstance(fields, dict):
            raise ValueError("it is no object")
        identity = {"id": fields["id"]} if "id" in fields else {}
        return identity | answer({key: fields[key] for key in keys if key in fields})
    except (ValueError, RecursionError):
        fix = f'for example {{"{next(iter(keys))}": "…"}}'
        return engine.Refusal("bad_line", f"line {number}: each line must be a JSON object", fix).document()
    except engine.Refusal as refusal:
        return identity | engine.Refusal(refusal.code, f"line {number}: {refusal.message}", refusal.fix).document()


MAX_BAD_LINES = 1_000
"""Bad lines that the document names; all are counted."""


def remember(argument: str, invocation: Invocation, *, wait: bool) -> Document:
    """Store the sentence `argument`, or the lines of the file that it names (`-` for standard input), in memory;
    returns the document of the verb.

    Raises `Refusal`: `bad_arguments`, `no_file`, `not_text`, and those of the engine. Lines that were acknowledged
    before that stay stored.
    """
    from rich.console import Console

    if not argument.strip():
        raise engine.Refusal("bad_arguments", "there is nothing to remember", FILE_FIX)
    started = time.monotonic()
    report: Document = {"remembered": 0, "known": 0, "badLines": 0, "bad": []}
    answer: Document = {"missing": 0, "trouble": ""}
    source, lines = _open_lines(argument)
    with Console(stderr=True).status("Reading…") as progress, invocation.connect() as call_verb:
        for piece in _make_pieces(_empty_long_lines(lines, partial(_add_bad_line, report))):
            answer = call_verb("remember", {"lines": list(piece.values()), "first": min(piece), "source": source})
            report["remembered"] += answer["remembered"]
            report["known"] += answer["known"]
            for line in answer["bad"]:
                _add_bad_line(report, line)
            progress.update(f"{report['remembered'] + report['known']} remembered")
        if wait:
            answer = _wait_for_vectors(call_verb, progress.update)
    duration = round(time.monotonic() - started, 3)
    return report | {"missing": answer["missing"], "trouble": answer["trouble"], "seconds": duration}


def _add_bad_line(report: Document, line: Document) -> None:
    """Add to the report of `remember` a line that could not be read as it is, and print what is wrong with it."""
    report["badLines"] += not line["kept"]
    if len(report["bad"]) < MAX_BAD_LINES:
        report["bad"].append(line)
    print(f"line {line['line']}: {line['message']}", file=sys.stderr)


def _open_lines(argument: str) -> tuple[str, Iterator[tuple[int, str]]]:
    """The name of the source that the argument of `remember` means, and its numbered lines of JSON."""
    if is_sentence(argument):
        return "command line", iter([(1, json.dumps({"text": argument}))])
    fix = f"{FILE_FIX}; a sentence has several words and a full stop at its end"
    source = "stdin" if argument == "-" else Path(argument).name[:200]
    return source, read_numbered_lines(argument, fix=fix)


def is_sentence(argument: str) -> bool:
    """Whether the argument of `remember` is a text to store: it has several words, and is no name of a file, which
    ends with a suffix such as `.txt`."""
    is_file_name = re.search(r"\.[A-Za-z]\w{0,4}$", argument) or os.path.lexists(argument)
    return len(argument.split()) > 1 and not is_file_name


VECTORS_POLL_S = 2.0
"""Seconds that the engine waits for vectors before each answer."""


def _wait_for_vectors(call_verb: Callable[[str, Document], Document], show: Callable[[str], object]) -> Document:
    """Wait until all memories can be found by meaning, or until that cannot succeed; returns the last answer."""
    while True:
        answer = call_verb("remember", {"settle": VECTORS_POLL_S})
        missing = answer["missing"]
        if answer["settled"] or answer["trouble"] or (not missing and answer["index"] == "degraded"):
            return answer
        show(f"{missing} not yet found by meaning" if missing else "all can be found by meaning")


MAX_LINE_BYTES = 3 * 1024 * 1024
"""The engine accepts no longer line, encoded as JSON."""


def _empty_long_lines(
    lines: Iterable[tuple[int, str]], report_bad: Callable[[Document], object]
) -> Iterator[tuple[int, str]]:
    """Numbered `lines` of JSON. One that is too long is reported and becomes an empty line, because the engine
    counts lines too."""
    for number, line in lines:
        if len(json.dumps(line)) > MAX_LINE_BYTES:
            report_bad({"line": number, "message": f"{len(line):,} characters is too long", "kept": False})
            line = ""
        yield number, line


MAX_PIECE_LINES = 200
"""Lines in one request."""

MAX_PIECE_BYTES = 1024 * 1024
"""Bytes of JSON in one request, so that answers come out while a long file is read."""


def _make_pieces(lines: Iterable[tuple[int, str]]) -> Iterator[dict[int, str]]:
    """Lines by number, in pieces of at most `MAX_PIECE_LINES` and `MAX_PIECE_BYTES`. A larger line is its own piece."""
    piece, size = dict[int, str](), 0
    for number, line in lines:
        length = len(json.dumps(line))
        if piece and (len(piece) >= MAX_PIECE_LINES or size + length > MAX_PIECE_BYTES):
            yield piece
            piece, size = {}, 0
        piece[number] = line
        size += length
    if piece:
        yield piece


REPLACEMENT_CHARACTER = "\N{REPLACEMENT CHARACTER}"
"""What Python reads in place of bytes that are not UTF-8."""


def read_numbered_lines(name: str, *, fix: str = FILE_FIX) -> Iterator[tuple[int, str]]:
    """The lines of a file, `-` for standard input, with their numbers from 1. `fix` is that of a file that cannot be
    read.

    Raises `Refusal`: `no_file`; `not_text` if bytes that are no text come before the first JSON object."""
    if name == "-" and isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="replace")  # as a file is read
    has_object = False
    try:
        with nullcontext(sys.stdin) if name == "-" else Path(name).open(encoding="utf-8-sig", errors="replace") as file:
            for number, line in enumerate(file, 1):
                has_object = has_object or line.lstrip().startswith("{")
                if not has_object and ("\0" in line or REPLACEMENT_CHARACTER in line):
                    shown_name = "standard input" if name == "-" else name
                    raise engine.Refusal("not_text", f"{shown_name} is not a text file", "name a file of JSON lines")
                yield number, line
    except OSError as error:
        message = f"{name} cannot be read: {error.strerror}"
        raise engine.Refusal("no_file", message, fix) from error
