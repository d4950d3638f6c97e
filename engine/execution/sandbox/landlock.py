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
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from engine.execution.sandbox import Confinement, Sandbox, find_escape, make_supervised_command, mounts
from engine.execution.sandbox.host_paths import find_readable_places
from engine.execution.sandbox.mounts import Mount, MountKind
from engine.execution.sandbox.seccomp import ARCHITECTURES, FilterOptions, make_filter, read_passed_on_calls
from engine.execution.sandbox.supervisor.kernel import (
    LANDLOCK_EXECUTE,
    LANDLOCK_IOCTL_DEV,
    LANDLOCK_READ_FILE,
    LANDLOCK_TRUNCATE,
    LANDLOCK_WRITE_FILE,
)
from engine.installed import SANDBOX_FIX

_READ_DIR = 1 << 3
_MAKE_CHAR = 1 << 6
_MAKE_BLOCK = 1 << 11
_REFER = 1 << 13
"""Rights to files, as bits, besides those that the supervisor needs as well."""

_SCOPE_ABSTRACT_UNIX_SOCKET = 1 << 0
_SCOPE_SIGNAL = 1 << 1
"""What Landlock confines besides files, as bits."""

_CREATE_RULESET_CALL = 444
_CREATE_RULESET_VERSION = 1
"""The system call `landlock_create_ruleset`, and its flag by which it returns the version."""

READ = LANDLOCK_EXECUTE | LANDLOCK_READ_FILE | _READ_DIR
"""The rights at a place that may only be read."""

DEVICES = tuple(Path("/dev") / name for name in ("null", "zero", "full", "random", "urandom"))
"""The devices that commands may use."""

PROCESSES = Path("/proc")
"""The list of processes, which commands may read."""

REFER_SINCE_VERSION = 2
TRUNCATION_SINCE_VERSION = 3
IOCTL_SINCE_VERSION = 5
SIGNALS_SINCE_VERSION = 6
"""The first versions of Landlock that confine links between folders, truncation, calls of devices, and signals."""

_NEWEST_VERSION = 7
"""The newest version of Landlock that is known here."""


@functools.cache
def read_landlock_version() -> int:
    """The version of Landlock in the kernel, 0 for none."""
    if platform.system() != "Linux":
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, int(libc.syscall(_CREATE_RULESET_CALL, 0, 0, _CREATE_RULESET_VERSION)))


def find_handled_rights(version: int) -> int:
    """The rights to files that this version of Landlock knows, as bits."""
    rights = _REFER - 1  # the first version knows the bits below it
    for since, right in (
        (REFER_SINCE_VERSION, _REFER),
        (TRUNCATION_SINCE_VERSION, LANDLOCK_TRUNCATE),
        (IOCTL_SINCE_VERSION, LANDLOCK_IOCTL_DEV),
    ):
        rights |= right if version >= since else 0
    return rights


class Landlock(Sandbox):
    """The rung with this `version` of Landlock, by default that of the kernel."""

    name = "landlock"
    upgrade = SANDBOX_FIX

    def __init__(self, version: int | None = None) -> None:
        self._version = min(read_landlock_version() if version is None else version, _NEWEST_VERSION)

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
        if self._version < 1:
            return "this kernel has no Landlock, or it is switched off (it needs Linux 5.13 and `lsm=…,landlock`)"
        if platform.machine() not in ARCHITECTURES:
            return f"there is no system call filter for {platform.machine()}"
        return find_escape(self)

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

    def _make_supervisor_options(self, planned: Sequence[Mount], *, network: bool) -> list[str]:
        """The options by which the supervisor confines a command to the planned places."""
        handled = find_handled_rights(self._version)
        confines_signals = self._version >= SIGNALS_SINCE_VERSION
        scope = _SCOPE_ABSTRACT_UNIX_SOCKET | _SCOPE_SIGNAL if confines_signals else 0
        calls = FilterOptions(network, confines_signals, self._version >= TRUNCATION_SINCE_VERSION)
        machine = platform.machine()
        program = make_filter(machine, calls)
        assert program is not None, "`problem` said that there is one"
        return [
            f"handled={handled}:{scope}",
            *(f"rule={rights}:{place}" for place, rights in _make_rules(planned, handled)),
            *(f"writable={mount.at}" for mount in planned if mount.kind is MountKind.WRITE),
            f"filter={program.hex()}",
            *(f"call={number}:{name}" for name, number in read_passed_on_calls(machine, calls).items()),
        ]


def _make_rules(planned: Sequence[Mount], handled: int) -> Iterator[tuple[Path, int]]:
    """The rights at each place, for the planned places, the devices and the list of processes. `handled` are all rights
    that Landlock confines."""
    write = handled & ~(_MAKE_CHAR | _MAKE_BLOCK | LANDLOCK_IOCTL_DEV)
    for device in DEVICES:
        yield device, LANDLOCK_READ_FILE | LANDLOCK_WRITE_FILE | (write & LANDLOCK_TRUNCATE)
    yield PROCESSES, LANDLOCK_READ_FILE | _READ_DIR
    hidden = {mount.at for mount in planned if mount.kind is MountKind.HIDDEN}
    for mount in planned:
        if mount.kind is not MountKind.HIDDEN:
            yield from make_path_rules(mount.at, write if mount.kind is MountKind.WRITE else READ, hidden)


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
