"""The rung of Landlock and seccomp, for Linux without user namespaces. It takes about 40 ms a command (SPEC 3.8).

The supervisor runs each command and confines it. Landlock confines which files the command opens, makes, moves and
removes, and to which processes it sends signals. Seccomp refuses sockets, and system calls that would reach shared
parts of the machine. The kernel passes calls that neither can judge on to the supervisor. A command has no loopback,
/tmp, /dev/shm or terminal of its own. See also `Landlock.limitations`.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from engine.execution.sandbox import Confinement, Sandbox, make_supervised_command, mounts, try_command
from engine.execution.sandbox.host_paths import SYSTEM, find_readable_places
from engine.execution.sandbox.mounts import Mount, MountKind
from engine.execution.sandbox.seccomp import ARCHITECTURES, WithoutNamespaces, make_filter, read_passed_on_calls
from engine.execution.sandbox.supervisor.kernel import (
    LANDLOCK_EXECUTE,
    LANDLOCK_IOCTL_DEV,
    LANDLOCK_READ_FILE,
    LANDLOCK_TRUNCATE,
    LANDLOCK_WRITE_FILE,
)
from engine.model import SANDBOX_FIX

_READ_DIR = 1 << 3
_MAKE_CHAR = 1 << 6
_MAKE_BLOCK = 1 << 11
_REFER = 1 << 13
_SCOPE_ABSTRACT_UNIX_SOCKET = 1 << 0
_SCOPE_SIGNAL = 1 << 1

READ = LANDLOCK_EXECUTE | LANDLOCK_READ_FILE | _READ_DIR
"""The rights at a place that may only be read."""

DEVICES = tuple(Path("/dev") / name for name in ("null", "zero", "full", "random", "urandom"))
"""The devices that commands may use."""

PROCESSES = Path("/proc")
"""The list of processes, which commands may read."""

SIGNALS_SINCE_VERSION = 6
"""The first version of Landlock that confines signals."""

TRUNCATION_SINCE_VERSION = 3
"""The first version of Landlock that confines truncation."""

_NEWEST_VERSION = 7
"""The newest version of Landlock that is known here."""


@functools.cache
def read_landlock_version() -> int:
    """The version of Landlock in the kernel, 0 for none."""
    if platform.system() != "Linux":
        return 0
    return max(0, int(ctypes.CDLL(None, use_errno=True).syscall(444, 0, 0, 1)))


def find_handled_rights(abi: int) -> int:
    """The rights to files that this version of Landlock knows, as bits."""
    rights = (1 << 13) - 1
    for since, right in ((2, _REFER), (TRUNCATION_SINCE_VERSION, LANDLOCK_TRUNCATE), (5, LANDLOCK_IOCTL_DEV)):
        rights |= right if abi >= since else 0
    return rights


class Landlock(Sandbox):
    """The rung with version `abi` of Landlock, by default that of the kernel."""

    name = "landlock"
    upgrade = SANDBOX_FIX

    def __init__(self, abi: int | None = None) -> None:
        self._abi = min(read_landlock_version() if abi is None else abi, _NEWEST_VERSION)

    def describe(self, *, network: bool, hosts: Sequence[str] = ()) -> str:
        return super().describe(network=network, hosts=hosts) + ("" if network else ", no loopback")

    def wrap(self, argv: Sequence[str], confinement: Confinement, *, cwd: Path) -> list[str]:
        assert not confinement.is_ephemeral, "a session works in a copy where nothing can be laid over the tree"
        readable = find_readable_places(confinement, argv[0])
        if confinement.network:
            readable.append(Path("/etc/resolv.conf").resolve())
        own_tmp = {confinement.tmp: confinement.tmp}
        planned = mounts.plan_mounts(confinement, [path.resolve() for path in readable], own_tmp)
        arguments = self._make_supervisor_options(planned, network=confinement.network)
        git = confinement.folder / ".git"
        if git.is_file() and not git.is_symlink():
            arguments.append(f"git={git}")
        return make_supervised_command([*arguments, f"cwd={cwd}"], argv)

    @functools.cached_property
    def problem(self) -> str:
        """Why it does not work on this machine; "" if it works. A command tries it."""
        if self._abi < 1:
            return "this kernel has no Landlock, or it is switched off (it needs Linux 5.13 and `lsm=…,landlock`)"
        if platform.machine() not in ARCHITECTURES:
            return f"there is no system call filter for {platform.machine()}"
        with tempfile.TemporaryDirectory(prefix="clawpy-") as name:
            inside, outside = Path(name).resolve() / "inside", Path(name).resolve() / "outside"
            inside.mkdir()
            outside.write_text("canary")
            planned = [Mount(MountKind.READ, place, place) for place in SYSTEM if place.exists()]
            planned.append(Mount(MountKind.WRITE, inside, inside))
            script = "touch in && chmod 700 in || exit 1; cat ../outside; chmod 000 ../outside; echo x >../outside"
            argv = make_supervised_command(
                [*self._make_supervisor_options(planned), f"cwd={inside}"], ["/bin/sh", "-c", f"{script}; exit 0"]
            )
            trial = try_command(argv)
            if trial.problem:
                return trial.problem
            if trial.output or outside.stat().st_mode & 0o777 == 0 or outside.read_text() != "canary":
                return "it did not hold a command"
            return ""

    @property
    def fix(self) -> str:
        return f"use a kernel of version 5.13 or newer with Landlock, or {SANDBOX_FIX}"

    @property
    def limitations(self) -> list[str]:
        """The accesses that it does not confine, and the places that commands do not have."""
        missing = [
            "commands see that files exist, their sizes and times, and the list of processes",
            "no loopback, no sockets except pairs, no /dev/shm (Python's multiprocessing locks need it) and no"
            " terminals of their own",
        ]
        if os.geteuid() == 0:
            missing.append("the engine runs as root, and the kernel does not count root's processes")
        return missing

    def _make_supervisor_options(self, planned: Sequence[Mount], *, network: bool = False) -> list[str]:
        """The options by which the supervisor confines a command to the planned places."""
        everything = find_handled_rights(self._abi)
        write = everything & ~(_MAKE_CHAR | _MAKE_BLOCK | LANDLOCK_IOCTL_DEV)
        scope = _SCOPE_ABSTRACT_UNIX_SOCKET | _SCOPE_SIGNAL if self._abi >= SIGNALS_SINCE_VERSION else 0
        device = LANDLOCK_READ_FILE | LANDLOCK_WRITE_FILE | (write & LANDLOCK_TRUNCATE)
        hidden = {mount.at for mount in planned if mount.kind is MountKind.HIDDEN}
        rules = [(place, device) for place in DEVICES]
        rules.append((PROCESSES, LANDLOCK_READ_FILE | _READ_DIR))
        for mount in planned:
            if mount.kind is not MountKind.HIDDEN:
                rules += make_path_rules(mount.at, write if mount.kind is MountKind.WRITE else READ, hidden)
        machine = platform.machine()
        options = WithoutNamespaces(network, self._abi >= SIGNALS_SINCE_VERSION, self._abi >= TRUNCATION_SINCE_VERSION)
        program = make_filter(machine, options)
        assert program is not None, "`problem` said that there is one"
        return [
            f"handled={everything}:{scope}",
            *(f"rule={right}:{place}" for place, right in rules),
            *(f"writable={mount.at}" for mount in planned if mount.kind is MountKind.WRITE),
            f"filter={program.hex()}",
            *(f"call={number}:{name}" for name, number in read_passed_on_calls(machine, options).items()),
        ]


def make_path_rules(place: Path, access: int, hidden: Collection[Path]) -> Iterator[tuple[Path, int]]:
    """The rules that give `access` to `place`, but not to the `hidden` places in it.

    Landlock has no rule that takes a right away. So if a place contains a hidden one, each of its other entries gets a
    rule of its own.
    """
    if place in hidden:
        return
    if not any(secret.is_relative_to(place) for secret in hidden):
        yield place, access
        return
    yield place, _READ_DIR
    try:
        entries = list(os.scandir(place))
    except OSError:
        return  # we may not read it either
    for entry in entries:
        if not entry.is_symlink():  # the rule for the target of a link decides
            yield from make_path_rules(Path(entry.path), access, hidden)
