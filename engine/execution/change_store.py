"""Stores and reads the rows of change sets, and checks their transitions (SPEC 3.9)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy
from sqlalchemy import JSON, Column, bindparam
from sqlmodel import Field, Session, col, desc, select

from engine.events import Event
from engine.execution import diffs, snapshots
from engine.execution.session_store import check_of
from engine.execution.tree_diff import apply_patch
from engine.git import Git
from engine.model import ChangeSet, ChangeState, DiffComment, FileChange, FileDiff, Refusal
from engine.storage import intents
from engine.storage.database import Database, Transaction
from engine.storage.rows import Row, ask, ids_with_prefix, value_of
from engine.storage.table_cache import TableCache
from engine.storage.types import json_field, utc_field

NEXT_STATES: dict[ChangeState, set[ChangeState]] = {
    ChangeState.WAITING: {ChangeState.LANDED, ChangeState.BRANCHED, ChangeState.DISCARDED},
    ChangeState.LANDED: {ChangeState.UNDONE},
    ChangeState.UNDONE: {ChangeState.LANDED, ChangeState.BRANCHED, ChangeState.DISCARDED},
}
"""The decisions on a change set by its state. A landed part of one that waits can be undone too."""


class ChangeSetRow(Row, table=True):
    """One change set."""

    __tablename__ = "change_sets"

    id: str = Field(primary_key=True)
    session_id: str
    prediction_id: str
    workspace: str
    state: str = ChangeState.WAITING.value
    base_tree: str
    result_tree: str
    files: list[dict[str, Any]] = json_field()
    title: str
    check_result: dict[str, Any] | None = Field(default=None, sa_column=Column(JSON))
    created_at: datetime = utc_field()
    decided_at: datetime | None = utc_field(nullable=True)
    branch: str = ""
    note: str = ""
    landings: list[dict[str, Any]] = json_field(default_factory=list)
    """Landings that were not undone, the oldest first: the `tree` up to which it is landed, the `files` of that, and
    the `plan` that wrote them."""
    written: dict[str, int] = json_field(default_factory=dict)
    """The `mtime_ns` by path of files that its landings and undos wrote."""
    kept: bool = True
    """Its refs are in the repository."""
    comments: list[dict[str, Any]] = json_field(default_factory=list)

    @property
    def landed_tree(self) -> str:
        """The tree up to which it is landed: the rest is the difference from there to `result_tree`."""
        return self.landings[-1]["tree"] if self.landings else self.base_tree

    @property
    def landed(self) -> int:
        """The number of files that its landings changed."""
        return len({entry["path"] for landed in self.landings for entry in landed["plan"]["entries"]})

    @property
    def commit_message(self) -> str:
        """The message of the commit on a branch."""
        first, _, remainder = self.title.partition("\n")
        body = f"{remainder.strip()}\n\n" if remainder.strip() else ""
        return f"{first.strip() or 'Work of a session'}\n\n{body}Session: {self.session_id}\n"

    def open_git(self) -> Git:
        """git in its repository. Raises `Refusal` when it is no repository."""
        return Git(Path(self.workspace)).pin()

    def keep_landed_part(self, note: str) -> bool:
        """Reduce it to its landed part; False when nothing is landed."""
        if self.landings:
            last = self.landings[-1]
            self.result_tree, self.files, self.note = last["tree"], last["files"], note
            self.state = ChangeState.LANDED.value
        return bool(self.landings)

    @property
    def about(self) -> dict[str, str]:
        """The fields that every event of it has."""
        return {"subject": self.id, "workspace": self.workspace, "session_id": self.session_id}

    def view(self) -> ChangeSet:
        """The change set for screens and verbs."""
        return value_of(
            self,
            ChangeSet,
            state=ChangeState(self.state),
            files=tuple(FileChange(**file) for file in self.files),
            check=check_of(self.check_result),
            comments=tuple(DiffComment(**comment) for comment in self.comments),
            landings=len(self.landings),
        )


_REVERSALS = {
    ChangeState.LANDED: "`clawpy undo {}` undoes it",
    ChangeState.UNDONE: "`clawpy land {}` lands it again",
}
"""The command that reverses a decision which was made already."""


def load_checked_row(session: Session, change_set_id: str, becoming: ChangeState | None) -> ChangeSetRow:
    """One row. Raises `Refusal` `unknown_change_set`, and `already_decided` when it cannot be `becoming`."""
    row = session.get(ChangeSetRow, change_set_id)
    if row is None:
        raise Refusal("unknown_change_set", f"there is no change set {change_set_id}", "`clawpy work` lists them")
    if becoming is not None and becoming not in NEXT_STATES.get(ChangeState(row.state), set()):
        if becoming is ChangeState.UNDONE and row.landings:
            return row
        if becoming == row.state:
            fix = _REVERSALS.get(becoming, "`clawpy work` shows it").format(row.id)
            raise Refusal("already_decided", f"{row.id} is {row.state} already", fix)
        message = f"{row.id} is {row.state} and cannot be {becoming.value}"
        fix = "`clawpy work` shows it"
        if becoming is ChangeState.UNDONE and row.state == ChangeState.BRANCHED:
            fix = f"none of your files changed; `git branch -D {row.branch}` deletes the branch"
        raise Refusal("already_decided", message, fix)
    return row


def store_decision(
    tx: Transaction, change_set_id: str, state: ChangeState, decide: Callable[[ChangeSetRow], Event]
) -> ChangeSet:
    """Store a decision: `decide` changes the row, also to another state than `state`, and returns the event. Raises as
    `load_checked_row`."""
    row = load_checked_row(tx.session, change_set_id, state)
    row.state, row.note = state.value, ""
    row.decided_at = tx.now
    tx.record(decide(row))
    tx.session.add(row)
    tx.session.flush()
    return row.view()


def finish_decision(
    database: Database,
    intent: int,
    change_set_id: str,
    state: ChangeState,
    decide: Callable[[ChangeSetRow], Event],
) -> ChangeSet:
    """Store a decision, see `store_decision`, in the transaction that removes its intent."""

    def work(tx: Transaction) -> ChangeSet:
        intents.finish(tx, intent)
        return store_decision(tx, change_set_id, state, decide)

    return database.write(work)


def require_objects(git: Git, row: ChangeSetRow) -> None:
    """Raises `Refusal` `diff_gone` when git collected a tree of the change set."""
    if snapshots.missing_objects(git, row.base_tree, row.landed_tree, row.result_tree):
        raise Refusal("diff_gone", f"git no longer has the contents of {row.id}, which was {row.state}")


MAX_RECENT_LANDINGS = 20
"""Number of recent landings and undos whose files `written_by_us` returns."""

_MAY_BE_LANDED = (ChangeState.LANDED.value, ChangeState.WAITING.value)
"""States of change sets of which all or a part is landed."""

_WRITTEN = (
    sqlalchemy.select(col(ChangeSetRow.written))
    .where(col(ChangeSetRow.workspace) == bindparam("workspace"), col(ChangeSetRow.decided_at).is_not(None))
    .order_by(desc(col(ChangeSetRow.decided_at)))
    .limit(MAX_RECENT_LANDINGS)
)


class ChangeReader:
    """Reads change sets; `ChangeSets` adds decisions."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._written: TableCache[dict[str, int]] = TableCache(database, ChangeSetRow)

    def get(self, change_set_id: str) -> ChangeSet:
        """One change set. Raises `Refusal` `unknown_change_set`."""
        return self.row(change_set_id).view()

    def ids_with_prefix(self, wanted: str) -> list[str]:
        """Ids of change sets, of any age, that begin with `wanted`; see `engine.storage.rows`."""
        with self._database.read() as session:
            return ids_with_prefix(session, col(ChangeSetRow.id), wanted)

    def for_session(self, session_id: str) -> ChangeSet | None:
        """The change set of a session, or None."""
        row = self.row_of_session(session_id)
        return None if row is None else row.view()

    def diff(self, change_set_id: str) -> list[FileDiff]:
        """Its files with their hunks: those that wait, or all of them once it is decided. Old lines have the numbers of
        the session's start. Raises `Refusal` `unknown_change_set`, `diff_gone` (git collected it)."""
        row = self.row(change_set_id)
        git = row.open_git()
        require_objects(git, row)
        landed = row.landed_tree if row.state == ChangeState.WAITING else row.base_tree
        return diffs.file_diffs(git, row.base_tree, row.result_tree, landed)

    def patch(self, session_id: str) -> str:
        """The changes of a session as a patch for `git apply`; "" for none, or when git no longer has them."""
        row = self.row_of_session(session_id)
        return "" if row is None else apply_patch(Path(row.workspace), row.base_tree, row.result_tree)

    def landed(self, workspace: str) -> list[ChangeSet]:
        """The newest three landings of `workspace` whose files were not edited since, so that each can be undone.
        Newest first."""
        query = (
            select(ChangeSetRow)
            .where(col(ChangeSetRow.workspace) == workspace, col(ChangeSetRow.state).in_(_MAY_BE_LANDED))
            .order_by(desc(col(ChangeSetRow.decided_at)))
        )
        with self._database.read() as session:
            rows = list(itertools.islice((row for row in session.exec(query) if row.landings), 3))
        return [
            row.view() for row in rows if all(_is_as_written(workspace, *written) for written in row.written.items())
        ]

    def written_by_us(self, workspace: str) -> dict[str, int]:
        """The `mtime_ns` of files that recent landings and undos wrote, by their path relative to `workspace`."""
        return self._written.get(workspace, lambda: self._read_written(workspace))

    def _read_written(self, workspace: str) -> dict[str, int]:
        with self._database.read() as session:
            written = ask(session, _WRITTEN, {"workspace": workspace})
        return {path: time for (times,) in reversed(written) for path, time in times.items()}

    def row_of_session(self, session_id: str) -> ChangeSetRow | None:
        """The row of a session's change set, or None."""
        with self._database.read() as session:
            return session.exec(select(ChangeSetRow).where(col(ChangeSetRow.session_id) == session_id)).first()

    def row(self, change_set_id: str, becoming: ChangeState | None = None) -> ChangeSetRow:
        """One row; see `load_checked_row`."""
        with self._database.read() as session:
            return load_checked_row(session, change_set_id, becoming)

    # Last in the class, because its name hides the type `list` from what follows.
    def list(
        self, *, state: ChangeState | None = None, workspace: str | None = None, limit: int = 50
    ) -> list[ChangeSet]:
        """Change sets, the newest first."""
        query = select(ChangeSetRow).order_by(desc(col(ChangeSetRow.created_at)), desc(col(ChangeSetRow.id)))
        if state is not None:
            query = query.where(col(ChangeSetRow.state) == state.value)
        if workspace is not None:
            query = query.where(col(ChangeSetRow.workspace) == workspace)
        with self._database.read() as session:
            return [row.view() for row in session.exec(query.limit(limit))]


def _is_as_written(workspace: str, path: str, time: int) -> bool:
    try:
        return os.lstat(os.path.join(workspace, path)).st_mtime_ns == time  # noqa: PTH118 (names of any bytes)
    except (OSError, ValueError):
        return False
