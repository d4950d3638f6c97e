"""Makes the seccomp filters of both Linux rungs, which refuse system calls (SPEC 3.8).

Bubblewrap needs a filter, too, because namespaces do not cover everything. The keyring of the kernel belongs to no
namespace, and may hold disk and network keys. Sockets of some families, such as vsock and bluetooth, reach out of a
network namespace. User namespaces, io_uring, bpf and the mount calls had many security holes, and no test suite or
build needs them. A filter also keeps commands from making a file that runs as its owner.
"""

from __future__ import annotations

import errno
import functools
import os
import platform
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

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

SIGNALS = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
"""Calls that send a signal. They are passed on to the supervisor only if Landlock does not confine signals."""

_CALLS_ON_CALLER = ("prlimit64", "sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr", "kill")
"""Calls whose first argument is a process. 0 is the caller itself, and its own group for `kill`."""

_TABLES = read_table(__file__, "syscalls.toml")


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


@dataclass(slots=True)
class _Program:
    """A program of classic BPF. An instruction has a code, a jump if true, a jump if false, and a value. A jump is the
    number of instructions to skip."""

    code: list[tuple[int, int, int, int]] = field(default_factory=list)

    def load_word(self, offset: int) -> None:
        """Load the 32 bits at `offset` of the call. The tests that follow compare them."""
        self.code.append((_BPF_LD_W_ABS, 0, 0, offset))

    def load_argument(self, index: int) -> None:
        """Load the lower half of an argument of the call."""
        self.load_word(_OFFSET_OF_ARGUMENTS + 8 * index)

    def return_action(self, action: int) -> None:
        self.code.append((_BPF_RET, 0, 0, action))

    def return_when(self, test: int, value: int, action: int) -> None:
        """Return `action` if the loaded word passes `test` with `value`."""
        self.code.append((test, 0, 1, value))
        self.return_action(action)

    def return_unless(self, value: int, action: int) -> None:
        """Return `action` if the loaded word is not `value`."""
        self.code.append((_BPF_JEQ, 1, 0, value))
        self.return_action(action)

    def mask(self, bits: int) -> None:
        """Keep only these bits of the loaded word."""
        self.code.append((_BPF_AND, 0, 0, bits))

    def add_block(self, value: int, body: _Program, *, test: int = _BPF_JEQ) -> None:
        """Run `body` only if the loaded word passes `test` with `value`. If what follows needs that word, `body` must
        return an action or load the word again."""
        self.code.append((test, 0, len(body.code), value))
        self.code += body.code

    def as_bytes(self) -> bytes:
        return b"".join(struct.pack("=HBBI", *instruction) for instruction in self.code)


@frozen
class WithoutNamespaces:
    """The options of a filter for commands that have no namespaces."""

    network: bool
    """Whether the network is allowed."""
    signals: bool
    """Whether Landlock confines signals (since Linux 6.12)."""
    truncation: bool
    """Whether Landlock confines truncation (since Linux 6.2)."""


def make_filter(machine: str, without_namespaces: WithoutNamespaces | None = None) -> bytes | None:
    """The filter for a `platform.machine()` in the form that the kernel reads; None for an unknown machine."""
    architecture = ARCHITECTURES.get(machine)
    if architecture is None:
        return None
    refused, absent = _SECCOMP_RET_ERRNO | errno.EPERM, _SECCOMP_RET_ERRNO | errno.ENOSYS
    program = _Program()
    program.load_word(_OFFSET_OF_ARCHITECTURE)
    program.return_unless(architecture.audit, absent)  # calls of 32-bit programs have other numbers
    program.load_word(_OFFSET_OF_NUMBER)
    program.return_when(_BPF_JGE, _X32_SYSCALL_BIT, absent)
    actions = {"refused": refused, "absent": absent}
    if without_namespaces is not None:
        actions |= {"shared": absent, "attributes": _SECCOMP_RET_ERRNO | errno.EOPNOTSUPP}
    for table, action in actions.items():
        for number in _read_call_numbers(table, architecture).values():
            program.return_when(_BPF_JEQ, number, action)
    if without_namespaces is not None:
        _add_passed_on_calls(program, read_passed_on_calls(machine, without_namespaces))
    _add_argument_checks(program, architecture, refused, without_namespaces)
    program.return_action(_SECCOMP_RET_ALLOW)
    return program.as_bytes()


