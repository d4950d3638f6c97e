"""Makes a Linux control group (cgroup v2) for each session, where it may: the kernel limits its processes together, and
ends all of them at once (SPEC 3.7).

A process leaves its control group only by writing to another one, which no sandbox allows. Where the engine may not
divide its own group (a login session without systemd's delegation, a container) there is none, and the sandboxes do
without."""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path

PREFIX = "clawpy-"


@functools.cache
def parent_group() -> Path | None:
    """The engine's own group, in which it may make others; None where it may not."""
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


def can_limit() -> bool:
    """Whether the kernel limits the groups that the engine makes."""
    parent = parent_group()
    try:
        return parent is not None and bool(
            {"memory", "pids"} & {*(parent / "cgroup.subtree_control").read_text().split()}
        )
    except OSError:
        return False


def make_group(session_id: str, *, memory: int, processes: int, contained: bool = False) -> Path | None:
    """The new group of a session, None where there is none; limited to `memory` bytes and so many `processes` where the
    kernel's controllers are there. `contained`: the kernel ends a command with its first process anyway. Then a group
    is made only where it limits, because a process waits more than 10 ms to enter one, while nobody may fork."""
    parent = parent_group()
    if parent is None or (contained and not can_limit()):
        return None
    group = parent / f"{PREFIX}{session_id}"
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
    """Whether this is a session's group, whatever a file says."""
    return group.name == f"{PREFIX}{session_id}" and (group / "cgroup.kill").is_file()


def member_pids(group: Path) -> list[int]:
    """The ids of the processes in the group."""
    try:
        return [int(line) for line in (group / "cgroup.procs").read_text().split()]
    except (OSError, ValueError):
        return []


def kill_members(group: Path) -> None:
    """Kill all processes of the group, also those that fork meanwhile."""
    with contextlib.suppress(OSError):
        (group / "cgroup.kill").write_text("1")


def remove_group(group: Path) -> None:
    """Remove the group if it is empty."""
    with contextlib.suppress(OSError):
        group.rmdir()
