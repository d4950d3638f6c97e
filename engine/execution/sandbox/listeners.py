"""Where other programs listen in the file system: sockets and named pipes (SPEC 3.8).

A read-only mount keeps nobody from talking to either, and behind one of them may be Docker, an agent with keys, or a
program that takes commands. What comes to listen while a command runs is not known to that command's sandbox.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from engine.execution.sandbox.base import PRIVATE
from engine.execution.sandbox.mounts import RUN

PIPES_FOR = 60.0
"""Seconds for which what was found of named pipes is good: it takes a look at every process."""

_pipes: tuple[float, list[Path]] = (-PIPES_FOR, [])
_lock = threading.Lock()


def listeners(own: Iterable[Path] = ()) -> list[Path]:
    """Sockets and pipes outside covered places, without `own`. A few milliseconds at most, every `PIPES_FOR` more."""
    try:
        table = Path("/proc/net/unix").read_text(errors="replace")
    except OSError:
        return []  # no Linux
    left_out = set(own)
    found = {*bound_sockets(table), *_open_pipes()} - left_out
    return [path for path in found if path.exists()]


def bound_sockets(table: str) -> set[Path]:
    """The sockets of /proc/net/unix that lie in the file system, outside covered places."""
    found = set()
    for line in table.splitlines()[1:]:
        columns = line.split(" ", 7)  # Num RefCount Protocol Flags Type St Inode Path
        if len(columns) == 8 and (name := columns[7].lstrip()).startswith("/"):
            found.add(Path(name))
    return {path for path in found if not _covered(path)}


def _open_pipes() -> list[Path]:
    global _pipes
    with _lock:
        now = time.monotonic()
        if now - _pipes[0] >= PIPES_FOR:
            _pipes = (now, sorted(named_pipes()))
        return _pipes[1]


def named_pipes() -> set[Path]:
    """The named pipes that processes of this user have open, outside covered places and other sandboxes."""
    found: set[Path] = set()
    own = Path("/proc/self/ns/pid").readlink()
    for process in os.scandir("/proc"):
        if not process.name.isdigit():
            continue
        with contextlib.suppress(OSError):  # it ended, or is another user's
            if Path(process.path, "ns", "pid").readlink() != own:
                continue
            for entry in os.scandir(f"{process.path}/fd"):
                with contextlib.suppress(OSError):
                    if stat.S_ISFIFO(entry.stat().st_mode) and (name := Path(entry.path).readlink()).is_absolute():
                        found.add(name)
    return {path for path in found if not _covered(path)}


def _covered(path: Path) -> bool:
    return any(path.is_relative_to(place) for place in (*PRIVATE, RUN))
