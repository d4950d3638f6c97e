"""Copies the ignored files that a repository's `.worktreeinclude` names into the worktree of a session (SPEC 3.8)."""

from __future__ import annotations

import errno
import os
import posixpath
import stat
import tempfile
from pathlib import Path

from engine.files import read_plain
from engine.frozen import frozen
from engine.git import Git
from engine.git.command import join_nul, split_nul
from engine.model import sanitise
from engine.storage.beneath import Beneath, parents

INCLUDE_FILE = ".worktreeinclude"

MAX_PATTERN_BYTES = 64 * 1024
"""Maximum size of the file of patterns."""

MAX_INCLUDE_FILES = 20_000

MAX_BYTES = 500_000_000
"""Maximum size of all files together that are copied into one worktree."""

_MAX_NAMED = 5


@frozen
class IncludedFiles:
    """The files that were copied."""

    names: tuple[bytes, ...] = ()
    summary: str = ""
    """A line for the transcript, "" without a `.worktreeinclude`."""


NOTHING_INCLUDED = IncludedFiles()


def copy_included_files(git: Git, folder: Path) -> IncludedFiles:
    """Copy the files that `.worktreeinclude` in the operator's tree names into the worktree `folder`. The summary names
    the files that cannot be copied. Raises only `GitError`."""
    top = git.folder
    try:
        patterns = read_plain(top / INCLUDE_FILE, MAX_PATTERN_BYTES, follow=False)
    except FileNotFoundError:
        return NOTHING_INCLUDED
    except OSError as error:
        return IncludedFiles(summary=f"{INCLUDE_FILE} was not used: it cannot be read: {error.strerror}")
    except ValueError:
        problem = f"it is not a regular file of at most {MAX_PATTERN_BYTES // 1024} KB"
        return IncludedFiles(summary=f"{INCLUDE_FILE} was not used: {problem}")
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
    """The ignored files that the `patterns` of `.worktreeinclude` match."""
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
    """Copy one file of at most `room` bytes. No link is followed out of either folder. Returns its size in bytes.
    Raises OSError."""
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
