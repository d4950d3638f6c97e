"""Makes, captures and removes the worktrees of sessions (SPEC 3.8, 3.9).

A worktree is a detached git worktree with a snapshot of the operator's files. It has an intent row, which is written
before the worktree is made and removed after it is gone, so that a crash loses none. Programs in a worktree may change
its `.git` file, so that file is never read here.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Collection
from pathlib import Path

from engine.execution.included_files import NOTHING_INCLUDED, IncludedFiles, copy_included_files
from engine.execution.tree_merges import require_merge_tree
from engine.execution.trees import (
    Snapshot,
    keep_object,
    make_synthetic_commit,
    release_objects,
    take_snapshot,
    validate_id,
)
from engine.execution.workspace_locks import WorkspaceLocks
from engine.files import remove_folder
from engine.frozen import frozen
from engine.git import Git, GitError
from engine.git.command import join_nul, split_nul
from engine.home import Home
from engine.model import Refusal
from engine.storage import state
from engine.storage.database import Database, Transaction
from engine.storage.state import begin_intent, drop_intent, intents_of, unfinished_intents

log = logging.getLogger(__name__)

INTENT = "worktree"

_INCLUDED = "clawpy-included"
"""The file in git's folder of a worktree that lists the ignored files copied into it."""

StartingTreeBuilder = Callable[[Git, str], str]
"""Makes the tree with which a session begins, from the repository and the operator's present tree."""


@frozen
class Worktree:
    """The worktree of a session."""

    session_id: str
    workspace: Path
    folder: Path
    base: str
    """The operator's tree from which it was made."""
    start: str
    """The checked-out commit. It is the operator's HEAD if that has the tree `base`, else our own commit on top."""
    head: str
    """The operator's HEAD."""
    included: IncludedFiles = NOTHING_INCLUDED
    """Ignored files that were copied into it."""


