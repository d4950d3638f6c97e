"""A session's own folder: a detached git worktree made from a snapshot of the operator's files (SPEC 3.8, 3.9).

That a worktree exists is an intent row, written before it is made and taken away after it is gone: whatever a crash
leaves is found again. Its `.git` file may be rewritten by what runs inside, so nothing here ever believes it."""

from __future__ import annotations

import contextlib
import logging
import os
import posixpath
import shutil
import stat
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from engine.execution import snapshots
from engine.frozen import frozen
from engine.git import Git, GitError
from engine.git.tree import joined, split
from engine.home import Home
from engine.model import Refusal, sanitise
from engine.plain_files import read_plain, remove_folder
from engine.storage import intents
from engine.storage.database import Database, Transaction

FILE = ".worktreeinclude"

LARGEST_LIST = 64 * 1024
"""Bytes of the file of patterns."""
MAX_FILES = 20_000
MAX_BYTES = 500_000_000
"""So many files, and so many bytes of them together, are copied into one worktree."""
_NAMED = 5


@frozen
class Included:
    """What was copied: `names` as git has them, `words` say it for the transcript, "" when there was nothing to do."""

    names: tuple[bytes, ...] = ()
    words: str = ""


NOTHING = Included()


class _LeftOut(Exception):
    """This file is not copied; the text says why."""


def include(git: Git, folder: Path) -> Included:
    """Copy into the worktree `folder` what `.worktreeinclude` of `git`'s repository names. `git` is on the operator's
    tree. What cannot be copied is left out and said; raises only `GitError`."""
    top = git.folder
    try:
        patterns = read_plain(top / FILE, LARGEST_LIST, follow=False)
    except FileNotFoundError:
        return NOTHING
    except (OSError, ValueError) as error:
        return Included(words=f"{FILE} was not used: it {error}")
    copied: list[bytes] = []
    left_out: list[str] = []
    size = 0
    with _opened(top) as source, _opened(folder) as target:
        for name in _matching(git, patterns):
            if len(copied) == MAX_FILES or size >= MAX_BYTES:
                left_out.append(f"the rest, beyond {MAX_FILES:,} files or {MAX_BYTES // 1_000_000} MB")
                break
            try:
                size += _copy(source, target, name, MAX_BYTES - size)
                copied.append(name)
            except (OSError, _LeftOut) as error:
                reason = error.strerror if isinstance(error, OSError) else error
                left_out.append(f"{sanitise(os.fsdecode(name))} ({reason})")
    return Included(tuple(copied), _summary(copied, left_out, size))


def _matching(git: Git, patterns: bytes) -> list[bytes]:
    """The ignored files that the patterns match."""
    with tempfile.TemporaryDirectory(prefix="clawpy-include-") as place:
        patterns_file = Path(place) / "patterns"
        patterns_file.write_bytes(patterns)
        names = split(git.output("ls-files", "--others", "--ignored", f"--exclude-from={patterns_file}", "-z"))
    # A folder with a slash at its end is a repository of its own.
    files = [name for name in names if not name.endswith(b"/")]
    if not files:
        return []
    answer = git.run("check-ignore", "--stdin", "-z", stdin=joined(files), allowed=(0, 1))
    ignored = set(split(answer.stdout))
    return [name for name in files if name in ignored and name != FILE.encode()]


def _copy(source: int, target: int, name: bytes, room: int) -> int:
    """Copy one file; both are descriptors of folders. Returns its size in bytes."""
    *folders, last = name.split(b"/")
    if b".git" in [part.lower() for part in (*folders, last)]:
        raise _LeftOut("belongs to git")
    with _below(source, folders, make=False) as source_folder, _below(target, folders, make=True) as target_folder:
        status = os.lstat(last, dir_fd=source_folder)
        if stat.S_ISLNK(status.st_mode):
            link_target = os.readlink(last, dir_fd=source_folder)
            end = posixpath.normpath(posixpath.join(b"/".join(folders), link_target))
            if link_target.startswith(b"/") or end == b".." or end.startswith(b"../"):
                raise _LeftOut("a link that leads out of the repository")
            os.symlink(link_target, last, dir_fd=target_folder)
            return 0
        if not stat.S_ISREG(status.st_mode):
            raise _LeftOut("not a regular file")
        if status.st_size > room:
            raise _LeftOut(f"would pass {MAX_BYTES // 1_000_000} MB")
        flags = os.O_NOFOLLOW | os.O_CLOEXEC
        read = os.open(last, os.O_RDONLY | os.O_NONBLOCK | flags, dir_fd=source_folder)
        with os.fdopen(read, "rb") as content:
            if not stat.S_ISREG(os.fstat(read).st_mode):
                raise _LeftOut("not a regular file")
            mode = stat.S_IMODE(status.st_mode) & 0o777
            written = os.open(last, os.O_WRONLY | os.O_CREAT | os.O_EXCL | flags, mode | 0o200, dir_fd=target_folder)
            with os.fdopen(written, "wb") as copy:
                shutil.copyfileobj(content, copy, 1 << 20)
        return status.st_size


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _below(top: int, folders: list[bytes], *, make: bool) -> Iterator[int]:
    """A folder below another, each step opened without following a link; `make` those that are not there."""
    opened = [os.dup(top)]
    try:
        for part in folders:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=opened[-1])
            opened.append(os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=opened[-1]))
        yield opened[-1]
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _summary(copied: list[bytes], left_out: list[str], size: int) -> str:
    if not (copied or left_out):
        return f"{FILE} matches no ignored files"
    names = ", ".join(sanitise(os.fsdecode(name)) for name in copied[:_NAMED])
    more = f" and {len(copied) - _NAMED} more" if len(copied) > _NAMED else ""
    message = f"{FILE}: copied {names}{more} ({size / 1_000_000:.1f} MB)" if copied else f"{FILE}: copied nothing"
    return message + (f"; left out: {', '.join(left_out[:_NAMED])}" if left_out else "")


