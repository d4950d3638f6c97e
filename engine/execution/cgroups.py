"""A control group for each session, where the engine may make one (cgroup v2): the kernel ends all in it at once.

Nobody leaves it but by writing to another group, which no sandbox lets. Where the engine's own group is not its to
divide (a login session without systemd's delegation, a container), there is none, and the rungs do without.
"""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path

PREFIX = "clawpy-"


@functools.cache
def own() -> Path | None:
    """The engine's own group, in which it may make others; None where it may not."""
    try:
        line = next(one for one in Path("/proc/self/cgroup").read_text().splitlines() if one.startswith("0::"))
        mounts = [one.split() for one in Path("/proc/self/mounts").read_text().splitlines()]
    except (OSError, StopIteration):
        return None
    for _, at, kind, *_ in mounts:
        group = Path(at) / line.removeprefix("0::/")
        if kind == "cgroup2" and os.access(group, os.W_OK) and os.access(group / "cgroup.procs", os.W_OK):
            return group
    return None


def limits() -> bool:
    """Whether the kernel limits the groups that the engine makes."""
    parent = own()
    try:
        return parent is not None and bool(
            {"memory", "pids"} & {*(parent / "cgroup.subtree_control").read_text().split()}
        )
    except OSError:
        return False


def make(session_id: str, *, memory: int, processes: int, contained: bool = False) -> Path | None:
    """The group of a session, limited to `memory` bytes and so many `processes` where the kernel's controllers are
    there; None where there is none. `contained`: the kernel ends all of a command with its first process anyway. Then
    a group is made only where it limits, because a process waits for more than 10 ms to enter one: the kernel sees to
    it that nobody forks meanwhile."""
    parent = own()
    if parent is None or (contained and not limits()):
        return None
    group = parent / f"{PREFIX}{session_id}"
    try:
        group.mkdir(exist_ok=True)
        if not (group / "cgroup.kill").exists():  # before Linux 5.14
            group.rmdir()
            return None
        for name, most in (("memory.max", memory), ("pids.max", processes)):
            if (group / name).exists():
                (group / name).write_text(str(most))
    except OSError:
        return None
    return group


def belongs(group: Path, session_id: str) -> bool:
    """Whether this is a session's group, whatever a file says."""
    return group.name == f"{PREFIX}{session_id}" and (group / "cgroup.kill").is_file()


def members(group: Path) -> list[int]:
    """The processes in it."""
    try:
        return [int(line) for line in (group / "cgroup.procs").read_text().split()]
    except (OSError, ValueError):
        return []


def kill(group: Path) -> None:
    """End everything in it, whatever it does meanwhile."""
    with contextlib.suppress(OSError):
        (group / "cgroup.kill").write_text("1")


def remove(group: Path) -> None:
    """Take it away once it is empty."""
    with contextlib.suppress(OSError):
        group.rmdir()
