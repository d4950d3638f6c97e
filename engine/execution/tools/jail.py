"""The files of one folder and nothing else, whatever a path says and whoever changes the tree meanwhile (SPEC 3.8).

A path is walked name by name from the folder's own descriptor; each step opens a real folder below the one before
(`O_NOFOLLOW`), and a link is not followed by the kernel but read and walked like the rest, so that `..` and links may
lead anywhere within the folder and nowhere else. What was checked is what is used: the file's descriptor is looked at,
not its name. Writing puts a new file beside the old and renames it, which follows no link and changes no file that has
another name elsewhere; reading such a file (a hard link) is refused, for nobody can tell whose it is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from engine.execution.tools.paths import below, check_name, is_git, outside, parts_of, shown, split
from engine.storage.files import TEMPORARY
from engine.values import Refusal

MOST_LINKS = 40
"""Links along one path, and changes of the tree while it is walked; more is refused."""

LARGEST_FILE = 10 * 1024 * 1024
"""Bytes of a file that is read or written whole."""

_REFUSED, _MADE, _IMAGINED = "refused", "made", "imagined"

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK a pipe would be waited for, without O_NOCTTY a terminal would become ours.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Content:
    """A file as it was read; `stamp` says whether it is still the same."""

    data: bytes
    stamp: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a path leads: a name in an open folder, and what was there when it was looked at (None: nothing).

    `name` is "." for the folder itself; `path` is relative to the jail.
    """

    folder: int
    name: str
    path: str
    found: os.stat_result | None


class Jail:
    """File access confined to `folder`. Every path may be relative to it, or absolute below it.

    Every method raises `Refusal`: `bad_path`, `outside`, `git_folder`, `not_there`, `not_a_file`, `hard_link`,
    `too_large`, `changed` (by somebody else, meanwhile), `no_access`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._roots = tuple(dict.fromkeys((str(folder), os.path.realpath(folder))))
        found = folder.stat()
        self._identity = (found.st_dev, found.st_ino)

    def relative(self, path: str) -> str:
        """Where `path` leads, relative to the folder, links resolved; it need not exist, nor its folders."""
        with self._spot(path, missing=_IMAGINED) as spot:
            return spot.path

    def read(self, path: str, *, most: int = LARGEST_FILE) -> Content:
        """A regular file, whole."""
        with self._spot(path) as spot:
            _check_kind(spot)
            descriptor = _open(spot)
            try:
                found = os.fstat(descriptor)
                _check_kind(Spot(spot.folder, spot.name, spot.path, found))
                if found.st_nlink > 1:
                    raise Refusal(
                        "hard_link",
                        f"{shown(spot.path)} has another name elsewhere, perhaps outside the project",
                        "look at it with exec, or make a copy of its own there first",
                    )
                if found.st_size > most:
                    raise _too_large(spot.path, found.st_size, most)
                data = _all(descriptor, most)
            finally:
                os.close(descriptor)
            if len(data) > most:
                raise _too_large(spot.path, len(data), most)
            return Content(data, _stamp(found))

    def names(self, path: str, *, most: int) -> tuple[list[str], int] | None:
        """What is in a folder, sorted, folders with a `/` behind them, at most `most`, and how many there are; None
        when `path` is no folder."""
        with self._spot(path) as spot:
            if spot.found is None or not stat.S_ISDIR(spot.found.st_mode):
                return None
            with _explained(spot.path):
                descriptor = os.open(spot.name, _FOLDER, dir_fd=spot.folder)
                try:
                    with os.scandir(descriptor) as entries:
                        found = sorted(
                            entry.name + ("/" if entry.is_dir(follow_symlinks=False) else "")
                            for entry in entries
                            if not is_git(entry.name)
                        )
                finally:
                    os.close(descriptor)
        return found[:most], len(found)

    def write(self, path: str, data: bytes, *, only_if: Content | None = None) -> bool:
        """Put `data` there, whole or not at all, with the old file's mode; folders on the way are made. True when the
        file is new. `only_if`: refuse when the file is not as it was then, and make no folder, for it had one."""
        if len(data) > LARGEST_FILE:
            raise _too_large(path, len(data), LARGEST_FILE)
        with self._spot(path, missing=_MADE if only_if is None else _REFUSED) as spot:
            if spot.found is not None:
                _check_kind(spot)
            temporary = f"{TEMPORARY}{secrets.token_hex(8)}"
            with _explained(spot.path):
                descriptor = os.open(temporary, _NEW, 0o666, dir_fd=spot.folder)
                try:
                    with os.fdopen(descriptor, "wb") as file:
                        file.write(data)
                        if spot.found is not None:
                            os.fchmod(file.fileno(), stat.S_IMODE(spot.found.st_mode) & 0o777)
                    if only_if is not None and _stamp_at(spot) != only_if.stamp:
                        raise _changed(spot.path)
                    os.replace(temporary, spot.name, src_dir_fd=spot.folder, dst_dir_fd=spot.folder)
                except BaseException:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(temporary, dir_fd=spot.folder)
                    raise
            return spot.found is None

    # Walking

    @contextmanager
    def _spot(self, path: str, *, missing: str = _REFUSED) -> Iterator[Spot]:
        """Where `path` leads, its folder held open meanwhile; `missing` says what becomes of folders on the way that
        are not there."""
        held = [self._open_root()]
        try:
            with _explained(path):
                spot = self._walk(path, held, missing)
            yield spot
        finally:
            for descriptor in held:
                os.close(descriptor)

    def _walk(self, path: str, held: list[int], missing: str) -> Spot:
        """`held` are the open folders from the jail's own down to where the walk is; it grows and shrinks."""
        names: list[str] = []
        pending = deque(parts_of(path, self._roots))
        turns = 0
        while pending:
            name = pending.popleft()
            if name == "..":
                if not names:
                    raise outside(path)
                os.close(held.pop())
                names.pop()
                continue
            check_name(name)
            here = "/".join([*names, name])
            found = _look(held[-1], name)
            if found is not None and stat.S_ISLNK(found.st_mode):
                target = _target(held[-1], name)
                if target.startswith("/"):
                    parts = below(split(target), self._roots, path)
                    names.clear()
                    while len(held) > 1:
                        os.close(held.pop())
                else:
                    parts = split(target)
                pending.extendleft(reversed(parts))
                turns += 1
                if turns > MOST_LINKS:
                    raise Refusal("bad_path", f"{shown(path)} leads through too many links", "use another path")
                continue
            if not pending:
                return Spot(held[-1], name, here, found)
            if found is None and (missing == _REFUSED or ".." in pending):
                raise _not_there(here)
            if found is None and missing == _IMAGINED:
                for following in pending:
                    check_name(following)
                return Spot(held[-1], name, "/".join([here, *pending]), None)
            if found is None:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=held[-1])
            elif not stat.S_ISDIR(found.st_mode):
                raise Refusal("not_there", f"{shown(here)} is no folder", "read the folder above to see what is there")
            try:
                held.append(os.open(name, _FOLDER, dir_fd=held[-1]))
                names.append(name)
            except OSError as error:
                if error.errno not in (errno.ELOOP, errno.ENOTDIR, errno.ENOENT):
                    raise
                pending.appendleft(name)  # it was replaced while we looked: look again
                turns += 1
                if turns > MOST_LINKS:
                    raise _changed(path) from error
        return Spot(held[-1], ".", "/".join(names) or ".", os.fstat(held[-1]))

    def _open_root(self) -> int:
        with _explained("."):
            descriptor = os.open(self._folder, _FOLDER)
        found = os.fstat(descriptor)
        if (found.st_dev, found.st_ino) != self._identity:
            os.close(descriptor)
            raise _changed(".")
        return descriptor


