"""Makes, captures and removes the worktrees of sessions (SPEC 3.8, 3.9).

A worktree is a detached git worktree with a snapshot of the operator's files, and with the ignored files that the
repository's `.worktreeinclude` names. It has an intent row, which is written before the worktree is made and removed
after it is gone, so that a crash loses none. Programs in a worktree may change its `.git` file, so that file is never
read here. `ChangeSets` has one `Worktrees`, and `SessionFolders` opens them through it.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
import tempfile
from collections.abc import Callable, Collection
from dataclasses import field
from pathlib import Path

from engine.beneath import Beneath, parents
from engine.execution import WorkspaceLocks
from engine.execution.diffs import leads_out
from engine.execution.trees import (
    Snapshot,
    find_submodules,
    keep_object,
    make_synthetic_commit,
    release_objects,
    require_merge_tree,
    take_snapshot,
    validate_id,
)
from engine.files import read_plain, remove_folder
from engine.frozen import frozen
from engine.git import Git, join_nul, join_paths, split_nul
from engine.git.environment import get_temporary_folder
from engine.git.repository import is_git_name
from engine.home import Home
from engine.model import Refusal
from engine.storage.database import Database, Transaction
from engine.storage.state import Intent, begin_intent, finish_intent_now, read_intents, read_unfinished_intents
from engine.text import sanitise

log = logging.getLogger(__name__)

# -- ignored files that a worktree gets as well

INCLUDE_FILE = ".worktreeinclude"
"""The file with patterns of ignored files that a worktree gets as well."""

MAX_PATTERN_BYTES = 64 * 1024
"""Maximum size of the file of patterns."""

MAX_INCLUDE_FILES = 20_000
"""Maximum number of files that are copied into one worktree."""

MAX_INCLUDED_BYTES = 500_000_000
"""Maximum size of all files together that are copied into one worktree."""

_MAX_NAMED_FILES = 5
"""Maximum number of files left out that the transcript names."""


@frozen
class IncludedFiles:
    """The files that were copied."""

    names: tuple[bytes, ...] = ()
    summary: str = ""
    """A line for the transcript, "" without a `.worktreeinclude`."""


def _copy_included_files(git: Git, folder: Path) -> IncludedFiles:
    """Copy the files that `.worktreeinclude` in the operator's tree names into the worktree `folder`. The summary names
    the files that cannot be copied. Raises only `GitError`."""
    top = git.folder
    try:
        patterns = read_plain(top / INCLUDE_FILE, MAX_PATTERN_BYTES, follow=False)
    except FileNotFoundError:
        return IncludedFiles()
    except (OSError, ValueError):
        problem = f"it is no regular file of at most {MAX_PATTERN_BYTES // 1024} KB that can be read"
        return IncludedFiles(summary=f"{INCLUDE_FILE} was not used: {problem}")
    copied: list[bytes] = []
    left_out: list[str] = []
    size = 0
    with Beneath.open(top) as source, Beneath.open(folder) as target:
        for name in _find_included(git, patterns):
            if len(copied) == MAX_INCLUDE_FILES or size >= MAX_INCLUDED_BYTES:
                left_out.append(f"the rest, beyond {MAX_INCLUDE_FILES:,} files or {MAX_INCLUDED_BYTES // 1_000_000} MB")
                break
            try:
                size += _copy_included_file(source, target, os.fsdecode(name), MAX_INCLUDED_BYTES - size)
                copied.append(name)
            except OSError as error:
                left_out.append(f"{sanitise(os.fsdecode(name))} ({error.strerror})")
    names = join_paths([os.fsdecode(name) for name in copied]) or "nothing"
    summary = f"{INCLUDE_FILE}: copied {names} ({size / 1_000_000:.1f} MB)"
    if left_out:
        summary += f"; left out: {', '.join(left_out[:_MAX_NAMED_FILES])}"
    return IncludedFiles(tuple(copied), summary)


def _find_included(git: Git, patterns: bytes) -> list[bytes]:
    """The ignored files that the `patterns` of `.worktreeinclude` match."""
    with tempfile.TemporaryDirectory(prefix="include-", dir=get_temporary_folder()) as folder:
        patterns_file = Path(folder) / "patterns"
        patterns_file.write_bytes(patterns)
        names = split_nul(git.output("ls-files", "--others", "--ignored", f"--exclude-from={patterns_file}", "-z"))
    # A folder with a slash at its end is a repository of its own.
    files = [name for name in names if not name.endswith(b"/")]
    if not files:
        return []
    answer = git.run("check-ignore", "--stdin", "-z", stdin=join_nul(files), allowed=(0, 1))
    ignored = set(split_nul(answer.stdout))
    return [name for name in files if name in ignored and name != INCLUDE_FILE.encode()]


def _copy_included_file(source: Beneath, target: Beneath, name: str, max_bytes: int) -> int:
    """Copy one file of at most `max_bytes`. No link is followed out of either folder. Returns its size in bytes.
    Raises OSError."""
    if any(map(is_git_name, name.split("/"))):
        raise OSError(errno.EPERM, "belongs to git")
    for folder in parents(name):
        if target.lstat(folder) is None:
            target.mkdir(folder)
    status = source.lstat(name)
    if status is not None and stat.S_ISLNK(status.st_mode):
        link = source.readlink(name)
        if leads_out(os.fsencode(name), link):
            raise OSError(errno.EXDEV, "a link that leads out of the repository")
        target.symlink(os.fsdecode(link), name)
        return 0
    with os.fdopen(source.open_file(name), "rb") as content:
        status = os.fstat(content.fileno())
        if status.st_size > max_bytes:
            raise OSError(errno.EFBIG, f"would pass {MAX_INCLUDED_BYTES // 1_000_000} MB")
        target.write(name, content.read(max_bytes), mode=status.st_mode | 0o200)
    return status.st_size


# -- worktrees

WORKTREE_INTENT = "worktree"
"""The kind of the intent rows of worktrees."""

_INCLUDED_LIST = "clawpy-included"
"""The file in git's folder of a worktree that lists the ignored files copied into it."""

