"""Access to files beneath one folder that is safe against links and folders exchanged meanwhile (SPEC 3.8, 3.9).

A path is never checked first and used later. Each call resolves it again from the descriptor of the folder, through
real folders of the same mount only, and acts on the last name within the descriptor of its parent. Linux does this in
one call (`openat2`). Elsewhere each folder is opened from the one before, and another file system counts as another
mount. No call waits for a pipe or a device.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

_READ_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_PATH needs no permission to list the folder, as a plain path would not.
_PASS_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK a pipe would be waited for, without O_NOCTTY a terminal would become ours.
_READ_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_NO_FOLDER = (errno.ELOOP, errno.ENOTDIR, errno.EXDEV)
"""Errors of opening a link, a file, and a folder of another mount."""

REPLACED = (*_NO_FOLDER, errno.EINVAL, errno.ENXIO)
"""Errors of reading a file that was replaced by something else since `lstat`."""

_OPENAT2 = 437
"""The number of the system call on Linux."""

_RESOLVE = 0x01 | 0x02 | 0x04 | 0x08  # NO_XDEV, NO_MAGICLINKS, NO_SYMLINKS, BENEATH


class Beneath:
    """The files beneath one folder. Paths are relative to it, "" is the folder itself. Used as a context manager.

    Methods raise OSError with the path as `filename`: ELOOP or ENOTDIR if a parent is no real folder; EXDEV if the path
    is absolute, contains `..` or leads into another mount; and the other errors of the system.
    """

    def __init__(self, descriptor: int) -> None:
        """Takes over the descriptor of a folder; `open` is the usual way."""
        self._top = descriptor

    @classmethod
    def open(cls, folder: Path) -> Beneath:
        """The files beneath `folder`; links on the way to it are followed."""
        return cls(os.open(folder, _PASS_FOLDER & ~os.O_NOFOLLOW))

    def __enter__(self) -> Beneath:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._top)

    def within(self, path: str) -> Beneath:
        """The files beneath one of its folders, which stays the same even if it is moved."""
        with _name_path_in_errors(path):
            return Beneath(_open_folder(self._top, path, _PASS_FOLDER))

    # -- looking

    def lstat(self, path: str) -> os.stat_result | None:
        """The status of `path` without following a link; None if nothing is there, or if a parent is no real folder."""
        if not path:
            return os.fstat(self._top)
        try:
            with self._at(path) as (folder, name):
                return os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            if error.errno in (errno.ENOENT, *_NO_FOLDER):
                return None
            raise

    def is_folder(self, path: str) -> bool:
        """Whether `path` is a real folder."""
        return self._find_folder_problem(path) == 0

    def find_obstruction(self, path: str) -> str:
        """The topmost parent of `path` that exists and is no real folder, "" for none."""
        for parent in parents(path):
            if problem := self._find_folder_problem(parent):
                return "" if problem == errno.ENOENT else parent
        return ""

    def _find_folder_problem(self, path: str) -> int:
        """The error number that says why `path` is no real folder: ENOENT or one of `_NO_FOLDER`; 0 if it is one."""
        try:
            os.close(_open_folder(self._top, path, _PASS_FOLDER))
        except OSError as error:
            if error.errno in (errno.ENOENT, *_NO_FOLDER):
                return error.errno
            raise
        return 0

    def names(self, path: str) -> list[str]:
        """The names in a folder, in no order."""
        with self._folder(path) as descriptor:
            return os.listdir(descriptor)  # noqa: PTH208 - of a descriptor

    def walk(self, path: str) -> Iterator[tuple[str, bool]]:
        """(path, whether it is a folder) of everything below a folder. A folder comes before its contents."""
        folders = [path]
        while folders:
            folder = folders.pop()
            for name in self.names(folder):
                inner = f"{folder}/{name}" if folder else name
                status = self.lstat(inner)
                if status is not None:
                    is_folder = stat.S_ISDIR(status.st_mode)
                    yield inner, is_folder
                    if is_folder and self.is_folder(inner):
                        folders.append(inner)

    def readlink(self, path: str) -> bytes:
        """The target of a symbolic link, byte for byte."""
        with self._at(path) as (folder, name):
            return os.readlink(os.fsencode(name), dir_fd=folder)

    def open_file(self, path: str) -> int:
        """A descriptor to read a regular file, which the caller closes. Anything else raises EINVAL, ELOOP or ENXIO."""
        with self._at(path) as (folder, name):
            descriptor = os.open(name, _READ_FILE, dir_fd=folder)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise OSError(errno.EINVAL, "is not a regular file")
            return descriptor

    # -- changing

    def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Create a file that does not exist yet. `mode` are its permission bits; without them the umask decides. The
        bits setuid and setgid are never set."""
        with self._at(path) as (folder, name):
            descriptor = os.open(name, _NEW_FILE, 0o666 if mode is None else 0o600, dir_fd=folder)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                if mode is not None:
                    os.fchmod(file.fileno(), mode & 0o777)

    def symlink(self, target: str, path: str) -> None:
        """Create a symbolic link where nothing is yet."""
        with self._at(path) as (folder, name):
            os.symlink(target, name, dir_fd=folder)

    def link(self, path: str, new: str) -> None:
        """Give a file a second name, where nothing is yet. An error names `new`."""
        with self._at(new) as (folder, new_name), self._at(path) as (source, name):
            os.link(name, new_name, src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False)

    def replace(self, path: str, new: str) -> None:
        """Rename a file, replacing what has the new name. An error names `new`, because `path` is a temporary file."""
        with self._at(new) as (folder, new_name), self._at(path) as (source, name):
            os.replace(name, new_name, src_dir_fd=source, dst_dir_fd=folder)

    def unlink(self, path: str) -> None:
        """Remove a file or a link."""
        with self._at(path) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def mkdir(self, path: str) -> None:
        """Create a folder with the permissions of the umask."""
        with self._at(path) as (folder, name):
            os.mkdir(name, dir_fd=folder)

    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""
        with self._at(path) as (folder, name):
            os.rmdir(name, dir_fd=folder)

    def chmod_folder(self, path: str, mode: int) -> None:
        """Set the permission bits of a real folder; its setgid and sticky bits stay."""
        with self._folder(path) as descriptor:
            os.fchmod(descriptor, os.fstat(descriptor).st_mode & 0o7000 | mode & 0o777)

    def sync_file(self, path: str) -> None:
        """Wait until a file is on disk."""
        descriptor = self.open_file(path)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_folder(self, path: str) -> None:
        """Wait until renames and removals in a folder are on disk."""
        with self._folder(path) as descriptor:
            os.fsync(descriptor)

    @contextmanager
    def _at(self, path: str) -> Iterator[tuple[int, str]]:
        """The descriptor of the folder that `path` is in, and its last name."""
        above, _, name = path.rpartition("/")
        with _name_path_in_errors(path):
            if name in ("", ".", "..") or path.startswith("/") or "\0" in name:
                raise _make_outside_error()
            with self._folder(above, _PASS_FOLDER) as folder:
                yield folder, name

    @contextmanager
    def _folder(self, path: str, flags: int = _READ_FOLDER) -> Iterator[int]:
        """The descriptor of a folder."""
        with _name_path_in_errors(path):
            descriptor = _open_folder(self._top, path, flags)
            try:
                yield descriptor
            finally:
                os.close(descriptor)


