"""Stores comments on lines of a change set, and makes the message of them that the agent receives (SPEC 3.9)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable
from io import BytesIO

from engine.events import ChangeSetCommented
from engine.execution.change_store import ChangeReader, ChangeSetRow, load_checked_row, require_objects
from engine.execution.diffs import printable_text
from engine.execution.snapshots import join_paths, printable_path
from engine.execution.tree_diff import changed_files
from engine.git import Git
from engine.model import ChangeSet, DiffComment, Refusal, sanitise
from engine.storage.database import Database, Transaction

MAX_COMMENT = 4_000
"""Maximum number of characters of one comment."""

MAX_QUOTE = 200
"""Maximum number of characters of the quoted line."""


class ChangeComments:
    """Adds and removes comments, and notes which were sent."""

    def __init__(self, database: Database, reader: ChangeReader) -> None:
        self._database = database
        self._reader = reader

    def add(self, change_set_id: str, path: str, line: int, text: str, *, old: bool = False) -> ChangeSet:
        """Comment on line `line`, from 1, of a changed file: after the change, or before it if `old`. Raises `Refusal`:
        `unknown_change_set`, `unknown_file`, `unknown_line`, `bad_comment`, `diff_gone`."""
        text = sanitise(text).strip()[:MAX_COMMENT]
        if not text:
            raise Refusal("bad_comment", "the comment is empty", "write what to change")
        row = self._reader.row(change_set_id)
        git = row.open_git()
        require_objects(git, row)
        quote = _quote_line(git, row.base_tree, row.result_tree, path, line, old=old)

        def append(row: ChangeSetRow, now: str) -> None:
            number = max((comment["number"] for comment in row.comments), default=0) + 1
            comment = DiffComment(number, path, line, quote, text, now, old)
            row.comments = [*row.comments, dataclasses.asdict(comment)]

        return self._change_comments(change_set_id, append)

    def remove(self, change_set_id: str, number: int) -> ChangeSet:
        """Remove one comment. Raises `Refusal`: `unknown_change_set`, `unknown_comment`."""

        def drop(row: ChangeSetRow, now: str) -> None:
            if all(comment["number"] != number for comment in row.comments):
                raise Refusal("unknown_comment", f"{row.id} has no comment {number}", f"`clawpy comment {row.id}`")
            row.comments = [comment for comment in row.comments if comment["number"] != number]

        return self._change_comments(change_set_id, drop)

    def unsent(self, change_set_id: str) -> tuple[str, tuple[int, ...]]:
        """The comments that no agent received yet, as a message, and their numbers. Raises `Refusal`:
        `unknown_change_set`, `no_comments`."""
        unsent = [comment for comment in self._reader.get(change_set_id).comments if not comment.sent]
        if not unsent:
            raise Refusal("no_comments", "it has no unsent comments", "`clawpy comment ID FILE:LINE TEXT`")
        return _as_message(unsent), tuple(comment.number for comment in unsent)

    def mark_sent(self, change_set_id: str, numbers: Collection[int]) -> ChangeSet:
        """Mark the comments with these numbers as sent. Raises `Refusal` `unknown_change_set`."""

        def mark(row: ChangeSetRow, now: str) -> None:
            row.comments = [
                comment | {"sent": now} if comment["number"] in numbers else comment for comment in row.comments
            ]

        return self._change_comments(change_set_id, mark)

    def _change_comments(self, change_set_id: str, change: Callable[[ChangeSetRow, str], None]) -> ChangeSet:
        def work(tx: Transaction) -> ChangeSet:
            row = load_checked_row(tx.session, change_set_id, None)
            change(row, tx.now.isoformat())
            tx.session.add(row)
            tx.record(ChangeSetCommented(**row.about, comments=len(row.comments)))
            tx.session.flush()
            return row.view()

        return self._database.write(work)


def _quote_line(git: Git, base: str, result: str, path: str, line: int, *, old: bool) -> str:
    """Line `line` of the new file, or of the old one. Raises `Refusal`: `unknown_file`, `unknown_line`."""
    files = {printable_path(file.path): file for file in changed_files(git, base, result)}
    file = files.get(path)
    if file is None:
        raise Refusal("unknown_file", f"it does not change {path}", f"one of: {join_paths(list(files))}")
    change = file.change
    oid, mode = (change.old_oid, change.old_mode) if old else (change.new_oid, change.new_mode)
    lines = BytesIO(git.output("cat-file", "blob", oid)).readlines() if mode.startswith("10") else []
    if not 1 <= line <= len(lines):
        length = f"it has {len(lines)} lines" if lines else "it has no lines"
        raise Refusal("unknown_line", f"{path} has no line {line} {'before' if old else 'after'} the change", length)
    return printable_text(lines[line - 1].rstrip(b"\r\n").decode(errors="replace"))[:MAX_QUOTE]


def _as_message(comments: Iterable[DiffComment]) -> str:
    """The message for an agent: each comment below its file, its line number and the line."""
    parts = [f"{_describe_place(comment)}\n> {comment.quote}\n{comment.text}" for comment in comments]
    return "\n\n".join(["Comments on your changes. Address each of them.", *parts])


def _describe_place(comment: DiffComment) -> str:
    return f"{comment.path}:{comment.line}{' (before your change)' if comment.old else ''}"
