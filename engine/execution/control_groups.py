"""The control groups of sessions (cgroup v2).

The kernel limits the processes of a control group (cgroup v2) together, and ends all of them at once. A process leaves
its group only by writing to another one, which no sandbox allows. Where the engine may not divide its own group (a
login session without systemd's delegation, a container) there are no groups, and sandboxes do without.
"""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path

GROUP_PREFIX = "clawpy-"
"""The beginning of the name of a session's control group. Its id follows."""


@functools.cache
def find_parent_group() -> Path | None:
    """The engine's own group, in which it may make others. None where it may not."""
    try:
        line = next(entry for entry in Path("/proc/self/cgroup").read_text().splitlines() if entry.startswith("0::"))
        mounts = [mount.split() for mount in Path("/proc/self/mounts").read_text().splitlines()]
    except (OSError, StopIteration):
        return None
    for _, mount_point, kind, *_ in mounts:
        group = Path(mount_point) / line.removeprefix("0::/")
        if kind == "cgroup2" and os.access(group, os.W_OK) and os.access(group / "cgroup.procs", os.W_OK):
            return group
    return None


def can_limit_groups() -> bool:
    """Whether the kernel limits the groups that the engine makes."""
    parent = find_parent_group()
    if parent is None:
        return False
    try:
        controllers = (parent / "cgroup.subtree_control").read_text().split()
    except OSError:
        return False
    return "memory" in controllers or "pids" in controllers


def make_group(session_id: str, *, memory: int, processes: int, contained: bool) -> Path | None:
    """Make the group of a session; None where that is not possible.

    It is limited to `memory` bytes and so many `processes`, where the kernel has controllers for that. `contained`
    means that the kernel ends a command with its first process anyway. Then a group is made only where it limits: a
    process waits more than 10 ms to enter one, and meanwhile no process of the machine may fork.
    """
    parent = find_parent_group()
    if parent is None or (contained and not can_limit_groups()):
        return None
    group = parent / f"{GROUP_PREFIX}{session_id}"
    try:
        group.mkdir(exist_ok=True)
        if not (group / "cgroup.kill").exists():  # before Linux 5.14
            group.rmdir()
            return None
        for name, maximum in (("memory.max", memory), ("pids.max", processes)):
            if (group / name).exists():
                (group / name).write_text(str(maximum))
    except OSError:
        return None
    return group


def is_group_of(group: Path, session_id: str) -> bool:
    """Whether this is the group of a session, and exists."""
    return group.name == f"{GROUP_PREFIX}{session_id}" and (group / "cgroup.kill").is_file()


def read_member_pids(group: Path) -> list[int]:
    """The ids of the processes in the group."""
    try:
        return [int(line) for line in (group / "cgroup.procs").read_text().split()]
    except (OSError, ValueError):
        return []


def kill_members(group: Path) -> None:
    """Kill all processes of the group, even those that fork meanwhile."""
    with contextlib.suppress(OSError):
        (group / "cgroup.kill").write_text("1")


def remove_group(group: Path) -> None:
    """Remove the group if it is empty."""
    with contextlib.suppress(OSError):
        group.rmdir()
