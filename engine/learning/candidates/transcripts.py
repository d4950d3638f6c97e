"""Extracts from a session's transcript and diff how failing tests were fixed, what followed an error, and which
commands were run. Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from engine.model import TranscriptLine

MAX_MESSAGE_LENGTH = 300
"""Characters of what an agent said that are quoted."""

MAX_CHANGED_LINES = 12
"""Of an edit with more changed lines than these the file is named, and its lines are not quoted."""

MAX_CHANGES = 4
"""Maximum number of edits that are told."""

MAX_LINE_LENGTH = 160

PRECEDING_CALLS = 2
"""Maximum number of good calls told before the one that worked."""

MAX_QUOTE_LENGTH = 240
"""Characters of what somebody said that a line quotes."""

BACK_TO_AGENT = "; back to the agent, try "
"""What the validation loop notes when it hands red tests back (see `execution.validation`)."""

_BROKE = re.compile(r" (?:failed|refused): ")
_SHELL = re.compile(r"[|&;<>$`(){}*?~\n]")
"""What only a shell understands; a flow has none."""


def healing(lines: Sequence[TranscriptLine], patch: str, changed: Sequence[str], summary: str) -> tuple[str, ...]:
    """What mended the tests, as lines of a playbook: what the agent said of it after the tests came back red for the
    last time, and what the `patch` changed; where there is none, the files that the session `changed`. Where the agent
    said nothing the `summary` stands for it."""
    begin = max((number for number, line in enumerate(lines) if _handed_back(line)), default=-1)
    messages = _messages(list(_turn(lines[begin + 1 :]))) if begin >= 0 else []
    changes = changes_of(patch) or [f"it changed {path}" for path in (changed if messages else ())]
    return (*_first_sentences(messages[-1] if messages else summary), *list(dict.fromkeys(changes))[:MAX_CHANGES])


def changes_of(patch: str) -> list[str]:
    """What a diff of git changes, file by file, in words: its lines where they are few."""
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
        before, after = (_cut(" / ".join(lines)) for lines in (removed, added))
        if "\n--- /dev/null" in head:
            changes.append(f"it wrote {names[-1]}")
        elif not (removed or added) or len(removed) + len(added) > MAX_CHANGED_LINES:
            changes.append(f"it changed {names[-1]}")
        elif before and after:
            changes.append(f"in {names[-1]} it replaced `{before}` by `{after}`")
        else:
            changes.append(f"in {names[-1]} it {'added' if after else 'took out'} `{after or before}`")
    return changes


def after_error(lines: Sequence[TranscriptLine], tool: str, message: str) -> tuple[str, ...]:
    """What the agent did after an error until the same tool worked: the last good calls before that one, and it;
    without one, its next good call. () when there was none, or the error is not in these lines."""
    cause = message.partition(": ")[2] or message
    at = next((i for i, line in enumerate(lines) if _is_error(line, tool, cause)), -1)
    if at < 0:
        return ()
    good = [line.text for line in lines[at + 1 :] if line.kind == "tool" and not _BROKE.search(line.text)]
    same = next((i for i, text in enumerate(good) if text.split(" ", 1)[0] == tool), None)
    calls = good[:1] if same is None else good[max(0, same - PRECEDING_CALLS) : same + 1]
    return tuple(_cut(text) for text in calls)


def commands_run(transcripts: Sequence[Sequence[TranscriptLine]], calls: Sequence[str]) -> tuple[str, ...]:
    """For calls such as `exec:git status` that follow each other the commands that most of these sessions ran for them,
    word for word; () when none tells of all of them as commands that run without a shell."""
    command_words = [call.partition(":")[2].split() for call in calls]
    counts: Counter[tuple[str, ...]] = Counter()
    for lines in transcripts:
        commands = [_command(line) for line in lines if line.kind == "tool"]
        runs = (tuple(commands[at : at + len(command_words)]) for at in range(len(commands) - len(command_words) + 1))
        counts.update({run for run in runs if all(map(_begins, run, command_words))})
    return min(counts, key=lambda run: (-counts[run], sum(map(len, run)), run), default=())


def _handed_back(line: TranscriptLine) -> bool:
    return line.kind == "note" and BACK_TO_AGENT in line.text


def _turn(lines: Sequence[TranscriptLine]) -> Iterator[TranscriptLine]:
    """Up to where the tests run again."""
    for line in lines:
        if line.kind == "command":
            return
        yield line


def _messages(lines: Sequence[TranscriptLine]) -> list[str]:
    """What was said, lines on end together."""
    together = groupby(lines, key=lambda line: line.kind)
    return [
        text for kind, group in together if kind == "say" and (text := " ".join(line.text for line in group).strip())
    ]


def _is_error(line: TranscriptLine, tool: str, cause: str) -> bool:
    if line.kind in ("error", "exit", "output"):
        return cause[:80] in line.text
    return line.kind == "tool" and line.text.startswith(tool) and cause[:80] in line.text


def _command(line: TranscriptLine) -> str:
    return line.text.removeprefix("exec ").strip() if line.kind == "tool" and line.text.startswith("exec ") else ""


def _begins(command: str, words: Sequence[str]) -> bool:
    own = command.split()
    if not words or not own or _BROKE.search(command) or _SHELL.search(command):
        return False
    return _program(own[0]) == _program(words[0]) and (len(words) == 1 or words[1] in own[1:])


def _program(word: str) -> str:
    """`python` of `/usr/bin/python3.12`: whoever names calls leaves versions out."""
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


def _cut(text: str) -> str:
    return text if len(text) <= MAX_LINE_LENGTH else f"{text[: MAX_LINE_LENGTH - 1]}…"


def flat(text: Any) -> str:
    """A text in one line."""
    return " ".join(str(text).split())


def quoted(text: Any, max_length: int = MAX_QUOTE_LENGTH) -> str:
    """A text in one line and in quotes, at most so many characters of it."""
    line = flat(text).strip(".")
    return f"“{line if len(line) <= max_length else line[: max_length - 1] + '…'}”"
