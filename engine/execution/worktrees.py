"""Makes worktrees for sessions: detached git worktrees from a snapshot of the operator's files (SPEC 3.8, 3.9).

Each worktree has an intent row, which is written before the worktree is made and removed after it is gone, so that
a crash loses none. Its `.git` file may be changed by programs that run inside, so it is never read here. The
ignored files that `.worktreeinclude` of a repository names are copied into it; the session may change what was
copied. Locks keep landings, undos and snapshots of one workspace from overlapping with each other, and with
sessions that may write there.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import posixpath
import stat
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.execution import trees
from engine.files import read_plain, remove_folder
from engine.frozen import frozen
from engine.git import Git, GitError
from engine.git.command import join_nul, split_nul
from engine.home import Home
from engine.model import Refusal, sanitise
from engine.storage import state
from engine.storage.beneath import Beneath, parents
from engine.storage.database import Database, Transaction
from engine.storage.state import begin_intent, drop_intent, intents_of, unfinished_intents

# Locks

_EVERYWHERE = ""
"""Stands for every workspace, for a session without a sandbox."""


class WorkspaceLocks:
    """One lock for each workspace."""

    def __init__(self) -> None:
        self._locks: dict[str, threading.RLock] = defaultdict(threading.RLock)
        self._guard = threading.Lock()
        self._writers: dict[str, str] = {}

    @contextmanager
    def hold(self, workspace: str) -> Iterator[None]:
        """Hold the lock of a workspace."""
        with self._guard:
            lock = self._locks[os.path.realpath(workspace)]
        with lock:
            yield

    @contextmanager
    def hold_exclusively(self, workspace: str) -> Iterator[None]:
        """`hold`, while no session may write to the workspace's files. Raises `Refusal` `session_writes`."""
        path = os.path.realpath(workspace)
        with self.hold(workspace):
            with self._guard:
                writer_id = next((writer for writer, its in self._writers.items() if its in (path, _EVERYWHERE)), "")
                is_everywhere = self._writers.get(writer_id) == _EVERYWHERE
            if writer_id:
                what = "runs without a sandbox and could" if is_everywhere else "works in these files and could"
                raise Refusal(
                    "session_writes",
                    f"session {writer_id} {what} change them in the meantime; nothing was changed",
                    "wait until it has finished, or stop it on the work screen, then try again",
                )
            yield

    @contextmanager
    def register_writer(self, session_id: str, workspace: Path, *, is_confined: bool) -> Iterator[None]:
        """Block landings while commands of a session may write the operator's files: those of `workspace`, or any when
        no sandbox confines them. Waits for a landing that is under way there."""
        path = os.path.realpath(workspace) if is_confined else _EVERYWHERE
        with self._guard:
            self._writers[session_id] = path
            locks = [lock for locked_path, lock in self._locks.items() if path in (locked_path, _EVERYWHERE)]
        try:
            for lock in locks:
                with lock:
                    pass  # its holder checked for writers before this one was registered
            yield
        finally:
            with self._guard:
                self._writers.pop(session_id, None)


# Ignored files that `.worktreeinclude` names

INCLUDE_FILE = ".worktreeinclude"

MAX_PATTERN_BYTES = 64 * 1024
"""Maximum size of the file of patterns."""
MAX_INCLUDE_FILES = 20_000
MAX_BYTES = 500_000_000
"""Maximum size of all files that are copied into one worktree."""
_MAX_NAMED = 5


@frozen
class IncludedFiles:
    """The files that were copied."""

    names: tuple[bytes, ...] = ()
    summary: str = ""
    """The line for the transcript, "" without an include file."""


NOTHING_INCLUDED = IncludedFiles()


def copy_included_files(git: Git, folder: Path) -> IncludedFiles:
    """Copy the files that `.worktreeinclude` of the operator's tree names into the worktree `folder`. The summary names
    files that cannot be copied; raises only `GitError`."""
    top = git.folder
    try:
        patterns = read_plain(top / INCLUDE_FILE, MAX_PATTERN_BYTES, follow=False)
    except FileNotFoundError:
        return NOTHING_INCLUDED
    except (OSError, ValueError) as error:
        return IncludedFiles(summary=f"{INCLUDE_FILE} was not used: it {error}")
    copied: list[bytes] = []
    left_out: list[str] = []
    size = 0
    with Beneath.open(top) as source, Beneath.open(folder) as target:
        for name in _find_matching(git, patterns):
            if len(copied) == MAX_INCLUDE_FILES or size >= MAX_BYTES:
                left_out.append(f"the rest, beyond {MAX_INCLUDE_FILES:,} files or {MAX_BYTES // 1_000_000} MB")
                break
            try:
                size += _copy_file(source, target, os.fsdecode(name), MAX_BYTES - size)
                copied.append(name)
            except OSError as error:
                left_out.append(f"{sanitise(os.fsdecode(name))} ({error.strerror})")
    return IncludedFiles(tuple(copied), _summarise(copied, left_out, size))


