"""Assembles the seccomp filter: the system calls that a sandboxed command may not make (SPEC 3.8).

It closes what namespaces leave open. The kernel's keyring goes with the credentials, not with a namespace, and may hold
disk and network keys. Sockets of some families (a virtual machine's vsock, bluetooth) know no network namespace and
lead out of it. User namespaces, io_uring, bpf and the mount calls had many holes that an unprivileged program could
use; no test suite or build needs them. No file that runs as its owner is made.

Without namespaces (Landlock's rung) it closes more: sockets but for pairs, other programs' shared memory and message
queues; and it passes calls on to the supervisor that can be judged only by looking at paths and processes.
"""

from __future__ import annotations

import errno
import functools
import os
import platform
import struct
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from engine.execution.sandbox.supervisor import PASSED_ON, SIGNALS
from engine.frozen import frozen

_LOAD, _EQUAL, _GREATER_EQUAL, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_ALLOW, _ERRNO, _PASS_ON = 0x7FFF0000, 0x00050000, 0x7FC00000
_X32 = 0x40000000
_CLONE_NEWUSER = 0x10000000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_FILE_FLAGS = (0x40086602, 0x401C5820)  # chattr, which needs a file to be open for reading alone
_SIGNAL_OWNER = (0x8901, 0x8902)  # FIOSETOWN, SIOCSPGRP
_SET_OWNER = (8, 15)  # F_SETOWN, F_SETOWN_EX
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_SOCKET_KIND, _DATAGRAM = 0xF, 2
_SET_USER_ID = 0o4000
_WRITE_ONLY, _READ_WRITE, _CREATE, _TRUNCATE, _TEMPORARY = 1, 2, 0o100, 0o1000, 0o20000000

_TABLES = tomllib.loads(Path(__file__).with_name("syscalls.toml").read_text())


@frozen
class Architecture:
    """Numbers of one kind of machine."""

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
    """Calls that set the mode of a file, and which argument has it."""
    opens: list[tuple[int, int]]
    """Calls that open a file, and which argument has the flags; the mode comes after."""


ARCHITECTURES = {name: Architecture(**row) for name, row in _TABLES["architectures"].items()}


@dataclass(slots=True)
class _Program:
    """Instructions of classic BPF: code, jump if true, jump if false, value. A jump counts the instructions to skip."""

    code: list[tuple[int, int, int, int]] = field(default_factory=list)

    def load_word(self, offset: int) -> None:
        """Load the 32 bits at `offset` of the call, for the tests that follow."""
        self.code.append((_LOAD, 0, 0, offset))

    def answer(self, answer: int) -> None:
        self.code.append((_RETURN, 0, 0, answer))

    def answer_when(self, test: int, value: int, answer: int) -> None:
        """`answer` when the loaded word passes `test` with `value`."""
        self.code.append((test, 0, 1, value))
        self.answer(answer)

    def answer_unless(self, value: int, answer: int) -> None:
        """`answer` when the loaded word is not `value`."""
        self.code.append((_EQUAL, 1, 0, value))
        self.answer(answer)

    def add_block(self, call: int, body: _Program) -> None:
        """`body` for this call alone; it ends with an answer."""
        self.code.append((_EQUAL, 0, len(body.code), call))
        self.code += body.code

    def as_bytes(self) -> bytes:
        return b"".join(struct.pack("=HBBI", *instruction) for instruction in self.code)


@frozen
class WithoutNamespaces:
    """How the filter works where there are no namespaces."""

    network: bool
    """The network is allowed."""
    signals: bool
    """Landlock holds signals itself (since Linux 6.12)."""
    truncation: bool
    """Landlock holds truncation itself (since Linux 6.2)."""


