"""Stores and reads change sets, and your comments on them (SPEC 3.9).

A change set is what a session changed, as two trees of the repository: the files at its start and at its end. Its row
also has the landings that were not undone. `ChangeSets` carries out the decisions, and `Landings` those that change the
operator's files. Which ones are possible is checked here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import Any

from sqlmodel import Field, Session

from engine.events import Event
from engine.events.work import ChangeSetCommented
from engine.execution.diffs import make_file_diffs, printable_text
from engine.execution.session_store import read_check
from engine.execution.trees import diff_trees, find_missing_objects, make_patch
from engine.frozen import frozen
from engine.git import Git, join_paths, printable_path
from engine.model import (
    LEFT_OUT,
    UNDECIDED_STATES,
    ChangeSet,
    ChangeState,
    DiffComment,
    FileChange,
    FileDiff,
    Landing,
    Refusal,
)
from engine.storage import (
    Row,
    ask,
    find_ids_with_prefix,
    load_first,
    read_all,
    read_newest_rows,
    value_of,
)
from engine.storage.database import Database, Transaction
from engine.storage.state import finish_intent
from engine.text import plain, sanitise

NEXT_STATES: dict[ChangeState, set[ChangeState]] = {
    ChangeState.WAITING: {ChangeState.LANDED, ChangeState.BRANCHED, ChangeState.DISCARDED},
    ChangeState.LANDED: {ChangeState.UNDONE},
    ChangeState.UNDONE: {ChangeState.LANDED, ChangeState.BRANCHED, ChangeState.DISCARDED},
}
"""The states that a decision may lead to, by the present state. In a change set that waits, a landed part can be undone
too."""

_REVERSALS = {
    ChangeState.LANDED: "`clawpy undo {}` undoes it",
    ChangeState.UNDONE: "`clawpy land {}` lands all that waits",
}
"""How to reverse a decision, by the state that it led to."""

MAX_RECENT_LANDINGS = 20
"""Number of recent landings and undos whose files `read_own_write_times` knows."""

MAX_COMMENT_CHARS = 4_000
"""Maximum number of characters of one comment."""

MAX_QUOTE_CHARS = 200
"""Maximum number of characters of the quoted line."""


class ChangeSetRow(Row, table=True):
    """One change set."""

    __tablename__ = "change_sets"

    id: str = Field(primary_key=True)
    session_id: str
    prediction_id: str
    workspace: str
    state: ChangeState = ChangeState.WAITING
    base_tree: str
    result_tree: str
    files: list[dict[str, Any]]
    title: str
    check_result: dict[str, Any] | None = None
    created_at: datetime
    decided_at: datetime | None = None
    branch: str = ""
    note: str = ""
    landings: list[dict[str, Any]] = Field(default_factory=list)
    """The landings that were not undone, the oldest first. Each has the `tree` up to which the change set is then
    landed, the `files` in it, and the `plan` that wrote them."""
    written: dict[str, int] = Field(default_factory=dict)
    """The `mtime_ns` of the files that its landings and undos wrote, by path."""
    kept: bool = True
    """Whether its refs are in the repository."""
    comments: tuple[DiffComment, ...] = ()

    @property
    def landed_tree(self) -> str:
        """The tree up to which it is landed. The rest is the difference between this tree and `result_tree`."""
        return self.landings[-1]["tree"] if self.landings else self.base_tree

    @property
    def left_out_files(self) -> list[dict[str, Any]]:
        """Those of `files` that are in no tree. They wait in the session's folder until the rest is discarded."""
        return [file for file in self.files if file["status"] == LEFT_OUT]

    @property
    def landed(self) -> int:
        """The number of files that its landings changed."""
        return len({path for landed in self.landings for path, *_ in landed["plan"]["entries"]})

    @property
    def commit_message(self) -> str:
        """The message of the commit on a branch."""
        first, _, remainder = self.title.partition("\n")
        body = f"{remainder.strip()}\n\n" if remainder.strip() else ""
        return f"{first.strip() or 'Work of a session'}\n\n{body}Session: {self.session_id}\n"

    def open_git(self) -> Git:
        """git in the repository of its workspace. Raises `Refusal` when that is no repository."""
        return Git(Path(self.workspace)).pin()

    def open_complete_git(self) -> Git:
        """git in its repository, which has all its trees. Raises `Refusal`, also `diff_gone` if git collected one."""
        git = self.open_git()
        if find_missing_objects(git, self.base_tree, self.landed_tree, self.result_tree):
            message = f"git no longer has the contents of {self.id}, which was {self.state}"
            raise Refusal("diff_gone", message, "to have the work done again: `clawpy propose TEXT`")
        return git

    def keep_landed_part(self, note: str) -> bool:
        """Reduce it to its landed part. False when nothing is landed."""
        if self.landings:
            last = self.landings[-1]
            self.result_tree, self.files, self.note = last["tree"], last["files"], note
            self.state = ChangeState.LANDED
        return bool(self.landings)

    @property
    def about(self) -> dict[str, str]:
        """The fields that every event on it has."""
        return {"subject": self.id, "workspace": self.workspace, "session_id": self.session_id}

    @property
    def view(self) -> ChangeSet:
        """The change set for screens and verbs."""
        return value_of(
            self,
            ChangeSet,
            files=tuple(FileChange(**file) for file in self.files),
            check=read_check(self.check_result),
            landings=len(self.landings),
        )

    @property
    def last_landing(self) -> Landing:
        """Its last landing. It must have one."""
        plan = self.landings[-1]["plan"]
        return Landing(self.view, tree_before=plan.get("tree_before", ""), tree_after=plan.get("tree", ""))


