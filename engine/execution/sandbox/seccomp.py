"""The system calls that a sandboxed command may not make: a seccomp filter, assembled here (SPEC 3.8).

It is there for what namespaces leave open. The kernel's keyring goes with the credentials, not with a namespace, and
may hold disk and network keys. Sockets of some families (a virtual machine's vsock, bluetooth) know no network
namespace and lead out of it. User namespaces, io_uring, bpf and the mount calls are where kernels had most holes that
an unprivileged program could use; no test suite or build needs them.
"""

from __future__ import annotations

import errno
import functools
import os
import platform
import struct
from dataclasses import dataclass, field

_LOAD, _EQUAL, _GREATER_EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_X32 = 0x40000000
_CLONE_NEWUSER = 0x10000000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16

# name: number on x86_64, on aarch64; None where the architecture has no such call
_REFUSED: dict[str, tuple[int | None, int | None]] = {
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "move_mount": (429, 429),
    "open_tree": (428, 428), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fspick": (433, 433), "mount_setattr": (442, 442), "setns": (308, 268), "chroot": (161, 51),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "fanotify_init": (300, 262),
    "open_by_handle_at": (304, 265), "quotactl": (179, 60), "quotactl_fd": (443, 443), "acct": (163, 89),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "iopl": (172, None), "ioperm": (173, None),
    "syslog": (103, 116),
}  # fmt: skip

_ABSENT: dict[str, tuple[int | None, int | None]] = {
    # Programs ask for these and do without when the kernel has none. clone3 keeps its flags in memory, where a filter
    # cannot look; without it libraries fall back to clone.
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "clone3": (435, 435),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Architecture:
    """What the filter has to know of a machine: its AUDIT_ARCH, its place in the tables, some numbers."""

    audit: int
    column: int
    clone: int
    unshare: int
    socket: int
    ioctl: int


ARCHITECTURES = {
    "x86_64": Architecture(0xC000003E, 0, clone=56, unshare=272, socket=41, ioctl=16),
    "aarch64": Architecture(0xC00000B7, 1, clone=220, unshare=97, socket=198, ioctl=29),
}


@dataclass(slots=True)
class _Program:
    """Instructions of classic BPF; a jump counts the instructions it leaves out."""

    code: list[tuple[int, int, int, int]] = field(default_factory=list)

    def load(self, offset: int) -> None:
        self.code.append((_LOAD, 0, 0, offset))

    def end(self, answer: int) -> None:
        self.code.append((_RETURN, 0, 0, answer))

    def when(self, test: int, value: int, answer: int) -> None:
        self.code.append((test, 0, 1, value))
        self.end(answer)

    def unless(self, value: int, answer: int) -> None:
        self.code.append((_EQUAL, 1, 0, value))
        self.end(answer)

    def block(self, call: int, body: _Program) -> None:
        """`body` for this call alone; it ends with an answer."""
        self.code.append((_EQUAL, 0, len(body.code), call))
        self.code += body.code

    def bytes(self) -> bytes:
        return b"".join(struct.pack("=HBBI", *instruction) for instruction in self.code)


def filter_program(machine: str) -> bytes | None:
    """The filter for a machine as `platform.machine()` names it, as the kernel reads it; None where none is known."""
    architecture = ARCHITECTURES.get(machine)
    if architecture is None:
        return None
    refused, absent = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
    program = _Program()
    program.load(_ARCHITECTURE)
    program.unless(architecture.audit, absent)  # the 32-bit table has other numbers
    program.load(_NUMBER)
    program.when(_GREATER_EQUAL, _X32, absent)
    for table, answer in ((_REFUSED, refused), (_ABSENT, absent)):
        for numbers in table.values():
            number = numbers[architecture.column]
            if number is not None:
                program.when(_EQUAL, number, answer)
    for call in (architecture.clone, architecture.unshare):
        program.block(call, _flags(_CLONE_NEWUSER, refused))
    program.block(architecture.ioctl, _values((_TIOCSTI, _TIOCLINUX), refused))
    program.block(architecture.socket, _families())
    program.end(_ALLOW)
    return program.bytes()


def _flags(forbidden: int, answer: int) -> _Program:
    body = _Program()
    body.load(_ARGUMENTS)
    body.when(_ANY_BIT, forbidden, answer)
    body.end(_ALLOW)
    return body


def _values(forbidden: tuple[int, ...], answer: int) -> _Program:
    body = _Program()
    body.load(_ARGUMENTS + 8)  # the second argument; the kernel looks at its lower half only, and so does this
    for value in forbidden:
        body.when(_EQUAL, value, answer)
    body.end(_ALLOW)
    return body


def _families() -> _Program:
    body = _Program()
    body.load(_ARGUMENTS)
    for family in (_UNIX, _INET, _INET6):
        body.when(_EQUAL, family, _ALLOW)
    body.unless(_NETLINK, _ERRNO | errno.EAFNOSUPPORT)
    body.load(_ARGUMENTS + 16)
    body.unless(0, _ERRNO | errno.EPROTONOSUPPORT)  # of netlink only routes: what lists the interfaces
    body.end(_ALLOW)
    return body


@functools.cache
def filter_file() -> str | None:
    """A path from which the filter can be read as long as this process lives; None where none is known.

    It lies in no folder: whatever a session may write it could exchange.
    """
    program = filter_program(platform.machine())
    if program is None or not hasattr(os, "memfd_create"):
        return None
    descriptor = os.memfd_create("clawpy-seccomp", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(descriptor, program)
    return f"/proc/{os.getpid()}/fd/{descriptor}"
