"""Answers the system calls that the kernel passes on to the supervisor because Landlock does not cover them (SPEC 3.8).

Calls that change a file are made by the supervisor itself, if the command may write that file. Calls that concern a
process go on in the kernel, if the process belongs to the command. All others are refused.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
import struct

from .kernel import find_descendants, is_descendant, libc, raise_errno

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_SECCOMP_IOCTL_NOTIF_RECV = 0xC0502100
_SECCOMP_IOCTL_NOTIF_SEND = 0xC0182101
_SECCOMP_IOCTL_NOTIF_ID_VALID = 0x40082102
_SECCOMP_USER_NOTIF_FLAG_CONTINUE = 1

_AT_FDCWD = -100
_AT_SYMLINK_NOFOLLOW = 0x100
_AT_EMPTY_PATH = 0x1000
_IOPRIO_WHO_PROCESS = 1
_IOPRIO_WHO_PGRP = 2

_PATH_BYTES = 4096
_PAGE = 4096


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
    call, name = _Call(listener, token, caller, number, arguments, writable), names[number]
    negative_errno, flags = 0, 0
    try:
        if name in _EMULATED:
            _EMULATED[name](call)
        else:
            _CHECKED.get(name, _check_process)(call)
            flags = _SECCOMP_USER_NOTIF_FLAG_CONTINUE
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
        self.own_number = number
        self.arguments = arguments
        self._listener = listener
        self._token = token
        self._writable = writable

    def number(self, index: int) -> int:
        """The argument `index` as a signed int."""
        return int(ctypes.c_int(self.arguments[index]).value)

    def memory(self, address: int, size: int) -> bytes:
        """Up to `size` bytes of the caller's memory. Raises OSError."""
        content = b""
        with open(f"/proc/{self.caller}/mem", "rb", buffering=0) as memory:
            # Raises OSError if the caller ended, because another process may have its number now.
            fcntl.ioctl(self._listener, _SECCOMP_IOCTL_NOTIF_ID_VALID, struct.pack("Q", self._token))
            while len(content) < size:
                position = address + len(content)
                piece = os.pread(memory.fileno(), min(size - len(content), _PAGE - position % _PAGE), position)
                content += piece
                if not piece or (size == _PATH_BYTES and b"\0" in piece):
                    break
        return content

    def open_writable(self, directory_fd: int, path_address: int | None, at_flags: int = 0) -> _WritableFile:
        """Open the file of a call. `path_address` is the address of its path, or None for the file that `directory_fd`
        itself is. Raises OSError, with EPERM if the command may not write the file."""
        path = b"" if path_address is None else self.memory(path_address, _PATH_BYTES).partition(b"\0")[0]
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
        return _WritableFile(descriptor)


class _WritableFile:
    """A file that the command may write. It is kept open, so that it cannot be replaced by another."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.path = f"/proc/self/fd/{descriptor}"

    def __enter__(self) -> _WritableFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def _chmod(target: _WritableFile, mode: int) -> None:
    with target:
        mode &= 0o7777
        if mode & stat.S_ISUID or (mode & stat.S_ISGID and not stat.S_ISDIR(os.stat(target.path).st_mode)):
            raise OSError(errno.EPERM, "no file runs as somebody else")
        os.chmod(target.path, mode)


def _chown(target: _WritableFile, user: int, group: int) -> None:
    with target:
        os.chown(target.path, user, group)  # without capabilities we can do no more than the command itself


def _utimensat(call: _Call) -> None:
    times = call.memory(call.arguments[2], 32) if call.arguments[2] else None
    with call.open_writable(call.number(0), call.arguments[1] or None, call.arguments[3]) as target:
        new_times = None if times is None else ctypes.create_string_buffer(times, 32)
        raise_errno(libc.syscall(call.own_number, _AT_FDCWD, target.path.encode(), new_times, 0), "utimensat")


def _truncate(call: _Call) -> None:
    with call.open_writable(_AT_FDCWD, call.arguments[0]) as target:
        os.truncate(target.path, ctypes.c_long(call.arguments[1]).value)


def _check_process(call: _Call) -> None:
    _check_is_descendant(call.number(0))


def _check_is_descendant(pid: int) -> None:
    """Raises OSError if the process does not belong to the command. `pid` 0 is the caller itself."""
    if pid and not is_descendant(pid):
        raise OSError(errno.EPERM, "another process")


def _check_kill(call: _Call) -> None:
    pid = call.number(0)
    if pid == -1:
        raise OSError(errno.EPERM, "everybody")
    if pid >= 0:
        _check_is_descendant(pid)
    elif not any(_group_of(member) == -pid for member in find_descendants()):
        raise OSError(errno.EPERM, "another group")


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def _check_priority(call: _Call, process: int, group: int) -> None:
    """Check a call whose second argument is a process or a group. Its first argument says which: it has the value
    `process` or `group`. Of groups, only that of the caller (0) is allowed."""
    if call.number(0) == process:
        _check_is_descendant(call.number(1))
    elif call.number(0) != group or call.number(1) != 0:
        raise OSError(errno.EPERM, "other processes")


_EMULATED: dict[str, Callable[[_Call], None]] = {
    "chmod": lambda call: _chmod(call.open_writable(_AT_FDCWD, call.arguments[0]), call.arguments[1]),
    "fchmod": lambda call: _chmod(call.open_writable(call.number(0), None), call.arguments[1]),
    "fchmodat": lambda call: _chmod(call.open_writable(call.number(0), call.arguments[1]), call.arguments[2]),
    "fchmodat2": lambda call: _chmod(
        call.open_writable(call.number(0), call.arguments[1], call.arguments[3]), call.arguments[2]
    ),
    "chown": lambda call: _chown(call.open_writable(_AT_FDCWD, call.arguments[0]), call.number(1), call.number(2)),
    "lchown": lambda call: _chown(
        call.open_writable(_AT_FDCWD, call.arguments[0], _AT_SYMLINK_NOFOLLOW), call.number(1), call.number(2)
    ),
    "fchown": lambda call: _chown(call.open_writable(call.number(0), None), call.number(1), call.number(2)),
    "fchownat": lambda call: _chown(
        call.open_writable(call.number(0), call.arguments[1], call.arguments[4]), call.number(2), call.number(3)
    ),
    "utimensat": _utimensat,
    "truncate": _truncate,
}
"""The calls that the supervisor makes for the command. If the kernel continued with them, it would read their paths
from memory again, and the command could have changed them."""

_CHECKED: dict[str, Callable[[_Call], None]] = {
    "setpriority": lambda call: _check_priority(call, os.PRIO_PROCESS, os.PRIO_PGRP),
    "ioprio_set": lambda call: _check_priority(call, _IOPRIO_WHO_PROCESS, _IOPRIO_WHO_PGRP),
    "kill": _check_kill,
}
"""The checks of calls with which the kernel continues. That is safe, because all their arguments are in registers. The
first argument of every other call is a process, which is checked."""
