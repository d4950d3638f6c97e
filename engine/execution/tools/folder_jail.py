"""Reads and writes files of one folder and no others, for the file tools of agents (SPEC 3.8).

It must be safe for any path, and while other programs change the folder. So a path is resolved here, name by name: `..`
and links may lead anywhere within the folder and nowhere else. Then `Beneath` opens the resulting file and follows no
link, even if the folder has changed since. A file is written by putting a new one beside it and renaming that, so that
a hard link elsewhere does not change. A file that has hard links is not read, because it may belong to another folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from pathlib import Path

from engine.beneath import REPLACED, Beneath
from engine.files import TEMPORARY_PREFIX
from engine.frozen import frozen
from engine.git.repository import is_git_name
from engine.model import Refusal
from engine.text import sanitise

MAX_LINKS = 40
"""Maximum number of links on the way of a path."""

MAX_FILE_BYTES = 10 * 1024 * 1024
"""Maximum number of bytes of a file that is read or written."""


class _MissingFolders(Enum):
    """How to treat missing folders on the way of a path."""

    REFUSE = auto()
    CREATE = auto()
    ASSUME = auto()
    """Continue as if they existed."""


@frozen
class Content:
    """The content of a file when it was read."""

    data: bytes
    stamp: tuple[int, ...]
    """A value that is different after the file was changed."""


@frozen
class ResolvedPath:
    """The file that a path leads to."""

    path: str
    """The path relative to the folder of the jail; "" for that folder itself."""
    status: os.stat_result | None
    """None if no file exists there."""

    @property
    def shown_name(self) -> str:
        """The path as results and errors show it."""
        return self.path or "."


@frozen
class _Place:
    """A place on the way of a path. It is no link."""

    path: str
    status: os.stat_result | None
    names_after: tuple[str, ...] = ()
    """The names in the path after it."""


class Jail:
    """File access confined to `folder`. A path may be relative to it, or absolute and below it.

    Every method raises `Refusal`: `bad_path`, `outside`, `git_folder`, `not_there`, `not_a_file`, `hard_link`,
    `too_large`, `changed` (somebody else changed the file meanwhile), `no_access`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._roots = tuple(dict.fromkeys((str(folder), os.path.realpath(folder))))
        status = folder.stat()
        self._identity = (status.st_dev, status.st_ino)

    def resolve(self, path: str) -> str:
        """The path relative to the folder, with its links resolved. Neither the file nor its folders need exist."""
        with self._open(path) as files:
            return self._walk(files, path, _MissingFolders.ASSUME).shown_name

    def read(self, path: str) -> Content:
        """Read a whole regular file."""
        with self._open(path) as files:
            resolved = self._walk(files, path, _MissingFolders.REFUSE)
            _check_regular_file(resolved)
            descriptor = files.open_file(resolved.path)
            try:
                return _read_content(descriptor, resolved.path)
            finally:
                os.close(descriptor)

    def list_names(self, path: str, *, limit: int) -> tuple[list[str], int] | None:
        """The first `limit` names in a folder, sorted, and the number of all names. None if `path` is not a folder. The
        names of folders end with a `/`."""
        with self._open(path) as files:
            resolved = self._walk(files, path, _MissingFolders.REFUSE)
            if resolved.status is None or not stat.S_ISDIR(resolved.status.st_mode):
                return None
            with files.within(resolved.path) as folder:
                names = [name for name in folder.names("") if not is_git_name(name)]
                entries = sorted(f"{name}/" if folder.is_folder(name) else name for name in names)
        return entries[:limit], len(entries)

    def write(self, path: str, data: bytes, *, only_if: Content | None = None) -> bool:
        """Write a file, either completely or not at all. Returns whether it is new.

        An existing file keeps its mode. Missing folders are created, unless `only_if` is given: then the file must
        exist and must not have changed since it had that content.
        """
        if len(data) > MAX_FILE_BYTES:
            raise _make_too_large_refusal(path, len(data))
        with self._open(path) as files:
            resolved = self._walk(files, path, _MissingFolders.CREATE if only_if is None else _MissingFolders.REFUSE)
            if resolved.status is not None:
                _check_regular_file(resolved)
            with files.within(resolved.path.rpartition("/")[0]) as folder:
                _replace_file(folder, resolved, data, only_if)
            return resolved.status is None

    def _walk(self, files: Beneath, path: str, missing: _MissingFolders) -> ResolvedPath:
        """Resolve `path`. All its folders must exist, or are treated as `missing` says."""
        for place in self._follow_path(files, path):
            if not place.names_after:
                break
            goes_down = ".." not in place.names_after
            if place.status is None and goes_down and missing is _MissingFolders.ASSUME:
                return _assume_path(place)
            _enter_folder(files, place, create=goes_down and missing is _MissingFolders.CREATE)
        return ResolvedPath(place.path, place.status)

    def _follow_path(self, files: Beneath, path: str) -> Iterator[_Place]:
        """Follow `path` and its links name by name. Yields each place on the way, and at last the place to which it
        leads. Raises `Refusal` `bad_path`, `outside`, `git_folder`."""
        names: list[str] = []
        pending = deque(_parse_path(path, self._roots))
        links = 0
        while pending:
            name = pending.popleft()
            if name == "..":
                if not names:
                    raise _make_outside_refusal(path)
                names.pop()
                continue
            _check_file_name(name)
            present_path = "/".join([*names, name])
            status = files.lstat(present_path)
            if status is None or not stat.S_ISLNK(status.st_mode):
                yield _Place(present_path, status, tuple(pending))
                names.append(name)
                continue
            target = os.fsdecode(files.readlink(present_path))
            names = [] if target.startswith("/") else names
            pending.extendleft(reversed(self._split_target(target, path)))
            links += 1
            if links > MAX_LINKS:
                raise Refusal("bad_path", f"{shorten_path(path)} leads through too many links", "use another path")
        present_path = "/".join(names)
        yield _Place(present_path, files.lstat(present_path))

    def _split_target(self, target: str, path: str) -> list[str]:
        """The names in the target of a link on the way of `path`. For an absolute target these are the names below the
        folder of the jail. Raises `Refusal` `outside`."""
        names = _split_path(target)
        return _select_names_below(names, self._roots, path) if target.startswith("/") else names

    @contextmanager
    def _open(self, path: str) -> Iterator[Beneath]:
        """Open the folder. Raises `Refusal` if it is no longer the folder for which the jail was made. In the block,
        errors of the file system become `Refusal`s."""
        try:
            with Beneath.open(self._folder) as files:
                status = files.lstat("")
                if status is None or (status.st_dev, status.st_ino) != self._identity:
                    raise _make_changed_refusal(".")
                yield files
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ESTALE, *REPLACED):
                raise _make_changed_refusal(path) from error
            raise Refusal(
                "no_access",
                f"{shorten_path(path)}: {error.strerror or error}",
                "use another file, or see with exec what it is",
            ) from error