def parents(path: str) -> list[str]:
    """The folders above a relative path, the topmost first; the root itself is not among them."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


@contextmanager
def _name_path_in_errors(path: str) -> Iterator[None]:
    """Put the whole path into errors, instead of the part that was given to the system call."""
    try:
        yield
    except OSError as error:
        error.filename = path
        raise


def _make_outside_error() -> OSError:
    return OSError(errno.EXDEV, "leads outside the folder")


def _open_folder(top: int, path: str, flags: int) -> int:
    """A descriptor of a folder beneath `top`, with these flags."""
    if not path:
        return os.open(".", flags, dir_fd=top)
    names = path.split("/")
    if "\0" in path or any(name in ("", ".", "..") for name in names):
        raise _make_outside_error()
    open_beneath = _load_openat2()
    return open_beneath(top, path, flags) if open_beneath is not None else _step_by_step(top, names, flags)


def _step_by_step(top: int, names: list[str], flags: int) -> int:
    """Open a folder by opening each folder of its path from the one before. Raises EXDEV at another file system."""
    device, folder = os.fstat(top).st_dev, top
    try:
        for name in names[:-1]:
            inner = _open_on_device(folder, name, _PASS_FOLDER, device)
            if folder != top:
                os.close(folder)
            folder = inner
        return _open_on_device(folder, names[-1], flags, device)
    finally:
        if folder != top:
            os.close(folder)


def _open_on_device(folder: int, name: str, flags: int, device: int) -> int:
    """Open a folder in `folder`. Raises EXDEV if it is on another device."""
    descriptor = os.open(name, flags, dir_fd=folder)
    if os.fstat(descriptor).st_dev != device:
        os.close(descriptor)
        raise _make_outside_error()
    return descriptor


class _OpenHow(ctypes.Structure):
    """`struct open_how` of Linux."""

    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


@functools.cache
def _load_openat2() -> Callable[[int, str, int], int] | None:
    """Linux's `openat2`, which follows no link and stays beneath; None if the kernel does not have it, or forbids
    it."""
    if sys.platform != "linux":
        return None
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long

    def call_openat2(top: int, path: str, flags: int) -> int:
        options = _OpenHow(flags, 0, _RESOLVE)
        name = os.fsencode(path)
        descriptor: int = syscall(
            ctypes.c_long(_OPENAT2),
            ctypes.c_int(top),
            name,
            ctypes.byref(options),
            ctypes.c_size_t(ctypes.sizeof(options)),
        )
        if descriptor < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
        return descriptor

    root = os.open("/", _PASS_FOLDER)
    try:
        os.close(call_openat2(root, ".", _PASS_FOLDER))
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM):  # an old kernel, a container's filter
            return None
    finally:
        os.close(root)
    return call_openat2
