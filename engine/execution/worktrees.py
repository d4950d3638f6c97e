"""Makes worktrees for sessions: detached git worktrees from a snapshot of the operator's files (SPEC 3.8, 3.9).

Each worktree has an intent row, which is written before the worktree is made and removed after it is gone, so that a
crash loses none. Its `.git` file may be changed by programs that run inside, so it is never read here."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Collection
from pathlib import Path

from engine.execution import snapshots
from engine.execution.workspace_locks import WorkspaceLocks
from engine.execution.worktree_include import NOTHING_INCLUDED, IncludedFiles, copy_included_files
from engine.frozen import frozen
from engine.git import Git, GitError
from engine.git.nul_lists import join_nul, split_nul
from engine.home import Home
from engine.model import Refusal
from engine.plain_files import remove_folder
from engine.storage import intents
from engine.storage.database import Database, Transaction

log = logging.getLogger(__name__)

INTENT = "worktree"

_INCLUDED = "clawpy-included"
"""The file in git's folder of a worktree that lists the ignored files copied into it."""

StartingTreeBuilder = Callable[[Git, str], str]
"""Builds the tree with which a session begins, from the repository and the operator's present tree."""


@frozen
class Worktree:
    """The worktree of a session."""

    session_id: str
    workspace: Path
    folder: Path
    base: str
    """The operator's tree from which it was made."""
    start: str
    """The checked-out commit: the operator's HEAD if its tree is `base`, else a commit of our own on top of it."""
    head: str
    """The operator's HEAD."""
    included: IncludedFiles = NOTHING_INCLUDED
    """Ignored files that were copied into it."""


class Worktrees:
    """Makes and removes worktrees under the home's cache."""

    def __init__(self, home: Home, database: Database) -> None:
        self._home = home
        self._database = database
        self.locks = WorkspaceLocks()

    def create(self, session_id: str, workspace: Path, *, onto: StartingTreeBuilder | None = None) -> Worktree:
        """Make a worktree for `session_id` with the present files of `workspace` (its top folder), or with the tree of
        `onto`; its base are the present files either way.

        Raises `GitError` (code `git_failed`) when git cannot make it, `Refusal` `old_git`, and as `onto`; nothing is
        left then.
        """
        folder = self.folder_of(session_id)
        git = Git(workspace).pin()
        snapshots.require_merge_tree()
        payload = {"workspace": os.fsdecode(workspace), "folder": os.fsdecode(folder)}
        self._database.write(lambda tx: intents.begin(tx, INTENT, session_id, payload))
        try:
            with self.locks.hold(str(workspace)):
                snapshot = snapshots.take_snapshot(git)
            tree = onto(git, snapshot.tree) if onto is not None else snapshot.tree
            start = snapshot.head
            if tree != snapshot.tree or not (snapshot.clean and snapshot.head):
                start = snapshots.commit_of(git, tree, *([snapshot.head] if snapshot.head else []))
            snapshots.keep_object(git, session_id, "base", snapshot.tree)
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
        """Store its changes at the next start even if its session is interrupted; see `list_unsaved`."""

        def note(tx: Transaction) -> None:
            for intent in intents.of(tx, INTENT, worktree.session_id):
                intent.payload = {**intent.payload, "base": worktree.base}

        self._database.write(note)

    def list_unsaved(self) -> list[Worktree]:
        """Existing worktrees of an earlier run that are worth keeping, oldest first, with the fields that `capture`
        needs."""
        worktrees = []
        for intent in intents.unfinished(self._database, INTENT):
            base, workspace, folder = (intent.payload.get(name, "") for name in ("base", "workspace", "folder"))
            if base and Path(workspace).is_dir() and Path(folder).is_dir():
                worktrees.append(Worktree(intent.subject, Path(workspace), Path(folder), base, "", ""))
        return worktrees

    def list_sessions(self) -> list[tuple[str, bool]]:
        """The sessions that have a worktree, and whether it is worth keeping."""
        return [
            (intent.subject, bool(intent.payload.get("base"))) for intent in intents.unfinished(self._database, INTENT)
        ]

    def folder_of(self, session_id: str) -> Path:
        """The folder of a session's worktree, which may not exist."""
        return self._home.worktrees / snapshots.validate_id(session_id)

    def capture(self, worktree: Worktree) -> snapshots.Snapshot:
        """Store the worktree's files as a tree in the operator's repository, under the session's refs, without the
        ignored files that were copied into it."""
        git = Git(worktree.workspace).pin()
        admin = _admin_folder(git, worktree.folder)
        included_list = admin / _INCLUDED
        without = frozenset(split_nul(included_list.read_bytes())) if included_list.is_file() else frozenset()
        result = snapshots.take_snapshot(
            git, folder=worktree.folder, index=admin / "index", base=worktree.base, without=without
        )
        snapshots.keep_object(git, worktree.session_id, "result", result.tree)
        return result

    def remove(self, session_id: str) -> None:
        """Remove a session's worktree, if it has one; its trees stay in the repository. A worktree that cannot be
        removed (with files of another user) is left to the next start."""
        for intent in intents.unfinished(self._database, INTENT):
            if intent.subject == session_id:
                self._clear_away(intent)

    def release(self, workspace: Path, session_id: str) -> None:
        """Let git collect the trees of a session, if they and the repository still exist."""
        if workspace.is_dir():
            with contextlib.suppress(GitError):  # no repository any more
                snapshots.release_objects(Git(workspace).pin(), session_id)

    def recover(self, *, keep: Collection[str] = (), keep_refs: Collection[str] = ()) -> list[str]:
        """At start-up: remove the worktrees of an earlier run, except for the sessions in `keep`, and release their
        trees, except for those in `keep_refs`. Returns messages on what was done."""
        messages = []
        for intent in intents.unfinished(self._database, INTENT):
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

    def _clear_away(self, intent: intents.Intent) -> bool:
        """False when it cannot be removed now: the intent stays then, and the next start tries again."""
        folder = Path(intent.payload["folder"])
        try:
            self._remove(Path(intent.payload["workspace"]), folder)
        except OSError:
            log.warning("the worktree %s cannot be removed", folder, exc_info=True)
            return False
        intents.drop(self._database, intent.id)
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
        if _points_to(admin, folder):
            remove_folder(admin)
            with contextlib.suppress(OSError):  # others have worktrees too
                admin.parent.rmdir()


def _admin_folder(git: Git, folder: Path) -> Path:
    """git's own folder for the worktree at `folder`, which has the same name; session ids are unique."""
    return git.repository.common / "worktrees" / folder.name


def _points_to(admin: Path, folder: Path) -> bool:
    try:
        noted = Path(os.fsdecode((admin / "gitdir").read_bytes().removesuffix(b"\n")))
    except FileNotFoundError:
        return admin.is_dir()  # half-made: named after our session, noted nowhere
    return noted.name == ".git" and os.path.realpath(noted.parent) == os.path.realpath(folder)