def _add_argument_checks(
    program: _Program, architecture: Architecture, refused: int, without_namespaces: WithoutNamespaces | None
) -> None:
    """Refuse calls by their arguments: new user namespaces, files that run as their owner, input to terminals, and
    sockets of some families."""
    for call in (architecture.clone, architecture.unshare):
        program.add_block(call, _make_argument_program(0, _BPF_JSET, (_CLONE_NEWUSER,), refused))
    for call, index in architecture.modes:
        program.add_block(call, _make_argument_program(index, _BPF_JSET, (_S_ISUID,), refused))
    truncation = without_namespaces is None or without_namespaces.truncation
    for call, index in architecture.opens:
        program.add_block(call, _make_open_program(index, refused, truncation=truncation))
    # The kernel compares only the lower half of the number of an ioctl, so the filter does the same.
    if without_namespaces is None:
        terminal_input = _make_argument_program(1, _BPF_JEQ, (_TIOCSTI, _TIOCLINUX), refused)
        program.add_block(architecture.ioctl, terminal_input)
        program.add_block(architecture.socket, _make_socket_program((_AF_UNIX, _AF_INET, _AF_INET6)))
    else:
        numbers = (_TIOCSTI, _TIOCLINUX, *_SET_FILE_FLAGS, *_SET_SIGNAL_OWNER)
        families = (_AF_INET, _AF_INET6) if without_namespaces.network else ()
        program.add_block(architecture.ioctl, _make_argument_program(1, _BPF_JEQ, numbers, refused))
        program.add_block(architecture.fcntl, _make_argument_program(1, _BPF_JEQ, _F_SET_OWNER, refused))
        program.add_block(architecture.socket, _make_socket_program(families))
        program.add_block(architecture.socketpair, _make_socketpair_program())


def read_passed_on_calls(machine: str, without_namespaces: WithoutNamespaces) -> dict[str, int]:
    """The numbers of the system calls that the supervisor judges, by name. Calls that Landlock confines are left
    out."""
    confined = {
        *(SIGNALS if without_namespaces.signals else ()),
        *(("truncate",) if without_namespaces.truncation else ()),
    }
    calls = _read_call_numbers("passed_on", ARCHITECTURES[machine])
    return {name: call for name, call in calls.items() if name not in confined}


def _read_call_numbers(table: str, architecture: Architecture) -> dict[str, int]:
    """The numbers of the system calls in a table, by name. Calls that the architecture lacks are left out."""
    calls = {name: numbers[architecture.column] for name, numbers in _TABLES[table].items()}
    return {name: number for name, number in calls.items() if number >= 0}


def _add_passed_on_calls(program: _Program, calls: Mapping[str, int]) -> None:
    """Pass calls on to the supervisor. Calls about the caller itself (process 0) are allowed without it."""
    for name, call in calls.items():
        if name in _CALLS_ON_CALLER:
            program.add_block(
                call, _make_argument_program(0, _BPF_JEQ, (0,), _SECCOMP_RET_ALLOW, otherwise=_SECCOMP_RET_USER_NOTIF)
            )
        else:
            program.return_when(_BPF_JEQ, call, _SECCOMP_RET_USER_NOTIF)


def _make_argument_program(
    index: int, test: int, values: Iterable[int], action: int, *, otherwise: int = _SECCOMP_RET_ALLOW
) -> _Program:
    """Return `action` if the lower half of argument `index` passes `test` with one of `values`, and `otherwise` if
    not."""
    body = _Program()
    body.load_argument(index)
    for value in values:
        body.return_when(test, value, action)
    body.return_action(otherwise)
    return body


def _make_open_program(index: int, refused: int, *, truncation: bool) -> _Program:
    """Refuse to make a file that runs as its owner. Unless `truncation` is confined by Landlock, also refuse to
    truncate a file that is opened for reading only."""
    mode = _Program()
    mode.load_argument(index + 1)
    mode.return_when(_BPF_JSET, _S_ISUID, refused)
    mode.load_argument(index)
    body = _Program()
    body.load_argument(index)
    body.add_block(_O_CREAT | _O_TMPFILE, mode, test=_BPF_JSET)
    if not truncation:
        body.return_when(_BPF_JSET, _O_WRONLY | _O_RDWR, _SECCOMP_RET_ALLOW)
        body.return_when(_BPF_JSET, _O_TRUNC, refused)
    body.return_action(_SECCOMP_RET_ALLOW)
    return body


def _make_socketpair_program() -> _Program:
    """Allow any pair except of datagram sockets, which could be connected to other sockets."""
    body = _Program()
    body.load_argument(1)
    body.mask(_SOCK_TYPE_MASK)
    body.return_when(_BPF_JEQ, _SOCK_DGRAM, _SECCOMP_RET_ERRNO | errno.EPROTONOSUPPORT)
    body.return_action(_SECCOMP_RET_ALLOW)
    return body


def _make_socket_program(allowed: Iterable[int]) -> _Program:
    """Allow sockets of these families, and those that list network interfaces."""
    body = _Program()
    body.load_argument(0)
    for family in allowed:
        body.return_when(_BPF_JEQ, family, _SECCOMP_RET_ALLOW)
    body.return_unless(_AF_NETLINK, _SECCOMP_RET_ERRNO | errno.EAFNOSUPPORT)
    body.load_argument(2)
    # Of netlink, only protocol 0 (routes) is allowed, because programs list the network interfaces with it.
    body.return_unless(0, _SECCOMP_RET_ERRNO | errno.EPROTONOSUPPORT)
    body.return_action(_SECCOMP_RET_ALLOW)
    return body


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
    return f"/proc/{os.getpid()}/fd/{descriptor}"
