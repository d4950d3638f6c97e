"""Reads and removes files that somebody else may have created."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path


def read_plain(path: Path, limit: int, *, follow: bool = True, cut: bool = False) -> bytes:
    """The content of a regular file of at most `limit` bytes; never waits for a pipe.

    Without `follow` a symbolic link at `path` is refused; with `cut` a larger file is read up to `limit` bytes. Raises
    OSError, and ValueError for a larger file or one that is not regular.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("is not a regular file")
        if status.st_size > limit and not cut:
            raise ValueError(f"is larger than {limit} bytes")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(limit)
    finally:
        os.close(descriptor)


def remove_folder(folder: Path) -> None:
    """Remove a folder with its content, read-only folders included; never follows links."""
    try:
        mode = folder.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(mode):
        folder.unlink()
        return
    with contextlib.suppress(PermissionError):
        shutil.rmtree(folder)
        return
    _open_up(folder)
    for current, folders, _ in os.walk(folder):
        for name in folders:
            _open_up(Path(current, name))
    shutil.rmtree(folder)


def _open_up(folder: Path) -> None:
    mode = folder.lstat().st_mode
    if stat.S_ISDIR(mode) and mode & stat.S_IRWXU != stat.S_IRWXU:
        folder.chmod(stat.S_IMODE(mode) | stat.S_IRWXU)
