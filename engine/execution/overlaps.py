"""Finds waiting change sets that touch the same files as a new one, and records that for adaptation (SPEC 3.9, 5.1).

Every session has its own worktree, so two sessions can only conflict when their changes land. For each pair that
touches the same files of a workspace, git tells whether the second could still land after the first.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

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
    files: tuple[str, ...]
    conflicting: tuple[str, ...]
    """The files that could not be landed after the other change set."""


def find_overlaps(database: Database, captured: CapturedChanges) -> list[Overlap]:
    """The overlaps of changes that are not stored yet, oldest first. Starts git."""
    worktree = captured.worktree
    paths = {path for file in captured.files for path in (file.path, file.old_path) if path}
    query = (
        select(ChangeSetRow)
        .where(col(ChangeSetRow.workspace) == os.fsdecode(worktree.workspace))
        .where(col(ChangeSetRow.state) == ChangeState.WAITING.value)
        .order_by(col(ChangeSetRow.created_at), col(ChangeSetRow.id))
    )
    with database.read() as session:
        sharing = [(row, sorted(paths & _changed_paths(row))) for row in session.exec(query)]
    overlaps = []
    for row, shared in sharing:
        if shared:
            git = row.open_git()
            if not snapshots.missing_objects(git, row.landed_tree, row.result_tree):
                conflicting = _conflicts(git, (row.landed_tree, row.result_tree), (worktree.base, captured.result_tree))
                overlaps.append(Overlap(row.id, row.session_id, tuple(shared), conflicting))
    return overlaps


def record_overlaps(tx: Transaction, change_set_id: str, view: SessionView, overlaps: Iterable[Overlap]) -> None:
    """Record the overlaps of a new change set in the ledger, for the adaptation engine (`task_conflict`)."""
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


def _changed_paths(row: ChangeSetRow) -> set[str]:
    return {path for file in row.files for path in (file["path"], file.get("old_path")) if path}
