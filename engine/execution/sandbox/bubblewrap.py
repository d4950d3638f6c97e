"""The rung of Linux namespaces: `bwrap`, unprivileged, about 10 ms a command (SPEC 3.8).

A world of its own for each command: read-only but for the session's places, without secrets and without other
programs' sockets, with its own processes, its own loopback and no other network, its own /tmp, /run and /dev. Nothing
in it outlives it. A seccomp filter and resource limits close what namespaces leave open.

Landlock inside it would add little: what it guards (files, ports, signals, abstract sockets) is not there to begin
with, but for named pipes, which are hidden as sockets are; and to switch it on takes a program inside that costs more
than all the rest.
"""

from __future__ import annotations

import functools
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from engine.execution.sandbox import forward, limits, mounts, seccomp
from engine.execution.sandbox.base import PRIVATE, Confinement, described
from engine.execution.sandbox.hosts import local_hosts
from engine.execution.sandbox.installations import tools_in
from engine.execution.sandbox.listeners import listeners
from engine.execution.sandbox.mounts import RUN, Kind

GATE_INSIDE = "/dev/clawpy-gate"
"""Where commands find the socket of their host gate; /dev is bubblewrap's own and is always there."""

_LAUNCH = 'exec 9<"$0"; exec "$@"'


# Root stays root as far as the owner of a file is concerned, and owns these.
_KERNEL_SETTINGS = [
    word
    for path in ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/scsi", "/proc/acpi")
    if os.geteuid() == 0 and Path(path).exists()
    for word in ("--ro-bind", path, path)
]


class Bubblewrap:
    """`bwrap` at `program`."""

    name = "bubblewrap"
    confines = True
    gates = True

    def __init__(self, program: str = "bwrap") -> None:
        self._program = program

    def describe(self, *, network: bool, hosts: Sequence[str] = ()) -> str:
        return described(self.name, network=network, hosts=hosts)

    def temporary(self, confinement: Confinement) -> str:
        return "/tmp"

    def wrap(self, argv: Sequence[str], confinement: Confinement, *, cwd: Path) -> list[str]:
        mounts.check_sources(confinement)
        command = list(argv)
        needed = tools_in(PRIVATE, argv[0])
        gate = confinement.gate
        if gate is not None:
            command = forward.command(Path(GATE_INSIDE), local_hosts(confinement.hosts), command)
            needed += [*tools_in(PRIVATE, sys.executable), forward.SCRIPT]
        seen = (confinement.folder, confinement.scratch, confinement.caches, *confinement.readable)
        tools = [tool for tool in needed if not any(tool.is_relative_to(one) for one in seen)]
        confinement = replace(confinement, readable=(*confinement.readable, *tools))
        options = [*self._base(), *self._mounts(confinement)]
        if gate is not None:
            options += ["--bind", str(gate), GATE_INSIDE]
        elif confinement.network:
            options += ["--share-net"]
        return self._launched([*options, "--chdir", str(cwd)], command)

    @functools.cached_property
    def fault(self) -> str:
        """Why it does not work here, in bwrap's words; "" when it does. Tried with every kind of option in use."""
        options = [*self._base(), "--tmpfs", "/tmp", "--chdir", "/"]
        try:
            done = subprocess.run(
                self._launched(options, ["true"]),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=10,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        if done.returncode == 0:
            return ""
        return done.stderr.strip() or f"exit code {done.returncode}"

    @property
    def lacks(self) -> list[str]:
        """What it does not do here though it works."""
        found = []
        if seccomp.filter_file() is None:
            found.append(f"no filter of system calls is known for {platform.machine()}")
        if not _has_size(self._program):
            found.append("this bwrap cannot limit folders in memory; 0.8 can")
        if os.geteuid() == 0:
            found.append("the engine runs as root, whose processes the kernel does not count")
        return found

    def works(self) -> bool:
        """Whether it really confines here, tried once."""
        return not self.fault

    def _launched(self, options: Sequence[str], command: Sequence[str]) -> list[str]:
        """Limited, and with the filter on descriptor 9, which a shell opens: each start reads it from its beginning."""
        bwrap = [self._program, *options]
        program = seccomp.filter_file()
        if program is not None:
            bwrap += ["--seccomp", "9"]
        return ["/bin/sh", "-c", limits.limiting() + _LAUNCH, program or "/dev/null", *bwrap, "--", *command]

    def _base(self) -> list[str]:
        # die-with-parent and the process namespace: nothing survives. new-session: no typing into our terminal.
        return [
            "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL",
            "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc",
            *_KERNEL_SETTINGS, *self._memory("/dev/shm", limits.SHARED_MEMORY_BYTES),
        ]  # fmt: skip

    def _memory(self, at: str, most: int = limits.PLACEHOLDER_BYTES) -> list[str]:
        """A folder in memory, of at most so many bytes where bwrap can tell."""
        return [*(("--size", str(most)) if _has_size(self._program) else ()), "--tmpfs", at]

    def _mounts(self, confinement: Confinement) -> list[str]:
        scratch, gate = confinement.scratch, confinement.gate
        own_tmp, empty = str(scratch / "tmp"), str(scratch / "empty")
        arguments = []
        for place in PRIVATE:
            if place.is_dir():
                arguments += ["--bind", own_tmp, str(place)]
        if RUN.is_dir():
            arguments += [*self._memory(str(RUN)), *_kept_of_run(confinement.network and confinement.gate is None)]
        for kind, path in mounts.plan(confinement, listeners([gate] if gate else [])):
            at = str(path)
            if kind is Kind.WRITE:
                arguments += ["--bind", at, at]
            elif kind is Kind.READ:
                arguments += ["--ro-bind", at, at]
            elif path.is_dir():
                arguments += self._memory(at)
            else:
                arguments += ["--ro-bind", empty, at]
            if path == scratch:
                # Sources of the next command's mounts: as mount points they cannot be exchanged for links.
                arguments += ["--bind", own_tmp, own_tmp, "--ro-bind", empty, empty]
        return arguments


@functools.cache
def _has_size(program: str) -> bool:
    """Whether this bwrap can limit a tmpfs (0.6 can not)."""
    try:
        done = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return "--size BYTES" in done.stdout + done.stderr


def _kept_of_run(network: bool) -> list[str]:
    """What programs need of /run, which is empty otherwise: NixOS' system, the resolver's file."""
    kept = ["/run/current-system", "/run/opengl-driver"]
    if network:
        resolver = Path("/etc/resolv.conf").resolve()
        if resolver.is_relative_to(RUN):
            kept.append(str(resolver.parent))
    return [word for path in kept if Path(path).exists() for word in ("--ro-bind", path, path)]


def found() -> Bubblewrap | None:
    """The bwrap on the search path."""
    program = shutil.which("bwrap")
    return None if program is None else Bubblewrap(program)
