"""Comments on lines of a change set: the line that one quotes, and all of them as a message to an agent."""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO

from engine.execution import diffs
from engine.execution.change_rows import ChangeSetRow
from engine.execution.change_words import named
from engine.execution.snapshots import shown
from engine.git import Git
from engine.model import DiffComment, Refusal

LONGEST = 4_000
"""Characters of one comment."""

QUOTED = 200
"""Characters of the quoted line."""


def quoted(git: Git, row: ChangeSetRow, path: str, line: int, *, old: bool) -> str:
    """Line `line` of the new file, or of the old one. Raises `Refusal`: `unknown_file`, `unknown_line`."""
    files = {shown(file.path): file for file in diffs.changed_files(git, row.base_tree, row.result_tree)}
    file = files.get(path)
    if file is None:
        raise Refusal("unknown_file", f"it does not change {path}", f"one of: {named(list(files))}")
    change = file.change
    oid, mode = (change.old_oid, change.old_mode) if old else (change.new_oid, change.new_mode)
    lines = BytesIO(git.output("cat-file", "blob", oid)).readlines() if mode.startswith("10") else []
    if not 1 <= line <= len(lines):
        has = f"it has {len(lines)} lines" if lines else "it has no lines"
        raise Refusal("unknown_line", f"{path} has no line {line} {'before' if old else 'after'} the change", has)
    return diffs.shown_text(lines[line - 1].rstrip(b"\r\n").decode(errors="replace"))[:QUOTED]


def message(comments: Iterable[DiffComment]) -> str:
    """What an agent is told: each comment below its file, its line and the line itself."""
    parts = [f"{_place(one)}\n> {one.quote}\n{one.text}" for one in comments]
    return "\n\n".join(["Comments on your changes. Address each of them.", *parts])


def _place(one: DiffComment) -> str:
    return f"{one.path}:{one.line}{' (before your change)' if one.old else ''}"
