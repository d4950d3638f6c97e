"""A session's own folder: a detached git worktree made from a snapshot of the operator's files (SPEC 3.8, 3.9).

That a worktree exists is an intent row, written before it is made and taken away after it is gone: whatever a crash
leaves is found again. Its `.git` file may be rewritten by what runs inside, so nothing here ever believes it."""

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
from engine.git import GitError
from engine.git.tree import joined, split
from engine.home import Home
from engine.model import Refusal
from engine.plain_files import remove_folder
from engine.storage import intents
from engine.storage.database import Database, Transaction

log = logging.getLogger(__name__)

INTENT = "worktree"

_INCLUDED = "clawpy-included"
"""The file among git's notes on a worktree that lists the ignored files which came along."""

StartingTree = Callable[[snapshots.PlainGit, str], str]
"""`onto(repository, present)`: the tree that a session begins with, made of the operator's present one."""


@frozen
class Worktree:
    """A session's folder. `base` is the tree it was made from, `start` the commit it has checked out (the operator's
    HEAD when that is exactly `base`, else a commit on top of it that only this worktree knows), `head` that HEAD.
    `included` are the ignored files that came along."""

    session_id: str
    workspace: Path
    folder: Path
    base: str
    start: str
    head: str
    included: IncludedFiles = NOTHING_INCLUDED