def _find_matching(git: Git, patterns: bytes) -> list[bytes]:
    """The ignored files that the patterns match."""
    with tempfile.TemporaryDirectory(prefix="clawpy-include-") as place:
        patterns_file = Path(place) / "patterns"
        patterns_file.write_bytes(patterns)
        names = split_nul(git.output("ls-files", "--others", "--ignored", f"--exclude-from={patterns_file}", "-z"))
    # A folder with a slash at its end is a repository of its own.
    files = [name for name in names if not name.endswith(b"/")]
    if not files:
        return []
    answer = git.run("check-ignore", "--stdin", "-z", stdin=join_nul(files), allowed=(0, 1))
    ignored = set(split_nul(answer.stdout))
    return [name for name in files if name in ignored and name != INCLUDE_FILE.encode()]


def _copy_file(source: Beneath, target: Beneath, name: str, room: int) -> int:
    """Copy one file, without following a link out of either folder. Returns its size in bytes. Raises OSError."""
    if ".git" in name.lower().split("/"):
        raise OSError(errno.EPERM, "belongs to git")
    status = source.lstat(name)
    if status is None:
        raise FileNotFoundError(errno.ENOENT, "is gone")
    for folder in parents(name):
        if target.lstat(folder) is None:
            target.mkdir(folder)
    if stat.S_ISLNK(status.st_mode):
        link = os.fsdecode(source.readlink(name))
        end = posixpath.normpath(posixpath.join(posixpath.dirname(name), link))
        if link.startswith("/") or end.split("/")[0] == "..":
            raise OSError(errno.EXDEV, "a link that leads out of the repository")
        target.symlink(link, name)
        return 0
    with os.fdopen(source.open_file(name), "rb") as content:
        if status.st_size > room:
            raise OSError(errno.EFBIG, f"would pass {MAX_BYTES // 1_000_000} MB")
        target.write(name, content.read(room), mode=status.st_mode | 0o200)
    return status.st_size


def _summarise(copied: list[bytes], left_out: list[str], size: int) -> str:
    if not (copied or left_out):
        return f"{INCLUDE_FILE} matches no ignored files"
    names = ", ".join(sanitise(os.fsdecode(name)) for name in copied[:_MAX_NAMED])
    more = f" and {len(copied) - _MAX_NAMED} more" if len(copied) > _MAX_NAMED else ""
    what = f"{names}{more} ({size / 1_000_000:.1f} MB)" if copied else "nothing"
    return f"{INCLUDE_FILE}: copied {what}" + (f"; left out: {', '.join(left_out[:_MAX_NAMED])}" if left_out else "")


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
        trees.require_merge_tree()
        payload = {"workspace": os.fsdecode(workspace), "folder": os.fsdecode(folder)}
        self._database.write(lambda tx: begin_intent(tx, INTENT, session_id, payload))
        try:
            with self.locks.hold(str(workspace)):
                snapshot = trees.take_snapshot(git)
            tree = onto(git, snapshot.tree) if onto is not None else snapshot.tree
            start = snapshot.head
            if tree != snapshot.tree or not (snapshot.clean and snapshot.head):
                start = trees.commit_of(git, tree, *([snapshot.head] if snapshot.head else []))
            trees.keep_object(git, session_id, "base", snapshot.tree)
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
            for intent in intents_of(tx, INTENT, worktree.session_id):
                intent.payload = {**intent.payload, "base": worktree.base}

        self._database.write(note)

    def list_unsaved(self) -> list[Worktree]:
        """Existing worktrees of an earlier run that are worth keeping, oldest first, with the fields that `capture`
        needs."""
        worktrees = []
        for intent in unfinished_intents(self._database, INTENT):
            base, workspace, folder = (intent.payload.get(name, "") for name in ("base", "workspace", "folder"))
            if base and Path(workspace).is_dir() and Path(folder).is_dir():
                worktrees.append(Worktree(intent.subject, Path(workspace), Path(folder), base, "", ""))
        return worktrees

    def list_sessions(self) -> list[tuple[str, bool]]:
        """The sessions that have a worktree, and whether it is worth keeping."""
        return [
            (intent.subject, bool(intent.payload.get("base"))) for intent in unfinished_intents(self._database, INTENT)
        ]

    def folder_of(self, session_id: str) -> Path:
        """The folder of a session's worktree, which may not exist."""
        return self._home.worktrees / trees.validate_id(session_id)

    def capture(self, worktree: Worktree) -> trees.Snapshot:
        """Store the worktree's files as a tree in the operator's repository, under the session's refs, without the
        ignored files that were copied into it."""
        git = Git(worktree.workspace).pin()
        admin = _admin_folder(git, worktree.folder)
        included_list = admin / _INCLUDED
        without = frozenset(split_nul(included_list.read_bytes())) if included_list.is_file() else frozenset()
        result = trees.take_snapshot(
            git, folder=worktree.folder, index=admin / "index", base=worktree.base, without=without
        )
        trees.keep_object(git, worktree.session_id, "result", result.tree)
        return result

    def remove(self, session_id: str) -> None:
        """Remove a session's worktree, if it has one; its trees stay in the repository. A worktree that cannot be
        removed (with files of another user) is left to the next start."""
        for intent in unfinished_intents(self._database, INTENT):
            if intent.subject == session_id:
                self._clear_away(intent)

    def release(self, workspace: Path, session_id: str) -> None:
        """Let git collect the trees of a session, if they and the repository still exist."""
        if workspace.is_dir():
            with contextlib.suppress(GitError):  # no repository any more
                trees.release_objects(Git(workspace).pin(), session_id)

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
        """False when it cannot be removed now: the intent stays then, and the next start tries again."""
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