def load_checked_row(session: Session, change_set_id: str, becoming: ChangeState | None) -> ChangeSetRow:
    """Load a row that may get the state `becoming`; None stands for any row. Raises `Refusal`: `unknown_change_set`,
    `already_decided`."""
    row = session.get(ChangeSetRow, change_set_id)
    if row is None:
        raise Refusal("unknown_change_set", f"there is no change set {change_set_id}", "`clawpy work` lists them")
    is_undoable = becoming is ChangeState.UNDONE and row.landings
    if becoming is None or becoming in NEXT_STATES.get(row.state, set()) or is_undoable:
        return row
    message, fix = f"{row.id} is {row.state} and cannot be {becoming.value}", "`clawpy work` shows it"
    if becoming == row.state:
        message, fix = f"{row.id} is {row.state} already", _REVERSALS.get(becoming, fix).format(row.id)
    elif becoming is ChangeState.UNDONE and row.state == ChangeState.BRANCHED:
        message = f"these changes are on the branch {row.branch}, and none of your files changed"
        fix = f"nothing is to undo here; `git branch -D {row.branch}` deletes the branch"
    raise Refusal("already_decided", message, fix)


def load_row_of_session(session: Session, session_id: str) -> ChangeSetRow | None:
    """The row of a session's change set, or None."""
    return load_first(session, ChangeSetRow, "WHERE session_id = :id", {"id": session_id})


def store_decision(
    tx: Transaction,
    change_set_id: str,
    state: ChangeState,
    decide: Callable[[ChangeSetRow], Event],
    intent: int | None = None,
) -> ChangeSet:
    """Store a decision, and remove its intent. `decide` changes the row and returns the event; it may choose another
    state than `state`. Raises as `load_checked_row`."""
    if intent is not None:
        finish_intent(tx, intent)
    row = load_checked_row(tx.session, change_set_id, state)
    row.state, row.note = state, ""
    row.decided_at = tx.now
    tx.record(decide(row))
    tx.session.add(row)
    tx.session.flush()
    return row.view


_SELECT_WRITTEN = f"""
    SELECT written FROM change_sets WHERE workspace = :workspace AND decided_at IS NOT NULL
    ORDER BY decided_at DESC LIMIT {MAX_RECENT_LANDINGS}
"""
"""The times of the files that the newest decisions on change sets of a workspace wrote."""
_MAY_BE_LANDED = f"""
    WHERE workspace = :workspace AND state IN ('{ChangeState.LANDED}', '{ChangeState.WAITING}')
    ORDER BY decided_at DESC
"""
"""The change sets of a workspace of which something may be landed, the last decided first."""


