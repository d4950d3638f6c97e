"""Captures the changes of a session from its worktree as a change set, and gives them to a session that continues it
(SPEC 3.9, 9.4).
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from functools import partial

from sqlmodel import col, select

from engine.events import ChangeSetReady, WorkOverlapped
from engine.execution import snapshots
from engine.execution.change_store import ChangeReader, ChangeSetRow
from engine.execution.diffs import file_changes
from engine.execution.snapshots import join_paths, printable_path
from engine.execution.trees import merge_three_way
from engine.execution.worktrees import StartingTreeBuilder, Worktree, Worktrees
from engine.frozen import frozen
from engine.git import Git
from engine.model import ChangeSet, ChangeState, CheckResult, FileChange, Randomness, Refusal, SessionView, sanitise
from engine.storage.database import Database, Transaction


@frozen
class CapturedChanges:
    """The changes of a session before they are stored."""

    worktree: Worktree
    result_tree: str
    """The tree of the worktree's files, kept under the session's refs."""
    files: tuple[FileChange, ...]


class ChangeCapture:
    """Makes change sets from the worktrees of sessions."""

    def __init__(self, reader: ChangeReader, worktrees: Worktrees, randomness: Randomness) -> None:
        self._reader = reader
        self._worktrees = worktrees
        self._randomness = randomness

    def capture(self, worktree: Worktree) -> CapturedChanges | None:
        """The changes in `worktree`, or None. Slow (git); nothing is stored yet."""
        result = self._worktrees.capture(worktree)
        if result.tree == worktree.base:
            return None
        git = Git(worktree.workspace).pin()
        files = file_changes(git, worktree.base, result.tree, result.nested)
        return CapturedChanges(worktree, result.tree, files)

    def store(
        self,
        tx: Transaction,
        captured: CapturedChanges,
        *,
        prediction_id: str,
        title: str,
        check: CheckResult | None = None,
    ) -> ChangeSet:
        """Store a captured change set inside the transaction that ends its session; records `ChangeSetReady`."""
        worktree = captured.worktree
        row = ChangeSetRow(
            id=self._randomness.new_id("change"),
            session_id=worktree.session_id,
            prediction_id=prediction_id,
            workspace=os.fsdecode(worktree.workspace),
            base_tree=worktree.base,
            result_tree=captured.result_tree,
            files=[dataclasses.asdict(file) for file in captured.files],
            title=sanitise(title).strip(),
            check_result=None if check is None else dataclasses.asdict(check),
            created_at=tx.now,
        )
        tx.session.add(row)
        tx.session.flush()
        tx.record(ChangeSetReady(**row.about, files=len(captured.files)))
        return row.view()

    def starting_tree(self, session_id: str) -> StartingTreeBuilder | None:
        """Builds the tree of a session that continues `session_id`: the present files with its undecided changes; None
        for the present files alone."""
        row = self._reader.row_of_session(session_id)
        if row is None or row.state not in (ChangeState.WAITING, ChangeState.UNDONE):
            return None
        return partial(_merge_onto, row)


def _merge_onto(former: ChangeSetRow, git: Git, present: str) -> str:
    """The tree `present` with the changes of `former`. Raises `Refusal` `conflict` when both changed the same lines."""
    merge = merge_three_way(git, base=former.landed_tree, ours=present, theirs=former.result_tree)
    if merge.conflicts:
        names = join_paths([printable_path(path) for path in merge.conflicts])
        raise Refusal(
            "conflict",
            f"what {former.session_id} changed no longer fits your files: {names}",
            "land or discard its changes first, then continue it",
        )
    return merge.tree


# Finds waiting change sets that touch the same files as a new one, and records that for adaptation (SPEC 3.9, 5.1).
#
# Every session has its own worktree, so two sessions can only conflict when their changes land. For each pair that
# touches the same files of a workspace, git tells whether the second could still land after the first.


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
