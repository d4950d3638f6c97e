"""The rung for macOS: the program `sandbox-exec`, with a profile for each command (SPEC 3.8).

Apple calls the program deprecated, but still ships it. A command can see the names of other processes. It has no
loopback of its own, so without network it can neither listen nor connect.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from engine.execution.sandbox import PRIVATE_FOLDERS, Confinement, Sandbox, host_paths, mounts, try_command
from engine.execution.sandbox.mounts import MountKind

PROGRAM = Path("/usr/bin/sandbox-exec")

_PERSONAL_PLACES = tuple(
    map(Path, ("/Users", "/Volumes", "/private/var/root", "/private/var/folders", "/home", "/root"))
)
"""Places with files of people and of installed programs. The rest of a Mac is the system."""

_DEVICES = ("/dev/null", "/dev/zero", "/dev/dtracehelper")


class Seatbelt(Sandbox):
    """The rung of `sandbox-exec`. It has no host gate: a command has the whole network, if the workspace allows it, or
    none."""

    name = "seatbelt"

    def __init__(self, program: Path = PROGRAM) -> None:
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
        """Why it does not work on this machine; "" if it works. A command tries what must succeed and what must
        fail."""
        if not self._program.exists():
            return "sandbox-exec is not installed"
        with tempfile.TemporaryDirectory(prefix="clawpy-try-") as name:
            root = Path(name).resolve()
            for folder in ("folder", "hidden"):
                (root / folder).mkdir(parents=True)
            (root / "hidden" / "key").write_text("found")
            confinement = Confinement(root / "folder", root / "scratch", root / "caches")
            confinement.make()
            script = 'touch "$0/folder/made" && ! cat "$0/hidden/key" && ! touch "$0/made"'
            argv = self.wrap(["/bin/sh", "-c", script, str(root)], confinement, cwd=root / "folder")
            trial = try_command(argv, root / "folder")
            is_confined = (root / "folder" / "made").exists() and "found" not in trial.output
            return trial.problem or ("" if is_confined else "it did not hold a command")

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
            for place in (*PRIVATE_FOLDERS, *_PERSONAL_PLACES)
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
