"""Values read from files that anyone may edit at any time: read again only when a file changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Generic, TypeVar

Value = TypeVar("Value")
Signature = tuple[int, int, int, int] | None

SETTLED_NS = 50_000_000
"""A file that was changed less than so long ago may change again without showing it: the clock of a file system ticks
in milliseconds. The same reason for which git looks twice."""

MOST = 20_000
"""Beyond so many values the cache begins anew."""


def signature(path: Path) -> Signature:
    """Tells one state of a file from another; None when it is not there. Raises OSError for other reasons."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


class Watched(Generic[Value]):
    """Values by key, each with the signatures of the files it came from. Thread-safe."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[tuple[Signature, ...], Value]] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, files: tuple[Path, ...], read: Callable[[], Value]) -> Value:
        """What `read()` returned when the files last changed."""
        return self.get_signed(key, files, read)[1]

    def get_signed(
        self, key: Hashable, files: tuple[Path, ...], read: Callable[[], Value]
    ) -> tuple[tuple[Signature, ...], Value]:
        """The same, and the signatures the value goes with."""
        now = tuple(signature(file) for file in files)
        with self._lock:
            kept = self._kept.get(key)
        if kept is not None and kept[0] == now:
            return kept
        value = read()  # a change from here on shows in the next signature: the one that is kept was taken before
        fresh = max((max(one[2], one[3]) for one in now if one), default=0)
        if time.time_ns() - fresh >= SETTLED_NS:
            with self._lock:
                if len(self._kept) >= MOST:
                    self._kept.clear()
                self._kept[key] = (now, value)
        return now, value