log = logging.getLogger(__name__)

INTENT = "worktree"

_INCLUDED = "clawpy-included"
"""The file among git's notes on a worktree that lists the ignored files which came along."""

EVERYWHERE = ""
"""What a session without a sandbox may write to: every workspace."""

Onto = Callable[[snapshots.PlainGit, str], str]
"""`onto(repository, present)`: the tree that a session begins with, made of the operator's present one."""


class WorkspaceLocks:
    """One lock a workspace: snapshots that become a base, landings and undos of a workspace never overlap. Nor does a
    landing overlap with a session whose commands may write to the same files."""

    def __init__(self) -> None:
        self._locks: dict[str, threading.RLock] = defaultdict(threading.RLock)
        self._guard = threading.Lock()
        self._writers: dict[str, str] = {}

    @contextmanager
    def holding(self, workspace: str) -> Iterator[None]:
        """Wait for the workspace, then keep others waiting."""
        with self._guard:
            lock = self._locks[os.path.realpath(workspace)]
        with lock:
            yield

    @contextmanager
    def alone(self, workspace: str) -> Iterator[None]:
        """`holding`, while no session may write to the workspace's files. Raises `Refusal` `session_writes`."""
        path = os.path.realpath(workspace)
        with self.holding(workspace):
            with self._guard:
                writer_id = next((writer for writer, its in self._writers.items() if its in (path, EVERYWHERE)), "")
                is_everywhere = self._writers.get(writer_id) == EVERYWHERE
            if writer_id:
                what = "runs without a sandbox and could" if is_everywhere else "works in these files and could"
                raise Refusal(
                    "session_writes",
                    f"session {writer_id} {what} change them in the meantime; nothing was changed",
                    "wait until it has finished, or stop it on the work screen, then try again",
                )
            yield

    @contextmanager
    def writing(self, workspace: str, session_id: str) -> Iterator[None]:
        """While a session's commands may write to the files of `workspace`, or to any (`EVERYWHERE`). Waits for a
        landing that is under way there."""
        path = workspace if workspace == EVERYWHERE else os.path.realpath(workspace)
        with self._guard:
            self._writers[session_id] = path
            locks = [lock for locked_path, lock in self._locks.items() if path in (locked_path, EVERYWHERE)]
        try:
            for lock in locks:
                with lock:
                    pass  # who holds it looked before we were there
            yield
        finally:
            with self._guard:
                self._writers.pop(session_id, None)


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
    included: Included = NOTHING


