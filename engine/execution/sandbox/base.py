"""The places that a session's commands may touch, and the base class of the rungs that hold them to it (SPEC 3.8)."""

from __future__ import annotations

import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from engine.execution.sandbox import limits
from engine.frozen import frozen

SESSION_MARK = "CLAWPY_SESSION"
"""Environment variable that every process of a session carries: its session's id."""

PRIVATE_FOLDERS = tuple(dict.fromkeys((Path("/tmp").resolve(), Path("/var/tmp").resolve())))
"""Places of which a session has its own, empty at first: other programs' temporary files are none of its business."""


@frozen
class Confinement:
    """The places and hosts that one session's commands may touch; all paths absolute. A place that is not named here
    and is no part of the system or of an installed tool (see `host_paths`) does not exist for them."""

    folder: Path
    """Where the session works: writable but for its `.git`."""
    scratch: Path
    """Deleted with the session. Never shown itself, only folders in it."""
    caches: Path
    """Written by tools."""
    tree: Path | None = None
    """The operator's own tree, read-only. Where it is `folder` itself, commands write over it, and all that they wrote
    is discarded with the session."""
    readable: tuple[Path, ...] = ()
    """Further places to read."""
    hidden: tuple[Path, ...] = ()
    """Secrets, not seen even inside a place that is shown."""
    network: bool = False
    """Any public host may be reached."""
    writable: tuple[Path, ...] = ()
    """Further places to write."""
    hosts: tuple[str, ...] = ()
    """Hosts that are needed, "name" or "name:port"."""
    gate: Path | None = None
    """The socket of the filter that leads to `hosts` and to nothing else (see `HostGate`)."""
    variables: tuple[str, ...] = ()
    """Names of environment variables that commands inherit besides the usual ones."""
    bind_mounts: tuple[tuple[Path, Path], ...] = ()
    """Writable folders that are seen elsewhere than they lie: place inside, folder outside. Only over an overlay."""
    prepared: bool = False
    """`folder` is a worktree with an environment of its own, which is used instead of the tree's."""

    @property
    def is_ephemeral(self) -> bool:
        """Whether what is written in `folder` is thrown away, because it is the operator's tree."""
        return self.tree is not None and self.folder == self.tree

    @property
    def files(self) -> Path:
        """Files of the session's own; commands write them under the same path."""
        return self.scratch / "files"

    @property
    def tmp(self) -> Path:
        """The folder that commands see as /tmp, or as TMPDIR where a rung cannot move places."""
        return self.scratch / "tmp"

    @property
    def home(self) -> Path:
        """HOME of the commands, empty but for links to what their tools read (see `host_paths.link_tools`)."""
        return self.scratch / "home"

    @property
    def layers(self) -> Path:
        """The folder of what is written over the operator's tree. Commands never see it."""
        return self.scratch / "layers"

    def make(self) -> None:
        """Make the folders of the session's own. Raises OSError."""
        for folder in (self.files, self.tmp, self.home, self.layers, self.caches):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self.layers / "empty").touch()


class Sandbox(ABC):
    """One rung of the ladder."""

    name: str
    confines = True
    """The operating system holds commands to their places."""
    can_filter_hosts = False
    """It can hold commands to the hosts of a `HostGate`."""

    @property
    @abstractmethod
    def problem(self) -> str:
        """Why it does not work here; "" when it does, which a command has shown that it held."""

    @property
    def limitations(self) -> Sequence[str]:
        """Limits of the rung on this machine, where it works."""
        return ()

    @abstractmethod
    def wrap(self, argv: Sequence[str], confinement: Confinement, *, cwd: Path) -> list[str]:
        """The command line that runs `argv` confined in `cwd`. Raises `Refusal` `sandbox_tampered` when a folder that
        it relies on was exchanged."""

    def can_overlay(self, confinement: Confinement) -> bool:
        """Whether commands can write over `confinement.tree` without a change to it. Where they cannot, a session that
        only checks works in a copy."""
        return False

    def describe(self, *, network: bool, hosts: Sequence[str] = ()) -> str:
        """The text of a session's row, for instance "bubblewrap, network only to api.anthropic.com"."""
        if network:
            return f"{self.name}, with network"
        to = f"network only to {', '.join(hosts)}" if hosts and self.can_filter_hosts else "no network"
        return f"{self.name}, {to}"

    def temporary_folder(self, confinement: Confinement) -> str:
        """TMPDIR as commands see it."""
        return str(confinement.tmp)


@frozen
class Trial:
    """The outcome of a command that tries a rung."""

    problem: str
    """Why the command failed; "" when it succeeded."""
    output: str = ""


def try_command(argv: Sequence[str], cwd: Path | None = None) -> Trial:
    """Run a command to see whether a rung works here; ten seconds at most."""
    try:
        completed = subprocess.run(
            argv, cwd=cwd, capture_output=True, text=True, errors="replace", timeout=10, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Trial(str(error))
    problem = completed.stderr.strip()[-500:] or f"exit code {completed.returncode}"
    return Trial("" if completed.returncode == 0 else problem, completed.stdout)


UNCONFINED = "no sandbox"
"""How the row of a session says that nothing confined it."""


class NoSandbox(Sandbox):
    """The last rung: a clean environment, limits, and an end for every process with its command. Nothing autonomous may
    execute here."""

    name = "none"
    confines = False
    problem = ""

    def describe(self, *, network: bool, hosts: Sequence[str] = ()) -> str:
        return UNCONFINED

    def wrap(self, argv: Sequence[str], confinement: Confinement, *, cwd: Path) -> list[str]:
        return limits.supervised_command([f"cwd={cwd}"], argv) if sys.platform == "linux" else list(argv)


@frozen
class RungReport:
    """The report of `doctor` on one rung."""

    name: str
    works: bool
    in_force: bool
    limitations: str = ""
    """Its limits here, or why it does not work."""
    fix: str = ""
    """How to get it to work; "" when it does."""
