"""What the supervisor does with the kernel: it confines a command, judges its calls, and kills its processes.

Python has no functions for Landlock, seccomp and capabilities; those here raise OSError if the kernel refuses. A
process that forks twice or calls setsid stays a descendant, because the supervisor is the subreaper of its command. As
in the whole package, only the standard library is imported.

The kernel passes on the system calls that Landlock does not cover (SPEC 3.8). Calls that change a file are made by the
supervisor itself, if the command may write that file. Calls that concern a process go on in the kernel, if the process
belongs to the command. All others are refused.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import signal
import stat
import struct
from functools import partial

TYPE_CHECKING = False  # `typing` is not imported, because that would make each command slower
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

libc = ctypes.CDLL(None, use_errno=True)
_machine = os.uname().machine

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
"""Operations of `prctl`."""

_SYS_CAPSET = {"x86_64": 126, "aarch64": 91}
_LINUX_CAPABILITY_VERSION_3 = 0x20080522
"""The call that drops capabilities, and the form of its arguments."""

_SYS_PIDFD_OPEN = 434
_SYS_PIDFD_GETFD = 438
"""The calls that copy a descriptor of another process."""

_SYS_LANDLOCK_CREATE_RULESET = 444
_SYS_LANDLOCK_ADD_RULE = 445
_SYS_LANDLOCK_RESTRICT_SELF = 446
_LANDLOCK_RULE_PATH_BENEATH = 1
LANDLOCK_EXECUTE = 1 << 0
LANDLOCK_WRITE_FILE = 1 << 1
LANDLOCK_READ_FILE = 1 << 2
LANDLOCK_TRUNCATE = 1 << 14
LANDLOCK_IOCTL_DEV = 1 << 15
"""The calls of Landlock, and the rights that it knows."""
_LANDLOCK_FILE_RIGHTS = (
    LANDLOCK_EXECUTE | LANDLOCK_WRITE_FILE | LANDLOCK_READ_FILE | LANDLOCK_TRUNCATE | LANDLOCK_IOCTL_DEV
)
"""The rights of Landlock that a rule for a single file can have."""
_RULESET_BYTES = 8
_RULESET_BYTES_WITH_SCOPE = 24
"""Sizes of `struct landlock_ruleset_attr`: with only the rights to files, and since ABI 6 with all three fields."""

_SYS_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SECCOMP_SET_MODE_FILTER = 1
_SECCOMP_FILTER_FLAG_NEW_LISTENER = 8
_SECCOMP_IOCTL_NOTIF_RECV = 0xC0502100
_SECCOMP_IOCTL_NOTIF_SEND = 0xC0182101
_SECCOMP_IOCTL_NOTIF_ID_VALID = 0x40082102
_SECCOMP_USER_NOTIF_FLAG_CONTINUE = 1
"""The call that sets a filter, and the operations on the descriptor on which the kernel passes on calls."""

_AT_FDCWD = -100
_AT_SYMLINK_NOFOLLOW = 0x100
_AT_EMPTY_PATH = 0x1000
_IOPRIO_WHO_PROCESS = 1
_IOPRIO_WHO_PGRP = 2
"""Arguments of the calls that are judged."""

_TIMES_BYTES = 32
"""Size of the two times of `utimensat`."""
_PATH_BYTES = 4096
"""Maximum size of a path, with its end."""
_PAGE_BYTES = 4096
"""The size of a page of memory. No read goes beyond a page, because the next one may not exist."""


def raise_errno(result: int, operation: str) -> None:
    """Raise OSError if `result`, the result of a call of `libc`, says that the call failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{operation}: {os.strerror(number)}")


# -- confining itself


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


# -- processes


def _read_parent(pid: int) -> int | None:
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
        if name.isdigit() and (parent := _read_parent(int(name))) is not None:
            children.setdefault(parent, []).append(int(name))
    result, pending = [], [os.getpid()]
    while pending:
        own_children = children.get(pending.pop(), [])
        result += own_children
        pending += own_children
    return result


def is_descendant(pid: int) -> bool:
    """Whether a process or thread is a descendant of the supervisor."""
    own_pid, ancestor = os.getpid(), _read_parent(pid)
    for _ in range(10_000):
        if ancestor is None or ancestor <= 1:
            return False
        if ancestor == own_pid:
            return True
        ancestor = _read_parent(ancestor)
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


# -- calls that are answered