StartingTreeBuilder = Callable[[Git, str], str]
"""Makes the tree with which a session begins, from the repository and the operator's present tree."""

ADD_TIMEOUT_S = 600
"""Seconds in which git must have checked out a worktree."""


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
    included: IncludedFiles = IncludedFiles()
    """Ignored files that were copied into it."""


def _has_content(root: Beneath, folder: str) -> bool:
    """Whether something is in a folder beneath `root`, or it cannot be read."""
    try:
        return root.is_folder(folder) and bool(root.names(folder))
    except OSError:
        return True


@frozen
class Worktrees:
    """The worktrees of one home, which are in its cache."""

    home: Home
    database: Database
    locks: WorkspaceLocks = field(default_factory=WorkspaceLocks)

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
        self.database.write(lambda tx: begin_intent(tx, WORKTREE_INTENT, session_id, payload))
        try:
            with self.locks.hold(str(workspace)):
                snapshot = take_snapshot(git)
            tree = onto(git, snapshot.tree) if onto is not None else snapshot.tree
            start = snapshot.head
            if tree != snapshot.tree or not (snapshot.clean and snapshot.head):
                start = make_synthetic_commit(git, tree, *([snapshot.head] if snapshot.head else []))
            keep_object(git, session_id, "base", snapshot.tree)
            included = _add_worktree(git, folder, start)
        except (Refusal, OSError):
            self.remove(session_id)
            self.release(workspace, session_id)
            raise
        return Worktree(
            session_id, workspace, folder=folder, base=snapshot.tree, start=start, head=snapshot.head, included=included
        )

    def mark_worth_keeping(self, worktree: Worktree) -> None:
        """Have the next start store the changes of a worktree whose session was interrupted; see `list_unsaved`."""

        def store_base(tx: Transaction) -> None:
            for intent in read_intents(tx, WORKTREE_INTENT, worktree.session_id):
                intent.payload = {**intent.payload, "base": worktree.base}

        self.database.write(store_base)

    def list_unsaved(self) -> list[Worktree]:
        """The existing worktrees of an earlier run that are worth keeping, oldest first. They have only the fields that
        `capture` needs."""
        worktrees = []
        for intent in read_unfinished_intents(self.database, WORKTREE_INTENT):
            base, workspace, folder = (intent.payload.get(name, "") for name in ("base", "workspace", "folder"))
            if base and Path(workspace).is_dir() and Path(folder).is_dir():
                worktrees.append(
                    Worktree(intent.subject, Path(workspace), folder=Path(folder), base=base, start="", head="")
                )
        return worktrees

    def list_sessions(self) -> dict[str, bool]:
        """The sessions that have a worktree, each with whether it is worth keeping."""
        intents = read_unfinished_intents(self.database, WORKTREE_INTENT)
        return {intent.subject: bool(intent.payload.get("base")) for intent in intents}

    def folder_of(self, session_id: str) -> Path:
        """The folder for a session's worktree, whether it exists or not."""
        return self.home.worktrees / validate_id(session_id)

    def capture(self, worktree: Worktree) -> Snapshot:
        """Store the files of a worktree as a tree in the operator's repository, which a ref of the session keeps. The
        ignored files that were copied into the worktree are left out."""
        git = Git(worktree.workspace).pin()
        admin = _find_admin_folder(git, worktree.folder)
        included_list = admin / _INCLUDED_LIST
        included = frozenset(split_nul(included_list.read_bytes())) if included_list.is_file() else frozenset()
        result = take_snapshot(git, folder=worktree.folder, index=admin / "index", base=worktree.base, skipped=included)
        keep_object(git, worktree.session_id, "result", result.tree)
        return result

    def find_changed_submodules(self, worktree: Worktree) -> list[bytes]:
        """The submodules of a worktree in which a session made something. They are empty at its start."""
        submodules = find_submodules(Git(worktree.workspace).pin(), worktree.base)
        with Beneath.open(worktree.folder) as root:
            return [path for path in submodules if _has_content(root, os.fsdecode(path))]

    def remove(self, session_id: str) -> None:
        """Remove a session's worktree, if it has one. Its trees stay in the repository. A worktree that cannot be
        removed, because it has files of another user, is left to the next start."""
        for intent in read_unfinished_intents(self.database, WORKTREE_INTENT):
            if intent.subject == session_id:
                self._try_remove(intent)

    def release(self, workspace: Path, session_id: str) -> None:
        """Let git collect the trees of a session, if the repository still exists."""
        if workspace.is_dir():
            with contextlib.suppress(Refusal):  # no repository any more
                release_objects(Git(workspace).pin(), session_id)

    def recover(self, *, keep: Collection[str] = (), keep_refs: Collection[str] = ()) -> list[str]:
        """At start-up: remove the worktrees of an earlier run, except for the sessions in `keep`, and release their
        trees, except for those in `keep_refs`. Returns messages on what was done."""
        messages = []
        for intent in read_unfinished_intents(self.database, WORKTREE_INTENT):
            if intent.subject not in keep:
                removed = self._try_remove(intent)
                if intent.subject not in keep_refs:
                    self.release(Path(intent.payload["workspace"]), intent.subject)
                messages.append(
                    f"removed the worktree that session {intent.subject} left behind"
                    if removed
                    else f"{intent.payload['folder']} cannot be removed; delete it by hand, the log says why"
                )
        return messages

    def _try_remove(self, intent: Intent) -> bool:
        """Remove a worktree and its intent. False when it cannot be removed now: then the next start tries again."""
        folder = Path(intent.payload["folder"])
        try:
            _remove_worktree(Path(intent.payload["workspace"]), folder)
        except OSError:
            log.warning("the worktree %s cannot be removed", folder, exc_info=True)
            return False
        finish_intent_now(self.database, intent.id)
        return True


