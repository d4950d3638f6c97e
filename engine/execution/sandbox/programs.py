"""The rungs that confine a command by a program of the system: `bwrap` on Linux, `sandbox-exec` on macOS (SPEC 3.8).

With bubblewrap, which takes about 10 ms a command, each command has namespaces of its own. It sees the system,
installed tools and the places of its session. It has its own processes, /tmp, /run and /dev, and no network but its own
loopback. All its processes end with it. A seccomp filter and resource limits cover what namespaces do not.

With Seatbelt each command has a profile. Apple calls `sandbox-exec` deprecated, but still ships it. A command can see
the names of other processes. It has no loopback of its own, so without network it can neither listen nor connect.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from engine.execution.sandbox import (
    PLACEHOLDER_BYTES,
    PRIVATE_FOLDERS,
    SHARED_MEMORY_BYTES,
    Confinement,
    Sandbox,
    find_escape,
    host_paths,
    make_limit_script,
    mounts,
    port_forwarder,
    seccomp,
    try_command,
)
from engine.execution.sandbox.host_rules import find_local_hosts
from engine.execution.sandbox.mounts import Mount, MountKind

GATE_INSIDE = "/dev/clawpy-gate"
"""The path at which commands see the socket of their host gate. bubblewrap always makes a /dev."""

_LAUNCH = 'exec 9<"$0"; exec "$@"'
"""The end of the script that opens the filter on descriptor 9 and becomes bwrap."""

# A command of root could write these, because root owns them. So they are mounted read-only.
_KERNEL_SETTINGS = [
    word
    for path in host_paths.HOST_TABLES["kernel_settings"]
    if os.geteuid() == 0 and Path(path).exists()
    for word in ("--ro-bind", path, path)
]

_NO_NAMESPACES = re.compile("namespace|uid map|not permitted|permission denied", re.IGNORECASE)
"""What bwrap says if the kernel refuses namespaces."""
_ALLOW_NAMESPACES = (
    "allow unprivileged user namespaces: `sysctl kernel.unprivileged_userns_clone=1` or "
    "`user.max_user_namespaces=10000`; with AppArmor (Ubuntu) a profile for bwrap that has `userns,`"
)
"""How to allow namespaces."""

SANDBOX_EXEC = Path("/usr/bin/sandbox-exec")
"""The program of macOS that confines a command by a profile."""

_DEVICES = ("/dev/null", "/dev/zero", "/dev/dtracehelper")
"""The devices that commands may write."""


class Bubblewrap(Sandbox):
    """The rung of the `program` bwrap."""

    name = "bubblewrap"
    can_filter_hosts = True
    has_process_namespaces = True

    def __init__(self, program: str = "bwrap") -> None:
        # The full path is used, because the PATH of commands begins with programs of the project.
        self._program = shutil.which(program) or ""

    def get_temporary_folder(self, confinement: Confinement) -> str:
        return "/tmp"

    def can_overlay(self, confinement: Confinement) -> bool:
        layers = mounts.find_layers(confinement)
        return layers is not None and not mounts.find_mount_problem(layers)

    def wrap(self, argv: Sequence[str], confinement: Confinement, *, cwd: Path) -> list[str]:
        command = list(argv)
        readable = host_paths.find_readable_places(confinement, argv[0])
        gate = confinement.gate
        if gate is not None:
            command = port_forwarder.make_command(Path(GATE_INSIDE), find_local_hosts(confinement.hosts), command)
            readable += [
                *host_paths.find_program_installations(Path(sys.executable), host_paths.find_home(os.environ)),
                port_forwarder.SCRIPT,
            ]
        layers = mounts.find_layers(confinement)
        if layers is not None and mounts.find_mount_problem(layers):
            assert not confinement.is_ephemeral, "a session works in a copy where nothing can be laid over the tree"
            layers = None
        options = [*self._make_base_options(), *self._make_all_mount_options(confinement, readable, layers)]
        if gate is not None:
            options += ["--bind", str(gate), GATE_INSIDE]
        return self._make_launch_command([*options, "--remount-ro", "/", "--chdir", str(cwd)], command, layers)

    @functools.cached_property
    def problem(self) -> str:
        """Why it does not work on this machine, in the words of bwrap; "" if it works. It is tried with all kinds of
        options that are used."""
        if not self._program:
            return "bwrap is not installed"
        system_folders = [str(place) for place in host_paths.SYSTEM if place.is_dir() and not place.is_symlink()]
        system_options = [word for place in system_folders for word in ("--ro-bind", place, place)]
        rest = ["--tmpfs", "/tmp", "--remount-ro", "/", "--chdir", "/"]
        options = [*self._make_base_options(), *_make_link_options(), *system_options, *rest]
        return try_command(self._make_launch_command(options, ["true"])).problem

    @property
    def fix(self) -> str:
        if not self._program:
            return "install bubblewrap, for example `apt install bubblewrap` or `dnf install bubblewrap`"
        return _ALLOW_NAMESPACES if _NO_NAMESPACES.search(self.problem) else super().fix

    @property
    def limitations(self) -> list[str]:
        """What bwrap and the kernel of this machine cannot limit."""
        missing = []
        if seccomp.make_filter_file() is None:
            missing.append(f"there is no system call filter for {platform.machine()}")
        if not _has_size(self._program):
            missing.append("this version of bwrap cannot limit folders in memory; 0.8 can")
        if os.geteuid() == 0:
            missing.append("the engine runs as root, and the kernel does not count root's processes")
        return missing

    def _make_launch_command(
        self, options: Sequence[str], command: Sequence[str], layers: mounts.Layers | None = None
    ) -> list[str]:
        """The command line that sets limits, opens the filter on descriptor 9, mounts the overlays and starts bwrap.

        The filter is opened anew for each command, so that it is read from its beginning. It is opened before the
        overlays are mounted, because in their namespace a user may not read the files of this process.
        """
        bwrap = [self._program, *options]
        program = seccomp.make_filter_file()
        if program is not None:
            bwrap += ["--seccomp", "9"]
        command = [*bwrap, "--", *command]
        if layers is not None:
            script = f'cd "$0" || exit 125; {layers.make_script()}exec "$@"'
            command = [*mounts.UNSHARE, "/bin/sh", "-c", script, str(layers.folder), *command]
        return ["/bin/sh", "-c", make_limit_script() + _LAUNCH, program or "/dev/null", *command]

    def _make_base_options(self) -> list[str]:
        """The options of every command: its namespaces, its rights, /proc and /dev."""
        # With die-with-parent and a process namespace, no process survives. With new-session, no command can type into
        # our terminal.
        options = ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
        if os.geteuid() != 0:
            # In the namespace of the overlays the user is root. Here it gets its own id back.
            options += ["--unshare-user", "--uid", str(os.geteuid()), "--gid", str(os.getegid())]
        return [
            *options, "--proc", "/proc", *_KERNEL_SETTINGS, "--dev", "/dev",
            *self._make_memory_options("/dev/shm", SHARED_MEMORY_BYTES),
        ]  # fmt: skip

    def _make_memory_options(self, path: str, max_bytes: int = PLACEHOLDER_BYTES) -> list[str]:
        """Options for a folder in memory, of at most `max_bytes` if this bwrap can limit it."""
        return [*(("--size", str(max_bytes)) if _has_size(self._program) else ()), "--tmpfs", path]

    def _make_all_mount_options(
        self, confinement: Confinement, readable: Sequence[Path], layers: mounts.Layers | None
    ) -> list[str]:
        """The options that show the places of a command. Missing folders of the session are made."""
        empty = str(confinement.layers / "empty")
        moved = {place: confinement.tmp for place in PRIVATE_FOLDERS if place.is_dir()}
        if layers is not None:
            moved |= {place: layers.get_source(place) for place in layers.places}
        if confinement.is_ephemeral:
            moved |= _find_sources_over_tree(confinement, moved[confinement.folder])
        links = _make_link_options()
        planned = mounts.plan_mounts(confinement, (path for path in readable if str(path) not in links), moved)
        mounts.make_pinned((mount for mount in planned if mount.kind is MountKind.WRITE), confinement.tmp)
        arguments = [*links, "--dir", "/run", "--dir", "/tmp", "--dir", "/var"]
        for mount in planned:
            arguments += self._make_mount_options(mount, empty)
        return arguments

    def _make_mount_options(self, mount: Mount, empty: str) -> list[str]:
        """The options of bwrap for one mount. `empty` is what is seen in place of a hidden place."""
        at, source = str(mount.at), str(mount.source)
        if mount.kind is MountKind.WRITE:
            return ["--bind", source, at]
        if mount.kind is MountKind.READ:
            return ["--ro-bind", source, at]
        return self._make_memory_options(at) if mount.at.is_dir() else ["--ro-bind", empty, at]


def _find_sources_over_tree(confinement: Confinement, overlay: Path) -> dict[Path, Path]:
    """The sources of what commands see over the operator's tree, by path: the `.git` in the `overlay` of the tree,
    the caches of tools, and the bind mounts."""
    sources = {}
    own_git = confinement.folder / ".git"
    if own_git.exists() and not own_git.is_symlink():
        sources[own_git] = overlay / ".git"
    bind_mounts = dict(confinement.bind_mounts)
    caches = mounts.make_tree_caches(confinement)
    sources |= {path: cache for path, cache in caches.items() if bind_mounts.keys().isdisjoint(path.parents)}
    return sources | bind_mounts


@functools.cache
def _has_size(program: str) -> bool:
    """Whether this bwrap can limit the size of a tmpfs. Version 0.6 cannot."""
    return "--size BYTES" in try_command([program, "--help"]).output


@functools.cache
def _make_link_options() -> list[str]:
    """Options that make those system folders which are links."""
    options = []
    for place in map(Path, host_paths.HOST_TABLES["system_links"]):
        if place.is_symlink():  # nothing can be mounted on a link
            options += ["--symlink", str(place.readlink()), str(place)]
    return options


class Seatbelt(Sandbox):
    """The rung of `sandbox-exec`. It has no host gate: a command has the whole network, if the workspace allows it, or
    none."""

    name = "seatbelt"

    def __init__(self, program: Path = SANDBOX_EXEC) -> None:
        self._program = program

    def wrap(self, argv: Sequence[str], confinement: Confinement, *, cwd: Path) -> list[str]:
        return [
            str(self._program),
            "-p",
            make_profile(confinement, host_paths.find_readable_places(confinement, argv[0])),
            *argv,
        ]

    @functools.cached_property
    def problem(self) -> str:
        """Why it does not work on this machine; "" if it works. A command tries it."""
        if not self._program.exists():
            return "sandbox-exec is not installed"
        return find_escape(self)

    @property
    def fix(self) -> str:
        if not self._program.exists():
            return f"restore {self._program}, which is a part of macOS"
        if "not permitted" in self.problem:
            return "start clawpy outside of other sandboxes: sandbox-exec does not work inside one"
        return super().fix

    @property
    def limitations(self) -> list[str]:
        """What it cannot confine on any Mac."""
        return [
            "its profile was written without a Mac; it has only been tested by the check on this machine",
            "no loopback of its own",
            "no gate to the hosts of an agent, which needs `network = true`",
        ]


def make_profile(confinement: Confinement, readable: Iterable[Path] = ()) -> str:
    """The profile of a command that may read `readable` and the system.

    The last rule that matches decides. So the rules have the order of the plan, in which deeper paths come later.
    """
    lines = [
        "(version 1)",
        "(deny default)",
        "(allow process-exec)",
        "(allow process-fork)",
        "(allow signal (target same-sandbox))",
        "(allow process-info* (target same-sandbox))",
        "(allow sysctl-read)",
        "(allow ipc-posix-sem)",
        '(allow mach-lookup (global-name "com.apple.system.opendirectoryd.libinfo"))',
        "(allow file-read*)",
        "(allow file-write* " + " ".join(f"(literal {quote_path(path)})" for path in _DEVICES) + ")",
        *(
            f"(deny file-read-data file-write* (subpath {quote_path(place)}))"
            for place in (*PRIVATE_FOLDERS, *host_paths.HOST_TABLES["personal_places"])
        ),
    ]
    for mount in mounts.plan_mounts(confinement, readable):
        kind, path = mount.kind, mount.at
        subpath = f"(subpath {quote_path(path)})"
        if kind is MountKind.WRITE:
            lines += [f"(allow file-read* file-write* {subpath})"]
        elif kind is MountKind.READ:
            # The place must not be renamed either, nor a folder that contains it.
            lines += [f"(allow file-read* {subpath})", f"(deny file-write* {subpath})"]
            lines += _pin_parents(path, confinement)
        else:
            lines += [f"(deny file-read* file-write* {subpath})", *_pin_parents(path, confinement)]
    if confinement.network:
        lines += [
            "(allow network*)",
            "(deny network-outbound (remote unix-socket))",
            '(allow network-outbound (literal "/private/var/run/mDNSResponder"))',
            "(allow system-socket)",
            '(allow mach-lookup (global-name "com.apple.SystemConfiguration.configd"))',
        ]
    return "\n".join(lines) + "\n"


def _pin_parents(path: Path, confinement: Confinement) -> list[str]:
    """Rules against renaming the folders between a writable place and a protected path in it."""
    own_folders = (confinement.folder, confinement.scratch, confinement.caches, *confinement.writable)
    between = [parent for parent in path.parents if any(place in parent.parents for place in own_folders)]
    return [f"(deny file-write-unlink (literal {quote_path(parent)}))" for parent in between]


def quote_path(path: Path | str) -> str:
    """A path as a string in the language of profiles. Raises ValueError for a control character, because the language
    cannot escape it."""
    text = str(path)
    if any(character < " " or character == "\x7f" for character in text):
        raise ValueError(f"a path with a control character cannot be confined: {text!r}")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