def answer_call(listener: int, names: Mapping[int, str], writable: Sequence[str]) -> None:
    """Receive one call. Then make it for the command, let the kernel continue with it, or refuse it.

    `names` has the names of the calls by their numbers. `writable` are the places that the command may write.
    """
    request = bytearray(80)
    try:
        fcntl.ioctl(listener, _SECCOMP_IOCTL_NOTIF_RECV, request)
    except OSError:
        return  # the caller was killed while it waited
    token, caller, _, number, _, _, *arguments = struct.unpack("QIIiIQ6Q", request)
    call, name = _Call(listener, token, caller, number, arguments, writable), names.get(number, "")
    negative_errno, flags = 0, 0
    try:
        if name in _FILE_CALLS:
            _FILE_CALLS[name](call)
        elif name in _CHECKS:
            _CHECKS[name](call)
            flags = _SECCOMP_USER_NOTIF_FLAG_CONTINUE
        else:
            raise OSError(errno.EPERM, "a call that nobody judges")
    except OSError as error:
        negative_errno = -(error.errno or errno.EPERM)
    try:
        fcntl.ioctl(listener, _SECCOMP_IOCTL_NOTIF_SEND, struct.pack("QqiI", token, 0, negative_errno, flags))
    except OSError:
        pass  # the caller was killed meanwhile


class _Call:
    """One system call of a confined process. `arguments` are the values in its registers."""

    def __init__(
        self, listener: int, token: int, caller: int, number: int, arguments: Sequence[int], writable: Sequence[str]
    ) -> None:
        self.caller = caller
        self.call_number = number
        self.arguments = arguments
        self._listener = listener
        self._token = token
        self._writable = writable

    def get_signed(self, index: int) -> int:
        """The argument `index` as a signed int."""
        return int(ctypes.c_int(self.arguments[index]).value)

    def read_memory(self, address: int, size: int) -> bytes:
        """Up to `size` bytes of the caller's memory. Raises OSError."""
        content = b""
        with open(f"/proc/{self.caller}/mem", "rb", buffering=0) as memory:
            # Raises OSError if the caller ended, because another process may have its number now.
            fcntl.ioctl(self._listener, _SECCOMP_IOCTL_NOTIF_ID_VALID, struct.pack("Q", self._token))
            while len(content) < size:
                position = address + len(content)
                piece = os.pread(
                    memory.fileno(), min(size - len(content), _PAGE_BYTES - position % _PAGE_BYTES), position
                )
                content += piece
                if not piece or (size == _PATH_BYTES and b"\0" in piece):
                    break
        return content

    def open_writable(self, directory_fd: int, path_address: int | None, at_flags: int) -> int:
        """Open the file of a call, so that it cannot be replaced by another; returns its descriptor. `path_address` is
        the address of its path, or None for the file that `directory_fd` itself is. Raises OSError, with EPERM if the
        command may not write the file."""
        path = b"" if path_address is None else self.read_memory(path_address, _PATH_BYTES).partition(b"\0")[0]
        caller_folder = f"/proc/{self.caller}/".encode()
        base = caller_folder + (b"cwd" if directory_fd == _AT_FDCWD else b"fd/%d" % directory_fd)
        if not path and path_address is not None and not at_flags & _AT_EMPTY_PATH:
            raise OSError(errno.ENOENT, "no path")
        for name in (b"/proc/self/", b"/proc/thread-self/"):
            if path.startswith(name):
                path = caller_folder + path[len(name) :]
        full = path if path.startswith(b"/") else base + (b"/" + path if path else b"")
        no_follow = os.O_NOFOLLOW if path and at_flags & _AT_SYMLINK_NOFOLLOW else 0
        descriptor = os.open(full, os.O_PATH | os.O_CLOEXEC | no_follow)
        real = os.readlink(f"/proc/self/fd/{descriptor}")
        if not any(real == place or real.startswith(place + "/") for place in self._writable):
            os.close(descriptor)
            raise OSError(errno.EPERM, "not the command's own")
        return descriptor


def _make_file_call(
    change: Callable[[_Call, str, int], None],
    call: _Call,
    *,
    value_index: int,
    folder_index: int | None = None,
    path_index: int | None = None,
    flags_index: int | None = None,
    always_flags: int = 0,
    path_is_optional: bool = False,
) -> None:
    """Make a call that changes a file. Raises OSError, with EPERM if the command may not write the file.

    `change` gets the call, the path of the open file, and `value_index`, the index of the first argument with a new
    value. The argument `folder_index` is the descriptor that a relative path starts from, or that is the file itself;
    without one it is the current folder. The argument `flags_index` says how the path is followed, and `always_flags`
    are added. `path_is_optional` says that the path may be NULL, which stands for the file of the descriptor.
    """
    directory_fd = _AT_FDCWD if folder_index is None else call.get_signed(folder_index)
    path_address = None if path_index is None else call.arguments[path_index]
    if path_is_optional:
        path_address = path_address or None
    at_flags = always_flags | (0 if flags_index is None else call.arguments[flags_index])
    descriptor = call.open_writable(directory_fd, path_address, at_flags)
    try:
        change(call, f"/proc/self/fd/{descriptor}", value_index)
    finally:
        os.close(descriptor)


