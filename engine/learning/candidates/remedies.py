"""Finds in transcripts and diffs how agents solved a problem, for `drafting` (SPEC 5.2). Pure.

It finds the changes that fixed failing tests, the calls that worked after an error, and the commands of a sequence.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby, takewhile

from engine.model import TranscriptLine
from engine.model.sessions import CALL_FAILED, CALL_REFUSED, HANDED_BACK
from engine.model.text import plain

MAX_MESSAGE_LENGTH = 300
"""Maximum number of quoted characters of an agent's message."""

MAX_CHANGED_LINES = 12
"""Maximum number of changed lines of an edit that is quoted. For a longer edit only the file is named."""

MAX_CHANGES = 4
"""Maximum number of edits that are described."""

MAX_LINE_LENGTH = 160
"""Maximum number of quoted characters of a changed line or a call."""

PRECEDING_CALLS = 2
"""Maximum number of successful calls that are shown before the one that worked."""

_SHELL = re.compile(r"[|&;<>$`(){}*?~\n]")
"""Characters that need a shell. A flow runs without one."""


def healing_lines(lines: Sequence[TranscriptLine], patch: str, changed: Sequence[str], summary: str) -> tuple[str, ...]:
    """How the tests were fixed, as lines of a playbook.

    The first line is the agent's last message after the last test failure, or `summary` if there is no message. The
    changes in `patch` follow, or the names of the `changed` files.
    """
    last_failure = max((number for number, line in enumerate(lines) if _is_handed_back(line)), default=len(lines))
    messages = _messages(takewhile(lambda line: line.kind != "command", lines[last_failure + 1 :]))
    changes = describe_changes(patch) or [f"it changed {path}" for path in (changed if messages else ())]
    source = messages[-1] if messages else summary
    return (*_first_sentences(source), *list(dict.fromkeys(changes))[:MAX_CHANGES])


def describe_changes(patch: str) -> list[str]:
    """The changes in a git diff in words, file by file. If an edit is short, its lines are quoted."""
    sections = re.split(r"(?m)^(?=diff --git )", patch)[1:]
    return [change for section in sections if (change := _describe_section(section))]


def _describe_section(section: str) -> str:
    """The change of one file, "" if the diff does not name the file."""
    head, _, body = section.partition("\n@@")
    names = [line[4:].partition("/")[2] for line in head.splitlines() if line.startswith(("--- a/", "+++ b/"))]
    if not names:
        return ""
    if "\n--- /dev/null" in head:
        return f"it wrote {names[-1]}"
    removed, added = (
        [line[1:].strip() for line in body.splitlines() if line.startswith(sign) and line[1:].strip()] for sign in "-+"
    )
    if not 0 < len(removed) + len(added) <= MAX_CHANGED_LINES:
        return f"it changed {names[-1]}"
    before, after = (plain(" / ".join(lines), MAX_LINE_LENGTH) for lines in (removed, added))
    if before and after:
        return f"in {names[-1]} it replaced `{before}` by `{after}`"
    return f"in {names[-1]} it {'added' if after else 'took out'} `{after or before}`"


def calls_after_error(lines: Sequence[TranscriptLine], tool: str, message: str) -> tuple[str, ...]:
    """The agent's successful calls after an error, up to and including the next call of the same tool. If that tool is
    not called again, only the next call. () if there is none, or if the error is not in these lines."""
    cause = message.partition(": ")[2] or message
    error_index = next((index for index, line in enumerate(lines) if _is_error(line, tool, cause)), len(lines))
    successful_calls = [
        line.text for line in lines[error_index + 1 :] if line.kind == "tool" and not _failed(line.text)
    ]
    same_tool_index = next(
        (index for index, call in enumerate(successful_calls) if call.split(" ", 1)[0] == tool), None
    )
    calls = successful_calls[:1]
    if same_tool_index is not None:
        calls = successful_calls[max(0, same_tool_index - PRECEDING_CALLS) : same_tool_index + 1]
    return tuple(plain(call, MAX_LINE_LENGTH) for call in calls)


def common_commands(transcripts: Sequence[Sequence[TranscriptLine]], calls: Sequence[str]) -> tuple[str, ...]:
    """The commands that most of these sessions ran for a sequence of calls, such as `exec:git status`. () if no session
    ran all of them without a shell."""
    command_words = [call.partition(":")[2].split() for call in calls]
    counts: Counter[tuple[str, ...]] = Counter()
    for lines in transcripts:
        commands = [_command(line) for line in lines if line.kind == "tool"]
        runs = (tuple(commands[at : at + len(command_words)]) for at in range(len(commands) - len(command_words) + 1))
        counts.update({run for run in runs if all(map(_is_call_of, run, command_words))})
    return min(counts, key=lambda run: (-counts[run], sum(map(len, run)), run), default=())


def _is_handed_back(line: TranscriptLine) -> bool:
    """Whether the validation loop returned failing tests to the agent here."""
    return line.kind == "note" and HANDED_BACK in line.text


def _messages(lines: Iterable[TranscriptLine]) -> list[str]:
    """The agent's messages; consecutive lines are one message."""
    groups = groupby(lines, key=lambda line: line.kind)
    messages = [" ".join(line.text for line in group).strip() for kind, group in groups if kind == "say"]
    return [message for message in messages if message]


def _is_error(line: TranscriptLine, tool: str, cause: str) -> bool:
    """Whether a line reports an error with this cause, by a program or by a call of the tool."""
    if cause[:80] not in line.text:
        return False
    return line.kind in ("error", "exit", "output") or (line.kind == "tool" and line.text.startswith(tool))


def _command(line: TranscriptLine) -> str:
    return line.text.removeprefix("exec ").strip() if line.kind == "tool" and line.text.startswith("exec ") else ""


def _is_call_of(command: str, words: Sequence[str]) -> bool:
    tokens = command.split()
    if not words or not tokens or _failed(command) or _SHELL.search(command):
        return False
    return _program(tokens[0]) == _program(words[0]) and (len(words) == 1 or words[1] in tokens[1:])


def _failed(call: str) -> bool:
    return CALL_FAILED in call or CALL_REFUSED in call


def _program(word: str) -> str:
    """The name of a program without path and version: `python` for `/usr/bin/python3.12`."""
    name = word.rsplit("/", 1)[-1]
    return name.rstrip("0123456789.") or name


def _first_sentences(text: str) -> tuple[str, ...]:
    """The beginning of a text, cut after a whole sentence if possible; () for an empty text."""
    head = plain(text, MAX_MESSAGE_LENGTH)
    end = max(head.rfind(". "), head.rfind("! "), head.rfind("? "))
    if head.endswith("…") and end > MAX_MESSAGE_LENGTH // 3:
        head = head[: end + 1]
    return (head,) if head else ()
