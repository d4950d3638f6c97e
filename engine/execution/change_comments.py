"""Keeps your comments on lines of change sets, and puts them into one message for the agent (SPEC 3.9)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from io import BytesIO

from engine.events import ChangeSetCommented
from engine.execution.change_store import ChangeReader, ChangeSetRow, load_checked_row
from engine.execution.diffs import printable_text
from engine.execution.tree_diffs import find_changed_files
from engine.execution.trees import join_paths, printable_path
from engine.model import ChangeSet, DiffComment, Refusal, sanitise
from engine.storage.database import Database, Transaction

MAX_COMMENT = 4_000
"""Maximum number of characters of one comment."""

MAX_QUOTE = 200
"""Maximum number of characters of the quoted line."""

Comments = tuple[DiffComment, ...]


class ChangeComments:
    """Comments on lines of change sets, for the agent that made them."""

    def __init__(self, database: Database, reader: ChangeReader) -> None:
        self._database = database
        self._reader = reader

    def add(self, change_set_id: str, path: str, line: int, text: str, *, old: bool = False) -> ChangeSet:
        """Comment on a line of a changed file. Lines are counted from 1, in the file after the change, or before it if
        `old`. Raises `Refusal`: `unknown_change_set`, `unknown_file`, `unknown_line`, `bad_comment`, `diff_gone`."""
        text = sanitise(text).strip()[:MAX_COMMENT]
        if not text:
            raise Refusal("bad_comment", "the comment is empty", "write what to change")
        quote = _quote_line(self._reader.row(change_set_id), path, line, old=old)

        def append(comments: Comments, now: str) -> Comments:
            number = max((comment.number for comment in comments), default=0) + 1
            return (*comments, DiffComment(number, path, line, quote, text, now, old))

        return self._change(change_set_id, append)

    def remove(self, change_set_id: str, number: int) -> ChangeSet:
        """Remove one comment. Raises `Refusal`: `unknown_change_set`, `unknown_comment`."""

        def drop(comments: Comments, now: str) -> Comments:
            remaining = tuple(comment for comment in comments if comment.number != number)
            if len(remaining) == len(comments):
                message = f"{change_set_id} has no comment {number}"
                raise Refusal("unknown_comment", message, f"`clawpy comment {change_set_id}`")
            return remaining

        return self._change(change_set_id, drop)

    def unsent(self, change_set_id: str) -> tuple[str, tuple[int, ...]]:
        """A message with the comments that no agent has received yet, and their numbers. Raises `Refusal`:
        `unknown_change_set`, `no_comments`."""
        unsent = [comment for comment in self._reader.get(change_set_id).comments if not comment.sent]
        if not unsent:
            raise Refusal("no_comments", "it has no unsent comments", "`clawpy comment ID FILE:LINE TEXT`")
        parts = ["Comments on your changes. Address each of them."]
        for comment in unsent:
            before = " (before your change)" if comment.old else ""
            parts.append(f"{comment.path}:{comment.line}{before}\n> {comment.quote}\n{comment.text}")
        return "\n\n".join(parts), tuple(comment.number for comment in unsent)

    def mark_sent(self, change_set_id: str, numbers: Collection[int]) -> ChangeSet:
        """Mark the comments with these numbers as sent. Raises `Refusal` `unknown_change_set`."""

        def mark(comments: Comments, now: str) -> Comments:
            return tuple(replace(comment, sent=now) if comment.number in numbers else comment for comment in comments)

        return self._change(change_set_id, mark)

    def _change(self, change_set_id: str, change: Callable[[Comments, str], Comments]) -> ChangeSet:
        def work(tx: Transaction) -> ChangeSet:
            row = load_checked_row(tx.session, change_set_id, None)
            row.comments = change(row.comments, tx.now.isoformat())
            tx.session.add(row)
            tx.record(ChangeSetCommented(**row.about, comments=len(row.comments)))
            tx.session.flush()
            return row.view()

        return self._database.write(work)


def _quote_line(row: ChangeSetRow, path: str, line: int, *, old: bool) -> str:
    """The text of a line of the new file, or of the old one. Raises `Refusal`: `unknown_file`, `unknown_line`,
    `diff_gone`."""
    git = row.open_complete_git()
    files = {printable_path(file.path): file for file in find_changed_files(git, row.base_tree, row.result_tree)}
    file = files.get(path)
    if file is None:
        raise Refusal("unknown_file", f"it does not change {path}", f"one of: {join_paths(list(files))}")
    oid, mode = (file.old_oid, file.old_mode) if old else (file.new_oid, file.new_mode)
    lines = BytesIO(git.output("cat-file", "blob", oid)).readlines() if mode.startswith("10") else []
    if not 1 <= line <= len(lines):
        length = f"it has {len(lines) or 'no'} lines"
        raise Refusal("unknown_line", f"{path} has no line {line} {'before' if old else 'after'} the change", length)
    return printable_text(lines[line - 1].rstrip(b"\r\n").decode(errors="replace"))[:MAX_QUOTE]