class Worktrees:
    """Makes and removes worktrees under the home's cache."""

    def __init__(self, home: Home, database: Database) -> None:
        self._home = home
        self._database = database
        self.locks = WorkspaceLocks()

    def create(self, session_id: str, workspace: Path, *, onto: StartingTree | None = None) -> Worktree:
        """A worktree for `session_id`, holding exactly the present files of `workspace` (its top folder), or what
        `onto` makes of them; the present files are its base all the same.

        Raises `GitError` (code `git_failed`) when git cannot make it, `Refusal` `old_git`, and what `onto` raises;
        nothing stays behind then.
        """
        folder = self.folder_of(session_id)
        plain = snapshots.plain_git(workspace)
        if (refusal := snapshots.check_git_version(plain)) is not None:
            raise refusal
        intent = self._database.write(
            lambda tx: intents.begin(
                tx, INTENT, session_id, {"workspace": os.fsdecode(workspace), "folder": os.fsdecode(folder)}
            )
        )
        try:
            with self.locks.hold(str(workspace)):
                snapshot = snapshots.take_snapshot(plain)
            tree = onto(plain, snapshot.tree) if onto is not None else snapshot.tree
            start = snapshot.head
            if tree != snapshot.tree or not (snapshot.clean and snapshot.head):
                start = snapshots.commit_of(plain.git, tree, *([snapshot.head] if snapshot.head else []))
            snapshots.keep_object(plain.git, session_id, "base", snapshot.tree)
            folder.parent.mkdir(parents=True, exist_ok=True)
            (plain.git.repository.common / "worktrees").mkdir(exist_ok=True)
            plain.git.output("worktree", "add", "--quiet", "--detach", str(folder), start, timeout=600)
            included = copy_included_files(plain.git, folder)
            if included.names:
                (_admin_folder(plain, folder) / _INCLUDED).write_bytes(joined(list(included.names)))
        except (Refusal, OSError):
            self._clear_away(intent, workspace, folder)
            self.release(workspace, session_id)
            raise
        return Worktree(session_id, workspace, folder, snapshot.tree, start, snapshot.head, included)

    def mark_worth_keeping(self, worktree: Worktree) -> None:
        """What is changed in it from now on is kept, whatever becomes of its session; see `list_unsaved`."""

        def note(tx: Transaction) -> None:
            for intent in intents.of(tx, INTENT, worktree.session_id):
                intent.payload = {**intent.payload, "base": worktree.base}

        self._database.write(note)

    def list_unsaved(self) -> list[Worktree]:
        """Worktrees of an earlier run that are worth keeping and still there, oldest first. Only what `capture` needs
        is known of them."""
        worktrees = []
        for intent in intents.unfinished(self._database, INTENT):
            base, workspace, folder = (intent.payload.get(name, "") for name in ("base", "workspace", "folder"))
            if base and Path(workspace).is_dir() and Path(folder).is_dir():
                worktrees.append(Worktree(intent.subject, Path(workspace), Path(folder), base, "", ""))
        return worktrees

    def list_sessions(self) -> list[tuple[str, bool]]:
        """The sessions that have a worktree, and whether it holds changes that are to be kept (`worth_keeping`)."""
        return [
            (intent.subject, bool(intent.payload.get("base"))) for intent in intents.unfinished(self._database, INTENT)
        ]

    def folder_of(self, session_id: str) -> Path:
        """Where the worktree of a session is or would be."""
        return self._home.worktrees / snapshots.validate_id(session_id)

    def capture(self, worktree: Worktree) -> snapshots.Snapshot:
        """The worktree's files as a tree in the operator's repository, kept under the session's refs. Ignored files
        that came along are no part of it, whatever the session made of `.gitignore`."""
        plain = snapshots.plain_git(worktree.workspace)
        admin = _admin_folder(plain, worktree.folder)
        brought = admin / _INCLUDED
        without = frozenset(split(brought.read_bytes())) if brought.is_file() else frozenset()
        result = snapshots.take_snapshot(
            plain, folder=worktree.folder, index=admin / "index", base=worktree.base, without=without
        )
        snapshots.keep_object(plain.git, worktree.session_id, "result", result.tree)
        return result

    def remove(self, session_id: str) -> None:
        """Remove a session's worktree; its trees stay in the repository. Harmless when there is none.

        What cannot be removed (files of another user, say) is left to the next start: no decision waits for tidying up.
        """
        for intent in intents.unfinished(self._database, INTENT):
            if intent.subject == session_id:
                self._remove_known(intent)

    def release(self, workspace: Path, session_id: str) -> None:
        """Let git collect the trees of a session. Harmless when they, or the repository, are gone."""
        if workspace.is_dir():
            with contextlib.suppress(GitError):  # no repository any more
                snapshots.release_objects(snapshots.plain_git(workspace).git, session_id)

    def recover(self, *, keep: Collection[str] = (), keep_refs: Collection[str] = ()) -> list[str]:
        """At start-up: remove the worktrees of an earlier run but for the sessions in `keep`, and let go of their
        trees but for those in `keep_refs`. Says what it did."""
        messages = []
        for intent in intents.unfinished(self._database, INTENT):
            if intent.subject not in keep:
                removed = self._remove_known(intent)
                if intent.subject not in keep_refs:
                    self.release(Path(intent.payload["workspace"]), intent.subject)
                if removed:
                    messages.append(f"removed the worktree that session {intent.subject} left behind")
                else:
                    messages.append(
                        f"{intent.payload['folder']} cannot be removed; delete it by hand, the log says why"
                    )
        return messages

    def _remove_known(self, intent: intents.Intent) -> bool:
        assert intent.id is not None
        return self._clear_away(intent.id, Path(intent.payload["workspace"]), Path(intent.payload["folder"]))

    def _clear_away(self, intent: int, workspace: Path, folder: Path) -> bool:
        """False when it cannot be removed now: the intent stays then, and the next start tries again."""
        try:
            self._remove(workspace, folder)
        except OSError:
            log.warning("the worktree %s cannot be removed", folder, exc_info=True)
            return False
        self._database.write(lambda tx: intents.finish(tx, intent))
        return True

    def _remove(self, workspace: Path, folder: Path) -> None:
        remove_folder(folder)
        if not workspace.is_dir():
            return  # the repository is gone, and our traces in it with it
        try:
            plain = snapshots.plain_git(workspace)
        except GitError:
            return  # no repository any more
        admin = _admin_folder(plain, folder)
        if _points_to(admin, folder):
            remove_folder(admin)
            with contextlib.suppress(OSError):  # others have worktrees too
                admin.parent.rmdir()


def _admin_folder(plain: snapshots.PlainGit, folder: Path) -> Path:
    """git's own notes on the worktree at `folder_of`. git names them after the folder; session ids are unique."""
    return plain.git.repository.common / "worktrees" / folder.name


def _points_to(admin: Path, folder: Path) -> bool:
    try:
        noted = Path(os.fsdecode((admin / "gitdir").read_bytes().removesuffix(b"\n")))
    except FileNotFoundError:
        return admin.is_dir()  # half-made: named after our session, noted nowhere
    return noted.name == ".git" and os.path.realpath(noted.parent) == os.path.realpath(folder)
