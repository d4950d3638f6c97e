"""Extracts from a session's transcript and diff how failing tests were fixed, the calls after an error, and the
commands that ran. Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from engine.model import TranscriptLine

MAX_MESSAGE_LENGTH = 300
"""Maximum number of characters that are quoted of an agent's message."""

MAX_CHANGED_LINES = 12
"""Maximum number of changed lines of an edit that is quoted; of a longer one only the file is named."""

MAX_CHANGES = 4
"""Maximum number of edits that are described."""

MAX_LINE_LENGTH = 160

PRECEDING_CALLS = 2
"""Maximum number of successful calls that are shown before the one that worked."""

MAX_QUOTE_LENGTH = 240
"""Maximum number of characters of a quote."""

BACK_TO_AGENT = "; back to the agent, try "
"""Part of the note of the validation loop when it returns failing tests to the agent (see `execution.validation`)."""

_FAILED_CALL = re.compile(r" (?:failed|refused): ")
_SHELL = re.compile(r"[|&;<>$`(){}*?~\n]")
"""Characters that need a shell, which a flow does not have."""


def healing_lines(lines: Sequence[TranscriptLine], patch: str, changed: Sequence[str], summary: str) -> tuple[str, ...]:
    """How the tests were fixed, as lines of a playbook: the agent's last message after the tests failed for the last
    time, else the `summary`, and the changes in `patch`, else the `changed` files."""
    begin = max((number for number, line in enumerate(lines) if _handed_back(line)), default=-1)
    messages = _messages(list(_until_next_test_run(lines[begin + 1 :]))) if begin >= 0 else []
    changes = describe_changes(patch) or [f"it changed {path}" for path in (changed if messages else ())]
    return (*_first_sentences(messages[-1] if messages else summary), *list(dict.fromkeys(changes))[:MAX_CHANGES])


def describe_changes(patch: str) -> list[str]:
    """The changes of a git diff in words, file by file; a few changed lines are quoted."""
    changes = []
    for section in re.split(r"(?m)^(?=diff --git )", patch)[1:]:
        head, _, body = section.partition("\n@@")
        names = [line[4:].partition("/")[2] for line in head.splitlines() if line.startswith(("--- a/", "+++ b/"))]
        if not names:
            continue
        hunks = body.splitlines()
        removed, added = (
            [line[1:].strip() for line in hunks if line.startswith(sign) and line[1:].strip()] for sign in "-+"
        )
        before, after = (_truncate(" / ".join(lines)) for lines in (removed, added))
        if "\n--- /dev/null" in head:
            changes.append(f"it wrote {names[-1]}")
        elif not (removed or added) or len(removed) + len(added) > MAX_CHANGED_LINES:
            changes.append(f"it changed {names[-1]}")
        elif before and after:
            changes.append(f"in {names[-1]} it replaced `{before}` by `{after}`")
        else:
            changes.append(f"in {names[-1]} it {'added' if after else 'took out'} `{after or before}`")
    return changes


def calls_after_error(lines: Sequence[TranscriptLine], tool: str, message: str) -> tuple[str, ...]:
    """The agent's calls after an error up to the next successful call of the same tool, else its next successful call.
    () if there is none, or if the error is not in these lines."""
    cause = message.partition(": ")[2] or message
    at = next((i for i, line in enumerate(lines) if _is_error(line, tool, cause)), -1)
    if at < 0:
        return ()
    good = [line.text for line in lines[at + 1 :] if line.kind == "tool" and not _FAILED_CALL.search(line.text)]
    same = next((i for i, text in enumerate(good) if text.split(" ", 1)[0] == tool), None)
    calls = good[:1] if same is None else good[max(0, same - PRECEDING_CALLS) : same + 1]
    return tuple(_truncate(text) for text in calls)


def common_commands(transcripts: Sequence[Sequence[TranscriptLine]], calls: Sequence[str]) -> tuple[str, ...]:
    """The commands that most of these sessions ran for a sequence of calls such as `exec:git status`; () if no session
    ran all of them without a shell."""
    command_words = [call.partition(":")[2].split() for call in calls]
    counts: Counter[tuple[str, ...]] = Counter()
    for lines in transcripts:
        commands = [_command(line) for line in lines if line.kind == "tool"]
        runs = (tuple(commands[at : at + len(command_words)]) for at in range(len(commands) - len(command_words) + 1))
        counts.update({run for run in runs if all(map(_is_call_of, run, command_words))})
    return min(counts, key=lambda run: (-counts[run], sum(map(len, run)), run), default=())


def _handed_back(line: TranscriptLine) -> bool:
    return line.kind == "note" and BACK_TO_AGENT in line.text


def _until_next_test_run(lines: Sequence[TranscriptLine]) -> Iterator[TranscriptLine]:
    """Up to where the tests run again."""
    for line in lines:
        if line.kind == "command":
            return
        yield line


def _messages(lines: Sequence[TranscriptLine]) -> list[str]:
    """The agent's messages, consecutive lines joined."""
    groups = groupby(lines, key=lambda line: line.kind)
    messages = [" ".join(line.text for line in group).strip() for kind, group in groups if kind == "say"]
    return [message for message in messages if message]


def _is_error(line: TranscriptLine, tool: str, cause: str) -> bool:
    if line.kind in ("error", "exit", "output"):
        return cause[:80] in line.text
    return line.kind == "tool" and line.text.startswith(tool) and cause[:80] in line.text


def _command(line: TranscriptLine) -> str:
    return line.text.removeprefix("exec ").strip() if line.kind == "tool" and line.text.startswith("exec ") else ""


def _is_call_of(command: str, words: Sequence[str]) -> bool:
    own = command.split()
    if not words or not own or _FAILED_CALL.search(command) or _SHELL.search(command):
        return False
    return _program(own[0]) == _program(words[0]) and (len(words) == 1 or words[1] in own[1:])


def _program(word: str) -> str:
    """The name of a program without path and version: `python` for `/usr/bin/python3.12`."""
    name = word.rsplit("/", 1)[-1]
    return name.rstrip("0123456789.") or name


def _first_sentences(text: str) -> tuple[str, ...]:
    """The beginning of a text, whole sentences where one ends in time."""
    line = " ".join(text.split())
    if len(line) <= MAX_MESSAGE_LENGTH:
        return (line,) if line else ()
    head = line[:MAX_MESSAGE_LENGTH]
    end = max(head.rfind(". "), head.rfind("! "), head.rfind("? "))
    return (head[: end + 1] if end > MAX_MESSAGE_LENGTH // 3 else f"{head.rstrip()}…",)


def _truncate(text: str) -> str:
    return text if len(text) <= MAX_LINE_LENGTH else f"{text[: MAX_LINE_LENGTH - 1]}…"


def one_line(text: Any) -> str:
    """A text in one line."""
    return " ".join(str(text).split())


def quote(text: Any, max_length: int = MAX_QUOTE_LENGTH) -> str:
    """A text in one line and in quotes, cut after `max_length` characters."""
    line = one_line(text).strip(".")
    return f"“{line if len(line) <= max_length else line[: max_length - 1] + '…'}”"
