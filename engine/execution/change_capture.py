"""Captures the changes of a session from its worktree as a change set, and gives them to a session that continues it
(SPEC 3.9, 9.4)."""

from __future__ import annotations

import dataclasses
import os
from contextlib import AbstractContextManager
from pathlib import Path

from engine.events import ChangeSetReady
from engine.execution import snapshots
from engine.execution.change_comments import ChangeComments
from engine.execution.change_store import ChangeSetRow
from engine.execution.diffs import file_changes
from engine.execution.merging import merge_three_way
from engine.execution.sandbox import Sandbox
from engine.execution.snapshots import PlainGit, join_paths, printable_path
from engine.execution.workspace_locks import EVERYWHERE
from engine.execution.worktrees import StartingTree, Worktree, Worktrees
from engine.frozen import frozen
from engine.home import Home
from engine.model import ChangeSet, ChangeState, CheckResult, FileChange, Randomness, Refusal, sanitise
from engine.storage.database import Database, Transaction


@frozen
class CapturedChanges:
    """The changes of a session before they are stored."""

    worktree: Worktree
    result: str
    """The tree of the worktree's files, kept under the session's refs."""
    files: tuple[FileChange, ...]


class ChangeCapture(ChangeComments):
    """Makes change sets from the worktrees of sessions."""

    def __init__(self, home: Home, database: Database, randomness: Randomness) -> None:
        super().__init__(database)
        self._randomness = randomness
        self.worktrees = Worktrees(home, database)
        self._locks = self.worktrees.locks

    def register_writer(self, session_id: str, workspace: Path, sandbox: Sandbox) -> AbstractContextManager[None]:
        """Block landings while commands of a session may write the operator's files: those of `workspace`, or any where
        no sandbox confines them. Waits for a landing that is under way."""
        return self._locks.register_writer(os.fsdecode(workspace) if sandbox.confines else EVERYWHERE, session_id)

    def capture(self, worktree: Worktree) -> CapturedChanges | None:
        """The changes in `worktree`, or None. Slow (git); nothing is stored yet."""
        result = self.worktrees.capture(worktree)
        if result.tree == worktree.base:
            return None
        git = snapshots.plain_git(worktree.workspace).git
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
            result_tree=captured.result,
            files=[dataclasses.asdict(file) for file in captured.files],
            title=sanitise(title).strip(),
            check_result=None if check is None else dataclasses.asdict(check),
            created_at=tx.now,
        )
        tx.session.add(row)
        tx.session.flush()
        tx.record(ChangeSetReady(**row.about, files=len(captured.files)))
        return row.view()

    def starting_tree(self, session_id: str) -> StartingTree | None:
        """The files of a session that continues `session_id`: the present files with its undecided changes, or None
        for the present files alone."""
        row = self._of_session(session_id)
        undecided = row is not None and row.state in (ChangeState.WAITING, ChangeState.UNDONE)
        return _with_changes_of(row) if row is not None and undecided else None


def _with_changes_of(former: ChangeSetRow) -> StartingTree:
    """The present files with the changes of `former`. Raises `Refusal` `conflict` when both changed the same lines."""

    def merge_onto(plain: PlainGit, present: str) -> str:
        merge = merge_three_way(plain.git, base=former.landed_tree, ours=present, theirs=former.result_tree)
        if merge.conflicts:
            names = join_paths([printable_path(path) for path in merge.conflicts])
            raise Refusal(
                "conflict",
                f"what {former.session_id} changed no longer fits your files: {names}",
                "land or discard its changes first, then continue it",
            )
        return merge.tree

    return merge_onto