def _add_worktree(git: Git, folder: Path, commit: str) -> IncludedFiles:
    """Check a commit out into a new worktree, and copy ignored files into it. Returns these files."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    (git.repository.common / "worktrees").mkdir(exist_ok=True)
    git.output("worktree", "add", "--quiet", "--detach", str(folder), commit, timeout=ADD_TIMEOUT_S)
    # git wrote the shadow folder of this process, which commands in a sandbox do not see, and which is removed at the
    # end of the process.
    admin = _find_admin_folder(git, folder)
    (folder / ".git").write_bytes(b"gitdir: " + os.fsencode(admin) + b"\n")
    included = _copy_included_files(git, folder)
    if included.names:
        (admin / _INCLUDED_LIST).write_bytes(join_nul(included.names))
    return included


def _remove_worktree(workspace: Path, folder: Path) -> None:
    """Remove a worktree, and what git knows of it. Raises OSError."""
    remove_folder(folder)
    if not workspace.is_dir():
        return  # the repository is gone
    try:
        git = Git(workspace).pin()
    except Refusal:
        return  # no repository any more
    admin = _find_admin_folder(git, folder)
    if admin.is_dir():
        remove_folder(admin)
    with contextlib.suppress(OSError):  # others have worktrees too
        admin.parent.rmdir()


def _find_admin_folder(git: Git, folder: Path) -> Path:
    """git's own folder for the worktree at `folder`, which has the same name; session ids are unique."""
    return git.repository.common / "worktrees" / folder.name