def filter_program(machine: str, without_namespaces: WithoutNamespaces | None = None) -> bytes | None:
    """The filter for the `platform.machine()` in the form that the kernel reads; None where none is known."""
    architecture = ARCHITECTURES.get(machine)
    if architecture is None:
        return None
    refused, absent = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
    program = _Program()
    program.load_word(_ARCHITECTURE)
    program.answer_unless(architecture.audit, absent)  # the 32-bit table has other numbers
    program.load_word(_NUMBER)
    program.answer_when(_GREATER_EQUAL, _X32, absent)
    answers = {"refused": refused, "absent": absent}
    if without_namespaces is not None:
        answers |= {"shared": absent, "attributes": _ERRNO | errno.EOPNOTSUPP}
    for table, answer in answers.items():
        for numbers in _TABLES[table].values():
            if (number := numbers[architecture.column]) >= 0:
                program.answer_when(_EQUAL, number, answer)
    if without_namespaces is not None:
        _add_passed_on_calls(program, machine, without_namespaces)
    for call in (architecture.clone, architecture.unshare):
        program.add_block(call, _argument_program(0, _ANY_BIT, (_CLONE_NEWUSER,), refused))
    for call, index in architecture.modes:
        program.add_block(call, _argument_program(index, _ANY_BIT, (_SET_USER_ID,), refused))
    for call, index in architecture.opens:
        program.add_block(
            call, _open_program(index, refused, truncation=without_namespaces is None or without_namespaces.truncation)
        )
    # The kernel looks at the lower half of an ioctl's number only, and so does this.
    numbered = (_TIOCSTI, _TIOCLINUX, *((*_FILE_FLAGS, *_SIGNAL_OWNER) if without_namespaces else ()))
    program.add_block(architecture.ioctl, _argument_program(1, _EQUAL, numbered, refused))
    if without_namespaces is None:
        program.add_block(architecture.socket, _socket_program((_UNIX, _INET, _INET6)))
    else:
        program.add_block(architecture.fcntl, _argument_program(1, _EQUAL, _SET_OWNER, refused))
        program.add_block(architecture.socket, _socket_program((_INET, _INET6) if without_namespaces.network else ()))
        program.add_block(architecture.socketpair, _socketpair_program())
    program.answer(_ALLOW)
    return program.as_bytes()


def _add_passed_on_calls(program: _Program, machine: str, without_namespaces: WithoutNamespaces) -> None:
    """Pass on the calls that the supervisor judges. Those about the caller itself (process 0) go on without it."""
    with_process = ("prlimit64", "sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr", "kill")
    for name, call in PASSED_ON[machine].items():
        if (name in SIGNALS and without_namespaces.signals) or (name == "truncate" and without_namespaces.truncation):
            continue
        if name in with_process:
            program.add_block(call, _argument_program(0, _EQUAL, (0,), _ALLOW, otherwise=_PASS_ON))
        else:
            program.answer_when(_EQUAL, call, _PASS_ON)


def _argument_program(
    index: int, test: int, values: Iterable[int], answer: int, *, otherwise: int = _ALLOW
) -> _Program:
    """`answer` when the lower half of argument `index` passes the test with one of the values."""
    body = _Program()
    body.load_word(_ARGUMENTS + 8 * index)
    for value in values:
        body.answer_when(test, value, answer)
    body.answer(otherwise)
    return body


def _open_program(index: int, refused: int, *, truncation: bool) -> _Program:
    """No new file that runs as its owner; and no truncation of a file that is only read, unless `truncation`."""
    mode = _Program()
    mode.load_word(_ARGUMENTS + 8 * index + 8)
    mode.answer_when(_ANY_BIT, _SET_USER_ID, refused)
    mode.load_word(_ARGUMENTS + 8 * index)
    body = _Program()
    body.load_word(_ARGUMENTS + 8 * index)
    body.code.append((_ANY_BIT, 0, len(mode.code), _CREATE | _TEMPORARY))
    body.code += mode.code
    if not truncation:
        body.answer_when(_ANY_BIT, _WRITE_ONLY | _READ_WRITE, _ALLOW)
        body.answer_when(_ANY_BIT, _TRUNCATE, refused)
    body.answer(_ALLOW)
    return body


def _socketpair_program() -> _Program:
    """Any pair but datagram sockets, which could be connected to any other."""
    body = _Program()
    body.load_word(_ARGUMENTS + 8)
    body.code.append((_AND, 0, 0, _SOCKET_KIND))
    body.answer_when(_EQUAL, _DATAGRAM, _ERRNO | errno.EPROTONOSUPPORT)
    body.answer(_ALLOW)
    return body


def _socket_program(allowed: Iterable[int]) -> _Program:
    body = _Program()
    body.load_word(_ARGUMENTS)
    for family in allowed:
        body.answer_when(_EQUAL, family, _ALLOW)
    body.answer_unless(_NETLINK, _ERRNO | errno.EAFNOSUPPORT)
    body.load_word(_ARGUMENTS + 16)
    body.answer_unless(0, _ERRNO | errno.EPROTONOSUPPORT)  # of netlink only routes: what lists the interfaces
    body.answer(_ALLOW)
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