class Worktrees:
    """The worktrees of one home, which are in its cache."""

    def __init__(self, home: Home, database: Database) -> None:
        self._home = home
        self._database = database
        self.locks = WorkspaceLocks()

    def create(self, session_id: str, workspace: Path, *, onto: StartingTreeBuilder | None = None) -> Worktree:
        """Make a worktree for `session_id` with the present files of `workspace`, which is the top folder of a
        repository. With `onto` it has the tree that `onto` makes. Its base is the present files in both cases.

        Raises `GitError` (code `git_failed`) when git cannot make it, `Refusal` `old_git`, and as `onto`. Then nothing
        is left behind.
        """
        folder = self.folder_of(session_id)
        git = Git(workspace).pin()
        require_merge_tree()
        payload = {"workspace": os.fsdecode(workspace), "folder": os.fsdecode(folder)}
        self._database.write(lambda tx: begin_intent(tx, INTENT, session_id, payload))
        try:
            with self.locks.hold(str(workspace)):
                snapshot = take_snapshot(git)
            tree = onto(git, snapshot.tree) if onto is not None else snapshot.tree
            start = snapshot.head
            if tree != snapshot.tree or not (snapshot.clean and snapshot.head):
                start = make_synthetic_commit(git, tree, *([snapshot.head] if snapshot.head else []))
            keep_object(git, session_id, "base", snapshot.tree)
            folder.parent.mkdir(parents=True, exist_ok=True)
            (git.repository.common / "worktrees").mkdir(exist_ok=True)
            git.output("worktree", "add", "--quiet", "--detach", str(folder), start, timeout=600)
            included = copy_included_files(git, folder)
            if included.names:
                (_admin_folder(git, folder) / _INCLUDED).write_bytes(join_nul(included.names))
        except (Refusal, OSError):
            self.remove(session_id)
            self.release(workspace, session_id)
            raise
        return Worktree(session_id, workspace, folder, snapshot.tree, start, snapshot.head, included)

    def mark_worth_keeping(self, worktree: Worktree) -> None:
        """Have the next start store the changes of a worktree whose session was interrupted; see `list_unsaved`."""

        def note(tx: Transaction) -> None:
            for intent in intents_of(tx, INTENT, worktree.session_id):
                intent.payload = {**intent.payload, "base": worktree.base}

        self._database.write(note)

    def list_unsaved(self) -> list[Worktree]:
        """The existing worktrees of an earlier run that are worth keeping, oldest first. They have only the fields that
        `capture` needs."""
        worktrees = []
        for intent in unfinished_intents(self._database, INTENT):
            base, workspace, folder = (intent.payload.get(name, "") for name in ("base", "workspace", "folder"))
            if base and Path(workspace).is_dir() and Path(folder).is_dir():
                worktrees.append(Worktree(intent.subject, Path(workspace), Path(folder), base, "", ""))
        return worktrees

    def list_sessions(self) -> list[tuple[str, bool]]:
        """The sessions that have a worktree, each with whether it is worth keeping."""
        return [
            (intent.subject, bool(intent.payload.get("base"))) for intent in unfinished_intents(self._database, INTENT)
        ]

    def folder_of(self, session_id: str) -> Path:
        """The folder for a session's worktree, whether it exists or not."""
        return self._home.worktrees / validate_id(session_id)

    def capture(self, worktree: Worktree) -> Snapshot:
        """Store the files of a worktree as a tree in the operator's repository, which a ref of the session keeps. The
        ignored files that were copied into the worktree are left out."""
        git = Git(worktree.workspace).pin()
        admin = _admin_folder(git, worktree.folder)
        included_list = admin / _INCLUDED
        without = frozenset(split_nul(included_list.read_bytes())) if included_list.is_file() else frozenset()
        result = take_snapshot(git, folder=worktree.folder, index=admin / "index", base=worktree.base, without=without)
        keep_object(git, worktree.session_id, "result", result.tree)
        return result

    def remove(self, session_id: str) -> None:
        """Remove a session's worktree, if it has one. Its trees stay in the repository. A worktree that cannot be
        removed, because it has files of another user, is left to the next start."""
        for intent in unfinished_intents(self._database, INTENT):
            if intent.subject == session_id:
                self._clear_away(intent)

    def release(self, workspace: Path, session_id: str) -> None:
        """Let git collect the trees of a session, if the repository still exists."""
        if workspace.is_dir():
            with contextlib.suppress(GitError):  # no repository any more
                release_objects(Git(workspace).pin(), session_id)

    def recover(self, *, keep: Collection[str] = (), keep_refs: Collection[str] = ()) -> list[str]:
        """At start-up: remove the worktrees of an earlier run, except for the sessions in `keep`, and release their
        trees, except for those in `keep_refs`. Returns messages on what was done."""
        messages = []
        for intent in unfinished_intents(self._database, INTENT):
            if intent.subject not in keep:
                removed = self._clear_away(intent)
                if intent.subject not in keep_refs:
                    self.release(Path(intent.payload["workspace"]), intent.subject)
                if removed:
                    messages.append(f"removed the worktree that session {intent.subject} left behind")
                else:
                    messages.append(
                        f"{intent.payload['folder']} cannot be removed; delete it by hand, the log says why"
                    )
        return messages

    def _clear_away(self, intent: state.Intent) -> bool:
        """Remove a worktree and its intent. False when it cannot be removed now: then the next start tries again."""
        folder = Path(intent.payload["folder"])
        try:
            self._remove(Path(intent.payload["workspace"]), folder)
        except OSError:
            log.warning("the worktree %s cannot be removed", folder, exc_info=True)
            return False
        drop_intent(self._database, intent.id)
        return True

    def _remove(self, workspace: Path, folder: Path) -> None:
        remove_folder(folder)
        if not workspace.is_dir():
            return  # the repository is gone
        try:
            git = Git(workspace).pin()
        except GitError:
            return  # no repository any more
        admin = _admin_folder(git, folder)
        if admin.is_dir():
            remove_folder(admin)
        with contextlib.suppress(OSError):  # others have worktrees too
            admin.parent.rmdir()


def _admin_folder(git: Git, folder: Path) -> Path:
    """git's own folder for the worktree at `folder`, which has the same name; session ids are unique."""
    return git.repository.common / "worktrees" / folder.name
