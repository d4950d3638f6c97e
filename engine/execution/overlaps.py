"""Finds waiting change sets that touch the same files, before they land (SPEC 3.9).

Every session has its own worktree, so two sessions can only conflict when their changes land. For each pair that
touches the same files of a workspace, git tells whether the second could still land after the first.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from sqlmodel import col, select

from engine.events import WorkOverlapped
from engine.execution import snapshots
from engine.execution.change_capture import CapturedChanges
from engine.execution.change_store import ChangeSetRow
from engine.execution.merging import merge_three_way
from engine.frozen import frozen
from engine.git import Git
from engine.model import ChangeState, SessionView
from engine.storage.database import Database, Transaction


@frozen
class Overlap:
    """Another waiting change set that touches the same files."""

    change_set_id: str
    session_id: str
    title: str
    files: tuple[str, ...]
    conflicting: tuple[str, ...]
    """The files that could not be landed after the other change set."""

    @property
    def words(self) -> str:
        """The sentence for screens."""
        single = len(self.files) == 1
        shared = self.files[0] if single else f"{len(self.files)} files"
        if self.conflicting:
            return f"“{self.title}” changes {shared} too; only one of the two can land"
        return f"“{self.title}” changes {shared} too; both can land, in either order"


class Overlaps:
    """Compares waiting change sets. Starts git, so it runs in a worker."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, change_set_id: str) -> list[Overlap]:
        """The overlaps of a waiting change set, oldest first; none for one that is decided or unknown."""
        with self._database.read() as session:
            row = session.get(ChangeSetRow, change_set_id)
        if row is None or row.state != ChangeState.WAITING:
            return []
        return self._find_overlaps(row.workspace, row.id, _changed_paths(row.files), row.landed_tree, row.result_tree)

    def overlaps_of_captured(self, captured: CapturedChanges) -> list[Overlap]:
        """The overlaps of changes that are not stored yet."""
        worktree = captured.worktree
        paths = {path for file in captured.files for path in (file.path, file.old_path) if path}
        return self._find_overlaps(os.fsdecode(worktree.workspace), "", paths, worktree.base, captured.result_tree)

    def record(self, tx: Transaction, change_set_id: str, view: SessionView, overlaps: Iterable[Overlap]) -> None:
        """Record overlaps in the ledger, for the adaptation engine (SPEC 5.1: `task_conflict`)."""
        for overlap in overlaps:
            tx.record(
                WorkOverlapped(
                    subject=change_set_id,
                    workspace=view.workspace,
                    session_id=view.id,
                    agent=view.agent,
                    other=overlap.change_set_id,
                    other_session_id=overlap.session_id,
                    files=overlap.files[:50],
                    conflicting=overlap.conflicting[:50],
                )
            )

    def _find_overlaps(self, workspace: str, own_id: str, paths: set[str], base: str, result: str) -> list[Overlap]:
        query = (
            select(ChangeSetRow)
            .where(col(ChangeSetRow.workspace) == workspace, col(ChangeSetRow.state) == ChangeState.WAITING.value)
            .order_by(col(ChangeSetRow.created_at), col(ChangeSetRow.id))
        )
        with self._database.read() as session:
            others = [row for row in session.exec(query) if row.id != own_id]
        sharing = [(row, sorted(paths & _changed_paths(row.files))) for row in others]
        if not any(shared for _, shared in sharing):
            return []
        git = Git(Path(workspace)).pin()
        return [
            Overlap(
                row.id,
                row.session_id,
                row.title,
                tuple(shared),
                _conflicts(git, (row.landed_tree, row.result_tree), (base, result)),
            )
            for row, shared in sharing
            if shared and not snapshots.missing_objects(git, row.landed_tree, row.result_tree)
        ]


def _conflicts(git: Git, first: tuple[str, str], second: tuple[str, str]) -> tuple[str, ...]:
    """Files that conflict when `second` (base, result) is landed on a tree where `first` was."""
    landed = first[1]
    if first[0] != second[0]:
        onto = merge_three_way(git, base=first[0], ours=second[0], theirs=first[1])
        if onto.conflicts:
            return tuple(snapshots.printable_path(path) for path in onto.conflicts)
        landed = onto.tree
    merged = merge_three_way(git, base=second[0], ours=landed, theirs=second[1])
    return tuple(snapshots.printable_path(path) for path in merged.conflicts)


def _changed_paths(files: list[dict[str, object]]) -> set[str]:
    return {str(path) for file in files for path in (file["path"], file.get("old_path")) if path}
