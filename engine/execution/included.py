"""The ignored files that a new worktree needs: `.worktreeinclude`, as other tools know it.

The file lies at the top of the repository and has the syntax of `.gitignore`. A file is copied that one of its patterns
matches and that git ignores: what git tracks or may track comes along anyway. Nothing is followed out of the
repository: folders are opened one after the other without following links, a link is copied as a link and only when it
leads to a place inside.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from engine.git import Git
from engine.git.tree import joined, split
from engine.model import sanitise
from engine.plain_files import read_plain

FILE = ".worktreeinclude"

LARGEST_LIST = 64 * 1024
"""Bytes of the file of patterns."""
MOST_FILES = 20_000
MOST_BYTES = 500_000_000
"""So many files, and so many bytes of them together, are copied into one worktree."""
_NAMED = 5


@dataclass(frozen=True, slots=True)
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
    left: list[str] = []
    size = 0
    with _opened(top) as source, _opened(folder) as target:
        for name in _matching(git, patterns):
            if len(copied) == MOST_FILES or size >= MOST_BYTES:
                left.append(f"the rest, beyond {MOST_FILES:,} files or {MOST_BYTES // 1_000_000} MB")
                break
            try:
                size += _copy(source, target, name, MOST_BYTES - size)
                copied.append(name)
            except (OSError, _LeftOut) as error:
                why = error.strerror if isinstance(error, OSError) else error
                left.append(f"{sanitise(os.fsdecode(name))} ({why})")
    return Included(tuple(copied), _told(copied, left, size))


def _matching(git: Git, patterns: bytes) -> list[bytes]:
    """The ignored files that the patterns match."""
    with tempfile.TemporaryDirectory(prefix="clawpy-include-") as place:
        listed = Path(place) / "patterns"
        listed.write_bytes(patterns)
        found = split(git.output("ls-files", "--others", "--ignored", f"--exclude-from={listed}", "-z"))
    # A folder with a slash at its end is a repository of its own.
    files = [name for name in found if not name.endswith(b"/")]
    if not files:
        return []
    asked = git.run("check-ignore", "--stdin", "-z", stdin=joined(files), allowed=(0, 1))
    ignored = set(split(asked.stdout))
    return [name for name in files if name in ignored and name != FILE.encode()]


def _copy(source: int, target: int, name: bytes, room: int) -> int:
    """Copy one file; both are descriptors of folders. Returns its size in bytes."""
    *folders, last = name.split(b"/")
    if b".git" in [part.lower() for part in (*folders, last)]:
        raise _LeftOut("belongs to git")
    with _below(source, folders, make=False) as here, _below(target, folders, make=True) as there:
        found = os.lstat(last, dir_fd=here)
        if stat.S_ISLNK(found.st_mode):
            leads = os.readlink(last, dir_fd=here)
            end = posixpath.normpath(posixpath.join(b"/".join(folders), leads))
            if leads.startswith(b"/") or end == b".." or end.startswith(b"../"):
                raise _LeftOut("a link that leads out of the repository")
            os.symlink(leads, last, dir_fd=there)
            return 0
        if not stat.S_ISREG(found.st_mode):
            raise _LeftOut("not a regular file")
        if found.st_size > room:
            raise _LeftOut(f"would pass {MOST_BYTES // 1_000_000} MB")
        flags = os.O_NOFOLLOW | os.O_CLOEXEC
        read = os.open(last, os.O_RDONLY | os.O_NONBLOCK | flags, dir_fd=here)
        with os.fdopen(read, "rb") as content:
            if not stat.S_ISREG(os.fstat(read).st_mode):
                raise _LeftOut("not a regular file")
            mode = stat.S_IMODE(found.st_mode) & 0o777
            written = os.open(last, os.O_WRONLY | os.O_CREAT | os.O_EXCL | flags, mode | 0o200, dir_fd=there)
            with os.fdopen(written, "wb") as copy:
                shutil.copyfileobj(content, copy, 1 << 20)
        return found.st_size


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
        for one in opened:
            os.close(one)


def _told(copied: list[bytes], left: list[str], size: int) -> str:
    if not (copied or left):
        return f"{FILE} matches no ignored files"
    names = ", ".join(sanitise(os.fsdecode(name)) for name in copied[:_NAMED])
    more = f" and {len(copied) - _NAMED} more" if len(copied) > _NAMED else ""
    said = f"{FILE}: copied {names}{more} ({size / 1_000_000:.1f} MB)" if copied else f"{FILE}: copied nothing"
    return said + (f"; left out: {', '.join(left[:_NAMED])}" if left else "")