def _look(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _target(folder: int, name: str) -> str:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            raise _changed(name) from error
        raise


def _open(spot: Spot) -> int:
    with _explained(spot.path):
        return os.open(spot.name, _READ, dir_fd=spot.folder)


def _all(descriptor: int, most: int) -> bytes:
    """Up to one byte more than `most`, so that a file that grows meanwhile is noticed."""
    pieces = []
    left = most + 1
    while left > 0 and (piece := os.read(descriptor, min(left, 1 << 20))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _check_kind(spot: Spot) -> None:
    if spot.found is None:
        raise _not_there(spot.path)
    mode = spot.found.st_mode
    if stat.S_ISREG(mode):
        return
    kind = "a folder" if stat.S_ISDIR(mode) else "a link" if stat.S_ISLNK(mode) else "no ordinary file"
    raise Refusal("not_a_file", f"{shown(spot.path)} is {kind}", "name a file")


def _stamp(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _stamp_at(spot: Spot) -> tuple[int, ...] | None:
    found = _look(spot.folder, spot.name)
    return None if found is None else _stamp(found)


def _not_there(path: str) -> Refusal:
    return Refusal("not_there", f"there is no {shown(path)}", "read the folder to see what is there")


def _changed(path: str) -> Refusal:
    return Refusal("changed", f"{shown(path)} was changed meanwhile by somebody else", "read it again")


def _too_large(path: str, size: int, most: int) -> Refusal:
    return Refusal(
        "too_large", f"{shown(path)} has {size:,} bytes, more than {most:,}", "look at parts of it with exec"
    )


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """Faults of the file system as `Refusal`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOENT, errno.ESTALE):
            raise _changed(path) from error
        raise Refusal(
            "no_access", f"{shown(path)}: {error.strerror or error}", "use another file, or see with exec what it is"
        ) from error
