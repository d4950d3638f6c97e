"""Captures the changes of a session from its worktree as a change set, and gives them to a session that continues it
(SPEC 3.9, 9.4)."""

from __future__ import annotations

import dataclasses
import os
from functools import partial

from engine.events import ChangeSetReady
from engine.execution.change_store import ChangeReader, ChangeSetRow
from engine.execution.diffs import file_changes
from engine.execution.merging import merge_three_way
from engine.execution.snapshots import join_paths, printable_path
from engine.execution.worktrees import StartingTreeBuilder, Worktree, Worktrees
from engine.frozen import frozen
from engine.git import Git
from engine.model import ChangeSet, ChangeState, CheckResult, FileChange, Randomness, Refusal, sanitise
from engine.storage.database import Transaction


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