def _set_mode(call: _Call, path: str, value_index: int) -> None:
    mode = call.arguments[value_index] & 0o7777
    if mode & stat.S_ISUID or (mode & stat.S_ISGID and not stat.S_ISDIR(os.stat(path).st_mode)):
        raise OSError(errno.EPERM, "no file runs as somebody else")
    os.chmod(path, mode)


def _set_owner(call: _Call, path: str, value_index: int) -> None:
    # Without capabilities we can do no more than the command itself.
    os.chown(path, call.get_signed(value_index), call.get_signed(value_index + 1))


def _set_times(call: _Call, path: str, value_index: int) -> None:
    address = call.arguments[value_index]
    times = ctypes.create_string_buffer(call.read_memory(address, _TIMES_BYTES), _TIMES_BYTES) if address else None
    raise_errno(libc.syscall(call.call_number, _AT_FDCWD, path.encode(), times, 0), "utimensat")


def _set_length(call: _Call, path: str, value_index: int) -> None:
    os.truncate(path, ctypes.c_long(call.arguments[value_index]).value)


_FILE_CALLS = {
    "chmod": partial(_make_file_call, _set_mode, path_index=0, value_index=1),
    "fchmod": partial(_make_file_call, _set_mode, folder_index=0, value_index=1),
    "fchmodat": partial(_make_file_call, _set_mode, folder_index=0, path_index=1, value_index=2),
    "fchmodat2": partial(_make_file_call, _set_mode, folder_index=0, path_index=1, value_index=2, flags_index=3),
    "chown": partial(_make_file_call, _set_owner, path_index=0, value_index=1),
    "lchown": partial(_make_file_call, _set_owner, path_index=0, value_index=1, always_flags=_AT_SYMLINK_NOFOLLOW),
    "fchown": partial(_make_file_call, _set_owner, folder_index=0, value_index=1),
    "fchownat": partial(_make_file_call, _set_owner, folder_index=0, path_index=1, value_index=2, flags_index=4),
    "utimensat": partial(
        _make_file_call, _set_times, folder_index=0, path_index=1, value_index=2, flags_index=3, path_is_optional=True
    ),
    "truncate": partial(_make_file_call, _set_length, path_index=0, value_index=1),
}
"""The calls that the supervisor makes for the command. If the kernel continued with them, it would read their paths
from memory again, and the command could have changed them."""


def _check_is_descendant(pid: int) -> None:
    """Raises OSError if the process does not belong to the command. `pid` 0 is the caller itself."""
    if pid and not is_descendant(pid):
        raise OSError(errno.EPERM, "another process")


def _check_kill(call: _Call) -> None:
    """Check a signal to a process, or to a group of the command. Raises OSError for others."""
    pid = call.get_signed(0)
    if pid == -1:
        raise OSError(errno.EPERM, "everybody")
    if pid >= 0:
        _check_is_descendant(pid)
    elif not any(_read_group(member) == -pid for member in find_descendants()):
        raise OSError(errno.EPERM, "another group")


def _read_group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def _check_priority(call: _Call, process: int, group: int) -> None:
    """Check a call whose second argument is a process or a group. Its first argument says which: it has the value
    `process` or `group`. Of groups, only that of the caller (0) is allowed."""
    if call.get_signed(0) == process:
        _check_is_descendant(call.get_signed(1))
    elif call.get_signed(0) != group or call.get_signed(1) != 0:
        raise OSError(errno.EPERM, "other processes")


_CALLS_ON_PROCESSES = (
    "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "prlimit64", "sched_setparam", "sched_setscheduler",
    "sched_setaffinity", "sched_setattr",
)  # fmt: skip
"""Calls whose first argument is a process or a thread."""

_CHECKS: dict[str, Callable[[_Call], None]] = {
    **dict.fromkeys(_CALLS_ON_PROCESSES, lambda call: _check_is_descendant(call.get_signed(0))),
    "kill": _check_kill,
    "setpriority": lambda call: _check_priority(call, os.PRIO_PROCESS, os.PRIO_PGRP),
    "ioprio_set": lambda call: _check_priority(call, _IOPRIO_WHO_PROCESS, _IOPRIO_WHO_PGRP),
}
"""The checks of calls with which the kernel continues. That is safe, because all their arguments are in registers."""

JUDGED_CALLS = frozenset({*_FILE_CALLS, *_CHECKS})
"""The names of all calls that a filter may pass on. Any other one is refused."""
