"""What the supervisor asks of the Linux kernel: to confine a command, and to find and kill all its processes.

Python has no functions for Landlock, seccomp and capabilities; those here raise OSError if the kernel refuses. A
process that forks twice or calls setsid stays a descendant, because the supervisor is the subreaper of its command. As
in the whole package, only the standard library is imported.
"""

from __future__ import annotations

import ctypes
import os
import signal
import stat
import struct

TYPE_CHECKING = False  # `typing` is not imported, because that would make each command slower
if TYPE_CHECKING:
    from collections.abc import Sequence

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
_PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38

_SYS_PIDFD_OPEN = 434
_SYS_PIDFD_GETFD = 438
_SYS_LANDLOCK_CREATE_RULESET = 444
_SYS_LANDLOCK_ADD_RULE = 445
_SYS_LANDLOCK_RESTRICT_SELF = 446
_SYS_CAPSET = {"x86_64": 126, "aarch64": 91}
_SYS_SECCOMP = {"x86_64": 317, "aarch64": 277}

_LINUX_CAPABILITY_VERSION_3 = 0x20080522
_SECCOMP_SET_MODE_FILTER = 1
_SECCOMP_FILTER_FLAG_NEW_LISTENER = 8
_LANDLOCK_RULE_PATH_BENEATH = 1
LANDLOCK_EXECUTE = 1 << 0
LANDLOCK_WRITE_FILE = 1 << 1
LANDLOCK_READ_FILE = 1 << 2
LANDLOCK_TRUNCATE = 1 << 14
LANDLOCK_IOCTL_DEV = 1 << 15
_LANDLOCK_FILE_RIGHTS = (
    LANDLOCK_EXECUTE | LANDLOCK_WRITE_FILE | LANDLOCK_READ_FILE | LANDLOCK_TRUNCATE | LANDLOCK_IOCTL_DEV
)
"""The rights of Landlock that a rule for a single file can have."""
_RULESET_BYTES, _RULESET_BYTES_WITH_SCOPE = 8, 24
"""Sizes of `struct landlock_ruleset_attr`: with only the rights to files, and since ABI 6 with all three fields."""

libc = ctypes.CDLL(None, use_errno=True)
_machine = os.uname().machine


def raise_errno(result: int, operation: str) -> None:
    """Raise OSError if `result`, the result of a call of `libc`, says that the call failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{operation}: {os.strerror(number)}")


def drop_capabilities() -> None:
    """Drop all capabilities. After that root can do no more than other users, but it still owns its files."""
    number = 0
    while libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) == 0:
        number += 1
    header = ctypes.create_string_buffer(struct.pack("Ii", _LINUX_CAPABILITY_VERSION_3, 0), 8)
    raise_errno(libc.syscall(_SYS_CAPSET[_machine], header, ctypes.create_string_buffer(24)), "capset")


def make_ruleset(handled: int, scope: int, rules: Sequence[tuple[int, str]], writable: Sequence[str]) -> int:
    """Make a Landlock ruleset that removes the rights `handled`, except those in `rules`. Returns its descriptor.

    A place that does not exist any more is left out. Links at `writable` places are not followed, because a command may
    have put them there.
    """
    attributes = struct.pack("QQQ", handled, 0, scope)
    size = _RULESET_BYTES_WITH_SCOPE if scope else _RULESET_BYTES
    ruleset = int(libc.syscall(_SYS_LANDLOCK_CREATE_RULESET, ctypes.create_string_buffer(attributes, 24), size, 0))
    raise_errno(ruleset, "landlock")
    for access, path in rules:
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC | (os.O_NOFOLLOW if path in writable else 0))
        except OSError:
            continue
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            access &= _LANDLOCK_FILE_RIGHTS
        rule = struct.pack("=Qi", access, place)
        rule_buffer = ctypes.create_string_buffer(rule, len(rule))
        added = libc.syscall(_SYS_LANDLOCK_ADD_RULE, ruleset, _LANDLOCK_RULE_PATH_BENEATH, rule_buffer, 0)
        raise_errno(added, f"landlock: {path}")
        os.close(place)
    return ruleset


def confine_self(ruleset: int, seccomp_filter: bytes) -> int:
    """Confine this process, and the program that it becomes, with a Landlock ruleset and a seccomp filter. Returns the
    descriptor on which the kernel passes on calls."""
    raise_errno(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    raise_errno(libc.syscall(_SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0), "landlock")
    instructions = ctypes.create_string_buffer(seccomp_filter, len(seccomp_filter))
    header = struct.pack("HxxxxxxP", len(seccomp_filter) // 8, ctypes.addressof(instructions))
    listener = libc.syscall(
        _SYS_SECCOMP[_machine],
        _SECCOMP_SET_MODE_FILTER,
        _SECCOMP_FILTER_FLAG_NEW_LISTENER,
        ctypes.create_string_buffer(header, len(header)),
    )
    raise_errno(listener, "seccomp")
    return int(listener)


def copy_descriptor(pid: int, descriptor: int) -> int:
    """Copy a descriptor of another process into this one."""
    process = libc.syscall(_SYS_PIDFD_OPEN, pid, 0)
    raise_errno(process, "pidfd_open")
    copied = libc.syscall(_SYS_PIDFD_GETFD, process, descriptor, 0)
    number = ctypes.get_errno()
    os.close(process)
    if copied < 0:
        raise OSError(number, f"pidfd_getfd: {os.strerror(number)}")
    return int(copied)


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