class Worktrees:
    """Makes and removes worktrees under the home's cache."""

    def __init__(self, home: Home, database: Database) -> None:
        self._home = home
        self._database = database
        self.locks = WorkspaceLocks()

    def create(self, session_id: str, workspace: Path, *, onto: Onto | None = None) -> Worktree:
        """A worktree for `session_id`, holding exactly the present files of `workspace` (its top folder), or what
        `onto` makes of them; the present files are its base all the same.

        Raises `GitError` (code `git_failed`) when git cannot make it, `Refusal` `old_git`, and what `onto` raises;
        nothing stays behind then.
        """
        folder = self.folder(session_id)
        plain = snapshots.plain_git(workspace)
        if (refusal := snapshots.unfit(plain)) is not None:
            raise refusal
        intent = self._database.write(
            lambda tx: intents.begin(
                tx, INTENT, session_id, {"workspace": os.fsdecode(workspace), "folder": os.fsdecode(folder)}
            )
        )
        try:
            with self.locks.holding(str(workspace)):
                snapshot = snapshots.take(plain)
            tree = onto(plain, snapshot.tree) if onto is not None else snapshot.tree
            start = snapshot.head
            if tree != snapshot.tree or not (snapshot.clean and snapshot.head):
                start = snapshots.commit_of(plain.git, tree, *([snapshot.head] if snapshot.head else []))
            snapshots.keep(plain.git, session_id, "base", snapshot.tree)
            folder.parent.mkdir(parents=True, exist_ok=True)
            (plain.git.repository.common / "worktrees").mkdir(exist_ok=True)
            plain.git.output("worktree", "add", "--quiet", "--detach", str(folder), start, timeout=600)
            included = include(plain.git, folder)
            if included.names:
                (_admin_folder(plain, folder) / _INCLUDED).write_bytes(joined(list(included.names)))
        except (Refusal, OSError):
            self._clear_away(intent, workspace, folder)
            self.let_go(workspace, session_id)
            raise
        return Worktree(session_id, workspace, folder, snapshot.tree, start, snapshot.head, included)

    def worth_keeping(self, worktree: Worktree) -> None:
        """What is changed in it from now on is kept, whatever becomes of its session; see `left`."""

        def note(tx: Transaction) -> None:
            for intent in intents.of(tx, INTENT, worktree.session_id):
                intent.payload = {**intent.payload, "base": worktree.base}

        self._database.write(note)

    def left(self) -> list[Worktree]:
        """Worktrees of an earlier run that are worth keeping and still there, oldest first. Only what `capture` needs
        is known of them."""
        worktrees = []
        for intent in intents.unfinished(self._database, INTENT):
            base, workspace, folder = (intent.payload.get(name, "") for name in ("base", "workspace", "folder"))
            if base and Path(workspace).is_dir() and Path(folder).is_dir():
                worktrees.append(Worktree(intent.subject, Path(workspace), Path(folder), base, "", ""))
        return worktrees

    def known(self) -> list[tuple[str, bool]]:
        """The sessions that have a worktree, and whether it holds changes that are to be kept (`worth_keeping`)."""
        return [
            (intent.subject, bool(intent.payload.get("base"))) for intent in intents.unfinished(self._database, INTENT)
        ]

    def folder(self, session_id: str) -> Path:
        """Where the worktree of a session is or would be."""
        return self._home.worktrees / snapshots.checked_id(session_id)

    def capture(self, worktree: Worktree) -> snapshots.Snapshot:
        """The worktree's files as a tree in the operator's repository, kept under the session's refs. Ignored files
        that came along are no part of it, whatever the session made of `.gitignore`."""
        plain = snapshots.plain_git(worktree.workspace)
        admin = _admin_folder(plain, worktree.folder)
        brought = admin / _INCLUDED
        without = frozenset(split(brought.read_bytes())) if brought.is_file() else frozenset()
        result = snapshots.take(
            plain, folder=worktree.folder, index=admin / "index", base=worktree.base, without=without
        )
        snapshots.keep(plain.git, worktree.session_id, "result", result.tree)
        return result

    def remove(self, session_id: str) -> None:
        """Remove a session's worktree; its trees stay in the repository. Harmless when there is none.

        What resists (files of another user, say) is left to the next start: nobody's decision waits for tidying up.
        """
        for intent in intents.unfinished(self._database, INTENT):
            if intent.subject == session_id:
                self._remove_known(intent)

    def let_go(self, workspace: Path, session_id: str) -> None:
        """Let git collect a session's trees. Harmless when they, or the repository, are gone."""
        if workspace.is_dir():
            with contextlib.suppress(GitError):  # no repository any more
                snapshots.let_go(snapshots.plain_git(workspace).git, session_id)

    def recover(self, *, keep: Collection[str] = (), keep_refs: Collection[str] = ()) -> list[str]:
        """At start-up: remove the worktrees of an earlier run but for the sessions in `keep`, and let go of their
        trees but for those in `keep_refs`. Says what it did."""
        messages = []
        for intent in intents.unfinished(self._database, INTENT):
            if intent.subject not in keep:
                removed = self._remove_known(intent)
                if intent.subject not in keep_refs:
                    self.let_go(Path(intent.payload["workspace"]), intent.subject)
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
    """git's own notes on the worktree at `folder`. git names them after the folder; session ids are unique."""
    return plain.git.repository.common / "worktrees" / folder.name


def _points_to(admin: Path, folder: Path) -> bool:
    try:
        noted = Path(os.fsdecode((admin / "gitdir").read_bytes().removesuffix(b"\n")))
    except FileNotFoundError:
        return admin.is_dir()  # half-made: named after our session, noted nowhere
    return noted.name == ".git" and os.path.realpath(noted.parent) == os.path.realpath(folder)
