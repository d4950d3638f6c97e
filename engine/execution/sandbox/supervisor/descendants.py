"""Finds, reaps and kills the descendants of the supervisor.

A process that forks twice or calls setsid stays a descendant, because the supervisor is the subreaper of its command.
"""

from __future__ import annotations

import os
import signal


def _parent_of(pid: int) -> int | None:
    """The parent of a process, None if the process has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[1])


def find_descendants() -> list[int]:
    """The living descendants of the supervisor, in no particular order."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (parent := _parent_of(int(name))) is not None:
            children.setdefault(parent, []).append(int(name))
    result, pending = [], [os.getpid()]
    while pending:
        own_children = children.get(pending.pop(), [])
        result += own_children
        pending += own_children
    return result


def is_descendant(pid: int) -> bool:
    """Whether a process or thread is a descendant of the supervisor."""
    own_pid, ancestor = os.getpid(), _parent_of(pid)
    for _ in range(10_000):
        if ancestor is None or ancestor <= 1:
            return False
        if ancestor == own_pid:
            return True
        ancestor = _parent_of(ancestor)
    return False


def reap_children() -> dict[int, int] | None:
    """Reap the children that have ended. Returns the wait status of each; None if no child is left."""
    ended = {}
    try:
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            ended[child[0]] = child[1]
    except ChildProcessError:
        return ended or None
    return ended


def kill_descendants() -> None:
    """Kill descendants until none is left. A process that loses its parent becomes our child.

    Most rounds kill children only. That is safe, because nobody else reaps our children, so their numbers cannot belong
    to another process. It is also fast enough for programs that fork and end all the time. Deeper descendants become
    children when their parents end, and every 16th round kills them directly.
    """
    rounds = 0
    while reap_children() is not None:
        for pid in _find_children() if rounds % 16 else find_descendants():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        rounds += 1
        os.sched_yield()


def _find_children() -> list[int]:
    """Our children, including those that have ended and are not reaped yet."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:  # this kernel has no such list
        return find_descendants()
