"""Copies the ignored files that `.worktreeinclude` of a repository names into a new worktree (SPEC 3.8).

The session may change what it copied; the operator's own files are only read, and no link is followed out of either
folder."""

from __future__ import annotations

import os
import posixpath
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from engine.frozen import frozen
from engine.git import Git
from engine.git.nul_lists import join_nul, split_nul
from engine.model import sanitise
from engine.plain_files import read_plain

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


class _NotCopied(Exception):
    """A file is not copied, for the reason in the text."""


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
    with _open_folder(top) as source, _open_folder(folder) as target:
        for name in _find_matching(git, patterns):
            if len(copied) == MAX_INCLUDE_FILES or size >= MAX_BYTES:
                left_out.append(f"the rest, beyond {MAX_INCLUDE_FILES:,} files or {MAX_BYTES // 1_000_000} MB")
                break
            try:
                size += _copy_file(source, target, name, MAX_BYTES - size)
                copied.append(name)
            except (OSError, _NotCopied) as error:
                reason = error.strerror if isinstance(error, OSError) else error
                left_out.append(f"{sanitise(os.fsdecode(name))} ({reason})")
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


def _copy_file(source: int, target: int, name: bytes, room: int) -> int:
    """Copy one file; both are descriptors of folders. Returns its size in bytes."""
    *folders, last = name.split(b"/")
    if b".git" in [part.lower() for part in (*folders, last)]:
        raise _NotCopied("belongs to git")
    with (
        _open_below(source, folders, make=False) as source_folder,
        _open_below(target, folders, make=True) as target_folder,
    ):
        status = os.lstat(last, dir_fd=source_folder)
        if stat.S_ISLNK(status.st_mode):
            link_target = os.readlink(last, dir_fd=source_folder)
            end = posixpath.normpath(posixpath.join(b"/".join(folders), link_target))
            if link_target.startswith(b"/") or end == b".." or end.startswith(b"../"):
                raise _NotCopied("a link that leads out of the repository")
            os.symlink(link_target, last, dir_fd=target_folder)
            return 0
        if not stat.S_ISREG(status.st_mode):
            raise _NotCopied("not a regular file")
        if status.st_size > room:
            raise _NotCopied(f"would pass {MAX_BYTES // 1_000_000} MB")
        flags = os.O_NOFOLLOW | os.O_CLOEXEC
        read = os.open(last, os.O_RDONLY | os.O_NONBLOCK | flags, dir_fd=source_folder)
        with os.fdopen(read, "rb") as content:
            if not stat.S_ISREG(os.fstat(read).st_mode):
                raise _NotCopied("not a regular file")
            mode = stat.S_IMODE(status.st_mode) & 0o777
            written = os.open(last, os.O_WRONLY | os.O_CREAT | os.O_EXCL | flags, mode | 0o200, dir_fd=target_folder)
            with os.fdopen(written, "wb") as copy:
                shutil.copyfileobj(content, copy, 1 << 20)
        return status.st_size


@contextmanager
def _open_folder(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _open_below(top: int, folders: list[bytes], *, make: bool) -> Iterator[int]:
    """Open a folder below another without following links; `make` missing folders."""
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


def _summarise(copied: list[bytes], left_out: list[str], size: int) -> str:
    if not (copied or left_out):
        return f"{INCLUDE_FILE} matches no ignored files"
    names = ", ".join(sanitise(os.fsdecode(name)) for name in copied[:_MAX_NAMED])
    more = f" and {len(copied) - _MAX_NAMED} more" if len(copied) > _MAX_NAMED else ""
    what = f"{names}{more} ({size / 1_000_000:.1f} MB)" if copied else "nothing"
    return f"{INCLUDE_FILE}: copied {what}" + (f"; left out: {', '.join(left_out[:_MAX_NAMED])}" if left_out else "")
