"""What can be asked of change sets, without changing anything."""

from __future__ import annotations

import builtins
import itertools
import os
from pathlib import Path

import sqlalchemy
from sqlalchemy import bindparam
from sqlmodel import col, desc, select

from engine.execution import diffs, snapshots
from engine.execution.change_rows import ChangeSetRow, checked
from engine.git import Git
from engine.model import ChangeSet, ChangeState, FileDiff, Refusal
from engine.storage.database import Database
from engine.storage.ids import beginning
from engine.storage.kept import Kept
from engine.storage.quick import ask

REMEMBERED = 20
"""Of so many recent landings and undos `written_by_us` remembers the files."""


_MAY_BE_LANDED = (ChangeState.LANDED.value, ChangeState.WAITING.value)
"""States of change sets of which all or a part is landed."""

_WRITTEN = (
    sqlalchemy.select(col(ChangeSetRow.written))
    .where(col(ChangeSetRow.workspace) == bindparam("workspace"), col(ChangeSetRow.decided_at).is_not(None))
    .order_by(desc(col(ChangeSetRow.decided_at)))
    .limit(REMEMBERED)
)


class ChangeReader:
    """Reads change sets; `ChangeSets` adds what can be decided."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._written: Kept[dict[str, int]] = Kept(database, ChangeSetRow)

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

    def get(self, change_set_id: str) -> ChangeSet:
        """One change set. Raises `Refusal` `unknown_change_set`."""
        return self._row(change_set_id).view()

    def beginning(self, wanted: str) -> builtins.list[str]:
        """Ids of change sets, of any age, that begin so; see `engine.storage.ids`."""
        with self._database.read() as session:
            return beginning(session, col(ChangeSetRow.id), wanted)

    def for_session(self, session_id: str) -> ChangeSet | None:
        """The change set that a session left, if it left one."""
        row = self._of_session(session_id)
        return None if row is None else row.view()

    def diff(self, change_set_id: str) -> builtins.list[FileDiff]:
        """Its files with their hunks: what is left while some of it waits, all of it once it is decided. Old lines are
        numbered as the session found them. Raises `Refusal` `unknown_change_set`, `diff_gone` (decided, and
        collected)."""
        row = self._row(change_set_id)
        git = snapshots.plain_git(Path(row.workspace)).git
        self._ask_for(git, row)
        landed = row.landed_tree if row.state == ChangeState.WAITING else row.base_tree
        return diffs.file_diffs(git, row.base_tree, row.result_tree, landed)

    def _ask_for(self, git: Git, row: ChangeSetRow) -> None:
        """Raises `Refusal` `diff_gone`."""
        if snapshots.missing_objects(git, row.base_tree, row.landed_tree, row.result_tree):
            raise Refusal("diff_gone", f"git no longer has the contents of {row.id}, which was {row.state}")

    def patch(self, session_id: str) -> str:
        """What a session changed, as `git apply` takes it; "" for nothing, or when git has it no more."""
        row = self._of_session(session_id)
        return "" if row is None else diffs.patch(Path(row.workspace), row.base_tree, row.result_tree)

    def landed(self, workspace: str) -> builtins.list[ChangeSet]:
        """The newest three landings of `workspace` whose files are all still as they were landed: none was edited
        since, so each can be undone. Newest first."""
        query = (
            select(ChangeSetRow)
            .where(col(ChangeSetRow.workspace) == workspace, col(ChangeSetRow.state).in_(_MAY_BE_LANDED))
            .order_by(desc(col(ChangeSetRow.decided_at)))
        )
        with self._database.read() as session:
            rows = list(itertools.islice((row for row in session.exec(query) if row.landings), 3))
        return [row.view() for row in rows if all(_is_as_written(workspace, *one) for one in row.written.items())]

    def written_by_us(self, workspace: str) -> dict[str, int]:
        """Files that recent landings and undos wrote: path relative to `workspace` -> the `mtime_ns` we left."""
        return self._written.get(workspace, lambda: self._read_written(workspace))

    def _read_written(self, workspace: str) -> dict[str, int]:
        with self._database.read() as session:
            written = ask(session, _WRITTEN, {"workspace": workspace})
        return {path: time for (one,) in reversed(written) for path, time in one.items()}

    def _of_session(self, session_id: str) -> ChangeSetRow | None:
        with self._database.read() as session:
            return session.exec(select(ChangeSetRow).where(col(ChangeSetRow.session_id) == session_id)).first()

    def _row(self, change_set_id: str, becoming: ChangeState | None = None) -> ChangeSetRow:
        with self._database.read() as session:
            return checked(session, change_set_id, becoming)


def _is_as_written(workspace: str, path: str, time: int) -> bool:
    try:
        return os.lstat(os.path.join(workspace, path)).st_mtime_ns == time  # noqa: PTH118 (names of any bytes)
    except (OSError, ValueError):
        return False
