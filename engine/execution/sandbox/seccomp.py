"""Makes the seccomp filters of both Linux rungs, which refuse system calls (SPEC 3.8).

A filter is a program of classic BPF. It loads a word of the call, compares it, and returns an action: the call is
allowed, refused with an error, or passed on to the supervisor. `syscalls.toml` has the numbers of the calls.

Bubblewrap needs a filter, too, because namespaces do not cover everything. The keyring of the kernel belongs to no
namespace, and may hold disk and network keys. Sockets of some families, such as vsock and bluetooth, reach out of a
network namespace. User namespaces, io_uring, bpf and the mount calls had many security holes, and no test suite or
build needs them. A filter also keeps commands from making a file that runs as its owner.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import platform
import struct
from collections.abc import Iterable, Mapping

from engine.files import read_table
from engine.frozen import frozen

_BPF_LD_W_ABS = 0x20
_BPF_JEQ = 0x15
_BPF_JGE = 0x35
_BPF_JSET = 0x45
_BPF_AND = 0x54
_BPF_RET = 0x06
"""Instructions of classic BPF."""

_OFFSET_OF_NUMBER = 0
_OFFSET_OF_ARCHITECTURE = 4
_OFFSET_OF_ARGUMENTS = 16
"""Offsets of fields of `struct seccomp_data`, in bytes."""

_SECCOMP_RET_ALLOW = 0x7FFF0000
_SECCOMP_RET_ERRNO = 0x00050000
_SECCOMP_RET_USER_NOTIF = 0x7FC00000
"""Actions of a filter: allow the call, refuse it with an error, pass it on."""

_X32_SYSCALL_BIT = 0x40000000
_CLONE_NEWUSER = 0x10000000
_TIOCSTI = 0x5412
_TIOCLINUX = 0x541C
_SET_FILE_FLAGS = (0x40086602, 0x401C5820)
"""FS_IOC_SETFLAGS and FS_IOC_FSSETXATTR (chattr), for which a file need only be open for reading."""
_SET_SIGNAL_OWNER = (0x8901, 0x8902)
"""FIOSETOWN and SIOCSPGRP."""
_F_SET_OWNER = (8, 15)
"""F_SETOWN and F_SETOWN_EX."""
_AF_UNIX = 1
_AF_INET = 2
_AF_INET6 = 10
_AF_NETLINK = 16
_SOCK_TYPE_MASK = 0xF
_SOCK_DGRAM = 2
_S_ISUID = 0o4000
_O_WRONLY = 1
_O_RDWR = 2
_O_CREAT = 0o100
_O_TRUNC = 0o1000
_O_TMPFILE = 0o20000000

SIGNAL_CALLS = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
"""Calls that send a signal. They are passed on to the supervisor only if Landlock does not confine signals."""

_CALLS_ON_CALLER = ("prlimit64", "sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr", "kill")
"""Calls whose first argument is a process. 0 is the caller itself, and its own group for `kill`."""

_TABLES = read_table(__file__, "syscalls.toml")
"""The tables of `syscalls.toml`."""


@frozen
class Architecture:
    """The numbers of one kind of machine."""

    audit: int
    """Its AUDIT_ARCH."""
    column: int
    """Its column in the tables."""
    clone: int
    unshare: int
    socket: int
    socketpair: int
    ioctl: int
    fcntl: int
    modes: list[tuple[int, int]]
    """(call, index of the argument with the mode) of calls that set the mode of a file."""
    opens: list[tuple[int, int]]
    """(call, index of the argument with the flags) of calls that open a file. The mode is the argument after it."""


ARCHITECTURES = {name: Architecture(**row) for name, row in _TABLES["architectures"].items()}
"""The kinds of machines for which there are filters, by `platform.machine()`."""


@frozen
class FilterOptions:
    """The options of a filter for commands that have no namespaces."""

    allows_network: bool
    confines_signals: bool
    """Whether Landlock confines signals (since Linux 6.12)."""
    confines_truncation: bool
    """Whether Landlock confines truncation (since Linux 6.2)."""


def make_filter(machine: str, without_namespaces: FilterOptions | None = None) -> bytes | None:
    """The filter for a `platform.machine()` in the form that the kernel reads; None for an unknown machine."""
    architecture = ARCHITECTURES.get(machine)
    if architecture is None:
        return None
    absent = _return_error(errno.ENOSYS)
    actions = {"refused": _return_error(errno.EPERM), "absent": absent}
    if without_namespaces is not None:
        actions |= {"shared": absent, "attributes": _return_error(errno.EOPNOTSUPP)}
    program = [
        *_load_word(_OFFSET_OF_ARCHITECTURE),
        *_unless(architecture.audit, absent),  # calls of 32-bit programs have other numbers
        *_load_word(_OFFSET_OF_NUMBER),
        *_when(_X32_SYSCALL_BIT, absent, test=_BPF_JGE),
    ]
    for table, action in actions.items():
        for number in _read_call_numbers(table, architecture).values():
            program += _when(number, action)
    if without_namespaces is not None:
        program += _pass_calls_on(read_passed_on_calls(machine, without_namespaces))
    program += [*_check_arguments(architecture, without_namespaces), *_ALLOW]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _check_arguments(architecture: Architecture, without_namespaces: FilterOptions | None) -> _Program:
    """Refuse calls by their arguments: new user namespaces, files that run as their owner, input to terminals, and
    sockets of some families."""
    refused = _return_error(errno.EPERM)
    program: _Program = []
    for call in (architecture.clone, architecture.unshare):
        program += _when(call, _check_argument(0, (_CLONE_NEWUSER,), refused, test=_BPF_JSET))
    for call, index in architecture.modes:
        program += _when(call, _check_argument(index, (_S_ISUID,), refused, test=_BPF_JSET))
    truncation = without_namespaces is None or without_namespaces.confines_truncation
    for call, index in architecture.opens:
        program += _when(call, _check_open(index, refused, truncation=truncation))
    # The kernel compares only the lower half of the number of an ioctl, so the filter does the same.
    terminal_input = (_TIOCSTI, _TIOCLINUX)
    if without_namespaces is None:
        return [
            *program,
            *_when(architecture.ioctl, _check_argument(1, terminal_input, refused)),
            *_when(architecture.socket, _check_socket((_AF_UNIX, _AF_INET, _AF_INET6))),
        ]
    numbers = (*terminal_input, *_SET_FILE_FLAGS, *_SET_SIGNAL_OWNER)
    return [
        *program,
        *_when(architecture.ioctl, _check_argument(1, numbers, refused)),
        *_when(architecture.fcntl, _check_argument(1, _F_SET_OWNER, refused)),
        *_when(architecture.socket, _check_socket((_AF_INET, _AF_INET6) if without_namespaces.allows_network else ())),
        *_when(architecture.socketpair, _check_socketpair()),
    ]


def read_passed_on_calls(machine: str, without_namespaces: FilterOptions) -> dict[str, int]:
    """The numbers of the system calls that the supervisor judges, by name. Calls that Landlock confines are left
    out."""
    confined = {
        *(SIGNAL_CALLS if without_namespaces.confines_signals else ()),
        *(("truncate",) if without_namespaces.confines_truncation else ()),
    }
    calls = _read_call_numbers("passed_on", ARCHITECTURES[machine])
    return {name: call for name, call in calls.items() if name not in confined}


def _read_call_numbers(table: str, architecture: Architecture) -> dict[str, int]:
    """The numbers of the system calls in a table, by name. Calls that the architecture lacks are left out."""
    calls = {name: numbers[architecture.column] for name, numbers in _TABLES[table].items()}
    return {name: number for name, number in calls.items() if number >= 0}


def _pass_calls_on(calls: Mapping[str, int]) -> _Program:
    """Pass calls on to the supervisor. Calls about the caller itself (process 0) are allowed without it."""
    program: _Program = []
    for name, call in calls.items():
        allowed = _check_argument(0, (0,), _ALLOW, otherwise=_PASS_ON)
        program += _when(call, allowed if name in _CALLS_ON_CALLER else _PASS_ON)
    return program


def _check_open(index: int, refused: _Program, *, truncation: bool) -> _Program:
    """Refuse to make a file that runs as its owner. Unless `truncation` is confined by Landlock, also refuse to
    truncate a file that is opened for reading only."""
    flags = _load_argument(index)
    mode = [*_load_argument(index + 1), *_when(_S_ISUID, refused, test=_BPF_JSET), *flags]
    program = [*flags, *_when(_O_CREAT | _O_TMPFILE, mode, test=_BPF_JSET)]
    if not truncation:
        program += _when(_O_WRONLY | _O_RDWR, _ALLOW, test=_BPF_JSET)
        program += _when(_O_TRUNC, refused, test=_BPF_JSET)
    return [*program, *_ALLOW]


def _check_socketpair() -> _Program:
    """Allow any pair except of datagram sockets, which could be connected to other sockets."""
    type_without_flags = [*_load_argument(1), (_BPF_AND, 0, 0, _SOCK_TYPE_MASK)]
    return [*type_without_flags, *_when(_SOCK_DGRAM, _return_error(errno.EPROTONOSUPPORT)), *_ALLOW]


def _check_socket(allowed: Iterable[int]) -> _Program:
    """Allow sockets of these families, and those that list network interfaces."""
    program = _load_argument(0)
    for family in allowed:
        program += _when(family, _ALLOW)
    return [
        *program,
        *_unless(_AF_NETLINK, _return_error(errno.EAFNOSUPPORT)),
        # Of netlink, only protocol 0 (routes) is allowed, because programs list the network interfaces with it.
        *_load_argument(2),
        *_unless(0, _return_error(errno.EPROTONOSUPPORT)),
        *_ALLOW,
    ]


# -- parts of programs

_Program = list[tuple[int, int, int, int]]
"""The instructions of a program. Each has a code, a jump if true, a jump if false, and a value. A jump is the number of
instructions to skip."""

_ALLOW: _Program = [(_BPF_RET, 0, 0, _SECCOMP_RET_ALLOW)]
_PASS_ON: _Program = [(_BPF_RET, 0, 0, _SECCOMP_RET_USER_NOTIF)]
"""Programs that allow the call, and pass it on to the supervisor."""


def _return_error(number: int) -> _Program:
    """Refuse the call with this error."""
    return [(_BPF_RET, 0, 0, _SECCOMP_RET_ERRNO | number)]


def _load_word(offset: int) -> _Program:
    """Load the 32 bits at `offset` of the call. The tests that follow compare them."""
    return [(_BPF_LD_W_ABS, 0, 0, offset)]


def _load_argument(index: int) -> _Program:
    """Load the lower half of an argument of the call."""
    return _load_word(_OFFSET_OF_ARGUMENTS + 8 * index)


def _when(value: int, body: _Program, *, test: int = _BPF_JEQ) -> _Program:
    """Run `body` only if the loaded word passes `test` with `value`. If what follows needs that word, `body` must
    return an action or load the word again."""
    return [(test, 0, len(body), value), *body]


def _unless(value: int, body: _Program) -> _Program:
    """Run `body` only if the loaded word is not `value`."""
    return [(_BPF_JEQ, len(body), 0, value), *body]


def _check_argument(
    index: int, values: Iterable[int], action: _Program, *, test: int = _BPF_JEQ, otherwise: _Program = _ALLOW
) -> _Program:
    """Run `action` if the lower half of argument `index` passes `test` with one of `values`, and `otherwise` if not."""
    program = _load_argument(index)
    for value in values:
        program += _when(value, action, test=test)
    return [*program, *otherwise]


# -- the filter as a file


@functools.cache
def make_filter_file() -> str | None:
    """A path from which the filter can be read as long as this process lives; None for an unknown machine.

    The filter is a file in memory, because a session could replace a file in a folder that it may write.
    """
    program = make_filter(platform.machine())
    if program is None or not hasattr(os, "memfd_create"):
        return None
    descriptor = os.memfd_create("clawpy-seccomp", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(descriptor, program)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    return f"/proc/{os.getpid()}/fd/{descriptor}"