# -- files and folders


def _assume_path(place: _Place) -> ResolvedPath:
    """The path to which `place`, which does not exist, and the names that follow it lead."""
    for name in place.names_after:
        _check_file_name(name)
    return ResolvedPath("/".join([place.path, *place.names_after]), None)


def _enter_folder(files: Beneath, place: _Place, *, create: bool) -> None:
    """Check that a folder on the way exists, or `create` it. Raises `Refusal` `not_there`."""
    if place.status is None and not create:
        raise _make_not_there_refusal(place.path)
    if place.status is None:
        with contextlib.suppress(FileExistsError):
            files.mkdir(place.path)
    elif not stat.S_ISDIR(place.status.st_mode):
        raise Refusal(
            "not_there", f"{shorten_path(place.path)} is not a folder", "read the folder above to see what is there"
        )


def _read_content(descriptor: int, path: str) -> Content:
    """Read an open file. Raises `Refusal` `hard_link`, `too_large`."""
    status = os.fstat(descriptor)
    if status.st_nlink > 1:
        raise Refusal(
            "hard_link",
            f"{shorten_path(path)} has another name elsewhere, perhaps outside the project",
            "look at it with exec, or make a copy of its own there first",
        )
    if status.st_size > MAX_FILE_BYTES:
        raise _make_too_large_refusal(path, status.st_size)
    with os.fdopen(os.dup(descriptor), "rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)  # one byte more shows that the file grew meanwhile
    if len(data) > MAX_FILE_BYTES:
        raise _make_too_large_refusal(path, len(data))
    return Content(data, _make_file_stamp(status))


def _replace_file(folder: Beneath, resolved: ResolvedPath, data: bytes, only_if: Content | None) -> None:
    """Write a new file beside the old one in `folder`, and rename it to the name of the old one."""
    name = resolved.path.rpartition("/")[2]
    temporary = f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
    try:
        folder.write(temporary, data, mode=None if resolved.status is None else resolved.status.st_mode)
        if only_if is not None:
            present = folder.lstat(name)
            if present is None or _make_file_stamp(present) != only_if.stamp:
                raise _make_changed_refusal(resolved.path)
        folder.replace(temporary, name)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            folder.unlink(temporary)
        raise


def _check_regular_file(resolved: ResolvedPath) -> None:
    """Raises `Refusal` `not_there` or `not_a_file` if the path is no regular file."""
    if resolved.status is None:
        raise _make_not_there_refusal(resolved.shown_name)
    mode = resolved.status.st_mode
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "no ordinary file"
        raise Refusal("not_a_file", f"{shorten_path(resolved.shown_name)} is {kind}", "name a file")


def _make_file_stamp(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _make_not_there_refusal(path: str) -> Refusal:
    return Refusal("not_there", f"there is no {shorten_path(path)}", "read the folder to see what is there")


def _make_changed_refusal(path: str) -> Refusal:
    return Refusal("changed", f"{shorten_path(path)} was changed meanwhile by somebody else", "read it again")


def _make_too_large_refusal(path: str, size: int) -> Refusal:
    message = f"{shorten_path(path)} has {size:,} bytes, more than {MAX_FILE_BYTES:,}"
    return Refusal("too_large", message, "look at parts of it with exec")


# -- the texts of paths

MAX_PATH_BYTES = 4_096
"""Maximum number of bytes of a path. git cannot store a longer one, and with it no file of the session."""

MAX_PATH_NAMES = 256
"""Maximum number of names in a path."""


def shorten_path(path: str) -> str:
    """A path for messages: sanitised, and at most 200 characters long."""
    text = sanitise(path)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _parse_path(path: str, roots: Sequence[str]) -> list[str]:
    """The names in `path`, relative to the folder; `..` is kept. An absolute path must begin with one of `roots`, which
    are the paths of the folder. Raises `Refusal` `bad_path`, `outside`."""
    if not path.strip():
        raise Refusal("bad_path", "the path is empty", "name a file of the project, for example src/main.py")
    if sanitise(path) != path or "\n" in path:
        raise Refusal("bad_path", "the path has control characters in it", "write it as plain text")
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise Refusal("bad_path", f"the path is longer than {MAX_PATH_BYTES} bytes", "name a file of the project")
    if path == "~" or path.startswith("~/"):
        raise _make_outside_refusal(path)
    parts = _split_path(path)
    if len(parts) > MAX_PATH_NAMES:
        raise Refusal("bad_path", f"the path is more than {MAX_PATH_NAMES} folders deep", "name a file of the project")
    return _select_names_below(parts, roots, path) if path.startswith("/") else parts


def _split_path(path: str) -> list[str]:
    """The names in a path, without empty ones and `.`; `..` is kept."""
    return [name for name in path.split("/") if name not in ("", ".")]


def _select_names_below(parts: list[str], roots: Sequence[str], path: str) -> list[str]:
    """The names in an absolute path that come after one of `roots`. Raises `Refusal` `outside`."""
    for root in roots:
        names = _split_path(root)
        if parts[: len(names)] == names:
            return parts[len(names) :]
    raise _make_outside_refusal(path)


def _make_outside_refusal(path: str) -> Refusal:
    """The refusal of a path that leads out of the folder."""
    return Refusal(
        "outside",
        f"{shorten_path(path)} is not in the project",
        "only files of the project can be used; write the path relative to its top folder",
    )


def _check_file_name(name: str) -> None:
    """Raises `Refusal` `git_folder` for a name that some file system takes for `.git`."""
    if is_git_name(name):
        raise Refusal(
            "git_folder", ".git is not for the file tools: what is in it runs on the operator's machine", "use exec git"
        )