class ChangeReader:
    """Reads change sets. Comments and landings are given one; `ChangeSets` is one, and adds the decisions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, change_set_id: str) -> ChangeSet:
        """One change set. Raises `Refusal` `unknown_change_set`."""
        return self.load_row(change_set_id).view

    def find_ids_with_prefix(self, prefix: str) -> list[str]:
        """Ids of change sets, of any age, that begin with `prefix`; see `engine.storage`."""
        with self._database.read() as session:
            return find_ids_with_prefix(session, ChangeSetRow, prefix)

    def find_of_session(self, session_id: str) -> ChangeSet | None:
        """The change set of a session, or None."""
        row = self.load_row_of_session(session_id)
        return None if row is None else row.view

    def read_diff(self, change_set_id: str) -> list[FileDiff]:
        """Its files with their hunks. While it waits, landed hunks are left out. Old lines have the numbers that they
        had at the session's start. Raises `Refusal`: `unknown_change_set`, `diff_gone` (git collected it)."""
        row = self.load_row(change_set_id)
        landed = row.landed_tree if row.state == ChangeState.WAITING else row.base_tree
        return make_file_diffs(row.open_complete_git(), row.base_tree, row.result_tree, landed)

    def make_patch(self, session_id: str) -> str:
        """The changes of a session as a patch for `git apply`. "" if there are none, or git no longer has them."""
        row = self.load_row_of_session(session_id)
        return "" if row is None else make_patch(row.open_git(), row.base_tree, row.result_tree)

    def find_undoable_landings(self, workspace: str) -> list[Landing]:
        """The landings among the newest three of `workspace` that can be undone, because nobody edited their files
        since. The newest is first."""
        with self._database.read() as session:
            changed = read_all(session, ChangeSetRow, _MAY_BE_LANDED, {"workspace": workspace})
        rows = [row for row in changed if row.landings][:3]
        return [
            row.last_landing
            for row in rows
            if all(_is_as_written(workspace, *written) for written in row.written.items())
        ]

    def read_own_write_times(self, workspace: str) -> dict[str, int]:
        """The `mtime_ns` of the files that recent landings and undos wrote, by their path relative to `workspace`."""
        with self._database.read() as session:
            written = ask(session, _SELECT_WRITTEN, {"workspace": workspace})
        return {path: mtime_ns for (times,) in reversed(written) for path, mtime_ns in json.loads(times).items()}

    def load_row_of_session(self, session_id: str) -> ChangeSetRow | None:
        """The row of a session's change set, or None."""
        with self._database.read() as session:
            return load_row_of_session(session, session_id)

    def load_row(self, change_set_id: str, becoming: ChangeState | None = None) -> ChangeSetRow:
        """One row; see `load_checked_row`."""
        with self._database.read() as session:
            return load_checked_row(session, change_set_id, becoming)

    def load_rows(self, limit: int | None = None, **equal: str | tuple[str, ...] | None) -> list[ChangeSetRow]:
        """Rows with these values in these columns, the newest first; see `read_newest_rows`."""
        with self._database.read() as session:
            return read_newest_rows(session, ChangeSetRow, limit, **equal)

    def list_undecided(self, limit: int) -> list[ChangeSet]:
        """Change sets that wait for the operator, or wait again after an undo, the newest first."""
        return [row.view for row in self.load_rows(limit, state=UNDECIDED_STATES)]

    def list_newest(
        self, *, state: ChangeState | None = None, workspace: str | None = None, limit: int = 50
    ) -> list[ChangeSet]:
        """Change sets, the newest first."""
        return [row.view for row in self.load_rows(limit, state=state, workspace=workspace)]


def _is_as_written(workspace: str, path: str, mtime_ns: int) -> bool:
    """Whether a file still has the `mtime_ns` at which we wrote it."""
    try:
        return os.lstat(os.path.join(workspace, path)).st_mtime_ns == mtime_ns  # noqa: PTH118 (names of any bytes)
    except OSError:
        return False


# -- comments

Comments = tuple[DiffComment, ...]


