"""What a session's own record says of how it went: how it mended what was red, what it did after an error, which
commands it ran. Pure, over its transcript and its conversation."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby

from engine.values import PromptPart, TranscriptLine

MOST_SAID = 300
"""Characters of what an agent said that are quoted."""

MOST_CHANGED = 12
"""Of an edit with more changed lines than these the file is named, and its lines are not quoted."""

MOST_CHANGES = 4
"""So many edits are told."""

LONGEST_LINE = 160

LED_UP = 2
"""So many good calls before the one that worked are told."""

BACK_TO_AGENT = "; back to the agent, try "
"""What the validation loop notes when it hands red tests back (see `execution.validation`)."""

_EDIT = re.compile(r"^(?:edit|write) (?P<path>\S.*?)(?::(?P<line>\d+)| \([^()]*\))?$")
_CALL = re.compile(r"^(?P<tool>edit|write)\((?P<arguments>\{.*\})\)$")
_PATH = re.compile(r"^\S+:$")
_BROKE = re.compile(r" (?:failed|refused): ")
_SHELL = re.compile(r"[|&;<>$`(){}*?~\n]")
"""What only a shell understands; a flow has none."""


@dataclass(frozen=True, slots=True)
class Edit:
    """What one tool call changed in a file: `before` is None where it was written whole."""

    path: str
    before: str | None
    after: str


def healing(
    lines: Sequence[TranscriptLine], edits: Sequence[Edit], changed: Sequence[str], summary: str
) -> tuple[str, ...]:
    """What mended the tests, as lines of a playbook: what the agent said of it, and what it changed, after the tests
    came back red for the last time.

    `edits` are those of its calls then; without any the transcript names the files, or shows a diff; without that they
    are those that the session `changed`. Where nothing at all is told the `summary` stands for it.
    """
    begin = max((number for number, one in enumerate(lines) if _handed_back(one)), default=-1)
    turn = list(_turn(lines[begin + 1 :])) if begin >= 0 else []
    said = _messages(turn)
    edits = list(edits) or _shown(turn)
    named = [match["path"] for one in turn if one.kind == "tool" and (match := _edit_of(one))]
    changes = [_change(one) for one in edits] or [f"it changed {path}" for path in named or (changed if said else ())]
    told = (*(_told(said[-1]) if said else ()), *list(dict.fromkeys(changes))[:MOST_CHANGES])
    return told or _told(summary)


def edits_after(parts: Sequence[PromptPart], told: str) -> list[Edit]:
    """The edits that a model asked for after the last part `told` of its conversation, those that worked."""
    begin = max((number for number, one in enumerate(parts) if one.name == told), default=len(parts))
    found: list[Edit] = []
    asked: list[Edit] = []
    for part in parts[begin + 1 :]:
        if part.role == "assistant":
            asked = [edit for line in part.text.split("\n") if (edit := _asked(line)) is not None]
        elif part.role == "tool" and part.name in ("edit", "write") and asked:
            edit = asked.pop(0)
            if part.text.startswith(("edited", "wrote")):
                found.append(edit)
    return found


def after_error(lines: Sequence[TranscriptLine], tool: str, message: str) -> tuple[str, ...]:
    """What the agent did after an error until the same tool worked: the last good calls before that one, and it;
    without one, its next good call. () when there was none, or the error is not in these lines."""
    cause = message.partition(": ")[2] or message
    at = next((i for i, one in enumerate(lines) if _is_error(one, tool, cause)), -1)
    if at < 0:
        return ()
    good = [one.text for one in lines[at + 1 :] if one.kind == "tool" and not _BROKE.search(one.text)]
    same = next((i for i, text in enumerate(good) if text.split(" ", 1)[0] == tool), None)
    calls = good[:1] if same is None else good[max(0, same - LED_UP) : same + 1]
    return tuple(_cut(text) for text in calls)


def commands_run(transcripts: Sequence[Sequence[TranscriptLine]], calls: Sequence[str]) -> tuple[str, ...]:
    """For calls such as `exec:git status` that follow each other the commands that most of these sessions ran for them,
    word for word; () when none tells of all of them as commands that run without a shell."""
    wanted = [call.partition(":")[2].split() for call in calls]
    seen: Counter[tuple[str, ...]] = Counter()
    for lines in transcripts:
        used = [_command(one) for one in lines if one.kind == "tool"]
        runs = (tuple(used[at : at + len(wanted)]) for at in range(len(used) - len(wanted) + 1))
        seen.update({run for run in runs if all(map(_begins, run, wanted))})
    return min(seen, key=lambda run: (-seen[run], sum(map(len, run)), run), default=())


def _handed_back(line: TranscriptLine) -> bool:
    return line.kind == "note" and BACK_TO_AGENT in line.text


def _turn(lines: Sequence[TranscriptLine]) -> Iterator[TranscriptLine]:
    """Up to where the tests run again."""
    for one in lines:
        if one.kind == "command":
            return
        yield one


def _messages(lines: Sequence[TranscriptLine]) -> list[str]:
    """What was said, lines on end together."""
    together = groupby(lines, key=lambda one: one.kind)
    return [text for kind, group in together if kind == "say" and (text := " ".join(one.text for one in group).strip())]


def _edit_of(line: TranscriptLine) -> re.Match[str] | None:
    return None if _BROKE.search(line.text) else _EDIT.match(line.text)


def _asked(line: str) -> Edit | None:
    """A call as the record of a conversation has it: `edit({"path": …})`."""
    match = _CALL.match(line)
    if match is None:
        return None
    try:
        given = json.loads(match["arguments"])
    except (ValueError, RecursionError):
        return None
    texts = [
        given.get(name) if isinstance(given, dict) else None for name in ("path", "old_text", "new_text", "content")
    ]
    path, old, new, whole = (one if isinstance(one, str) else None for one in texts)
    after = new if match["tool"] == "edit" else whole
    return None if path is None or after is None else Edit(path, old if match["tool"] == "edit" else None, after)


def _shown(lines: Sequence[TranscriptLine]) -> list[Edit]:
    """The diffs that a coding agent of its own shows: `cart.py:`, then lines with `-` and `+`."""
    found = []
    path, gone, come = "", [], []  # type: str, list[str], list[str]
    for one in [*lines, TranscriptLine(0, lines[-1].at, "note", "")] if lines else []:
        text = one.text
        if one.kind == "output" and path and text[:1] in "+-":
            (come if text[0] == "+" else gone).append(text[1:])
            continue
        if one.kind == "output" and path and text[:1] in (" ", "@"):
            continue
        if gone or come:
            found.append(Edit(path, "\n".join(gone), "\n".join(come)))
        path, gone, come = text[:-1] if one.kind == "output" and _PATH.match(text) else "", [], []
    return found


def _change(one: Edit) -> str:
    """What became of a file, in words: its changed lines where they are few."""
    if one.before is None:
        return f"it wrote {one.path}"
    before, after = one.before.splitlines(), one.after.splitlines()
    steps = SequenceMatcher(a=before, b=after, autojunk=False).get_opcodes()
    gone = [line.strip() for tag, low, high, _, _ in steps if tag != "equal" for line in before[low:high]]
    come = [line.strip() for tag, _, _, low, high in steps if tag != "equal" for line in after[low:high]]
    if not (gone or come) or len(gone) + len(come) > MOST_CHANGED:
        return f"it changed {one.path}"
    was, now = (" / ".join(line for line in several if line) for several in (gone, come))
    if was and now:
        return f"in {one.path} it replaced `{_cut(was)}` by `{_cut(now)}`"
    return f"in {one.path} it {'added' if now else 'took out'} `{_cut(now or was)}`"


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


def _told(text: str) -> tuple[str, ...]:
    """The beginning of a text, whole sentences where one ends in time."""
    flat = " ".join(text.split())
    if len(flat) <= MOST_SAID:
        return (flat,) if flat else ()
    head = flat[:MOST_SAID]
    end = max(head.rfind(". "), head.rfind("! "), head.rfind("? "))
    return (head[: end + 1] if end > MOST_SAID // 3 else f"{head.rstrip()}…",)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_LINE else f"{text[: LONGEST_LINE - 1]}…"