@frozen
class ChangeComments:
    """Comments on lines of change sets, for the agent that made them."""

    database: Database
    reader: ChangeReader

    def add(self, change_set_id: str, path: str, line: int, text: str, *, old: bool = False) -> ChangeSet:
        """Comment on a line of a changed file. Lines are counted from 1, in the file after the change, or before it if
        `old`. Raises `Refusal`: `unknown_change_set`, `unknown_file`, `unknown_line`, `bad_comment`, `diff_gone`."""
        text = sanitise(text).strip()[:MAX_COMMENT_CHARS]
        if not text:
            raise Refusal("bad_comment", "the comment is empty", "write what to change")
        quote = _quote_line(self.reader.load_row(change_set_id), path, line, old=old)

        def append(comments: Comments, now: str) -> Comments:
            number = max((comment.number for comment in comments), default=0) + 1
            return (*comments, DiffComment(number, path, line=line, quote=quote, text=text, at=now, old=old))

        return self._change_comments(change_set_id, append)

    def remove(self, change_set_id: str, number: int) -> ChangeSet:
        """Remove one comment. Raises `Refusal`: `unknown_change_set`, `unknown_comment`."""

        def drop(comments: Comments, now: str) -> Comments:
            remaining = tuple(comment for comment in comments if comment.number != number)
            if len(remaining) == len(comments):
                message = f"{change_set_id} has no comment {number}"
                raise Refusal("unknown_comment", message, f"`clawpy comment {change_set_id}`")
            return remaining

        return self._change_comments(change_set_id, drop)

    def make_unsent_message(self, change_set_id: str) -> tuple[str, tuple[int, ...]]:
        """A message with the comments that no agent has received yet, and their numbers. Raises `Refusal`:
        `unknown_change_set`, `no_comments`."""
        change = self.reader.get(change_set_id)
        unsent = [comment for comment in change.comments if not comment.sent]
        if not unsent:
            raise Refusal("no_comments", "it has no unsent comments", "`clawpy comment ID FILE:LINE TEXT`")
        parts = [f"Comments on “{plain(change.title)}”. Address each of them."]
        for comment in unsent:
            before = " (before your change)" if comment.old else ""
            parts.append(f"{comment.path}:{comment.line}{before}\n> {comment.quote}\n{comment.text}")
        return "\n\n".join(parts), tuple(comment.number for comment in unsent)

    def mark_sent(self, change_set_id: str, numbers: Collection[int]) -> ChangeSet:
        """Mark the comments with these numbers as sent. Raises `Refusal` `unknown_change_set`."""

        def mark(comments: Comments, now: str) -> Comments:
            return tuple(replace(comment, sent=now) if comment.number in numbers else comment for comment in comments)

        return self._change_comments(change_set_id, mark)

    def _change_comments(self, change_set_id: str, change: Callable[[Comments, str], Comments]) -> ChangeSet:
        """Store other comments, which `change` makes from the present ones and the time."""

        def store(tx: Transaction) -> ChangeSet:
            row = load_checked_row(tx.session, change_set_id, None)
            row.comments = change(row.comments, tx.now.isoformat())
            tx.session.add(row)
            tx.record(ChangeSetCommented(**row.about, comments=len(row.comments)))
            tx.session.flush()
            return row.view

        return self.database.write(store)


def _quote_line(row: ChangeSetRow, path: str, line: int, *, old: bool) -> str:
    """The text of a line of the new file, or of the old one. Raises `Refusal`: `unknown_file`, `unknown_line`,
    `diff_gone`."""
    git = row.open_complete_git()
    files = {printable_path(file.path): file for file in diff_trees(git, row.base_tree, row.result_tree, renames=True)}
    file = files.get(path)
    if file is None:
        raise Refusal("unknown_file", f"it does not change {path}", f"one of: {join_paths(list(files))}")
    oid, mode = (file.old_oid, file.old_mode) if old else (file.new_oid, file.new_mode)
    lines = BytesIO(git.output("cat-file", "blob", oid)).readlines() if mode.startswith("10") else []
    if not 1 <= line <= len(lines):
        length = f"it has {len(lines) or 'no'} lines"
        raise Refusal("unknown_line", f"{path} has no line {line} {'before' if old else 'after'} the change", length)
    return printable_text(lines[line - 1].rstrip(b"\r\n").decode(errors="replace"))[:MAX_QUOTE_CHARS]
