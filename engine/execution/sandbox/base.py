"""What a session's commands may touch, and what a rung of the ladder has to do about it (SPEC 3.8)."""

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

PRIVATE = tuple(dict.fromkeys((Path("/tmp").resolve(), Path("/var/tmp").resolve())))
"""Places of which a session has its own, empty at first: other programs' temporary files are none of its business."""


@frozen
class Confinement:
    """What one session's commands may touch; all paths absolute. What is not named here and is no part of the system
    or of an installed tool (see `host_paths`) is not there for them.

    `folder` is where it works, writable but for its `.git`. `tree` is the operator's own tree: read-only, and where it
    is `folder` itself, written to as if it were writable and all that is discarded with the session. `scratch` goes
    with the session and is never shown itself, only folders in it. `caches` are written. `readable` are further places
    to read, `writable` to write. `hidden` are secrets, not seen even inside a place that is shown. `variables` names
    environment variables that commands inherit besides the usual ones. `bind_mounts` are folders that are seen
    elsewhere than they lie, and written: place inside, folder outside; only where something is laid over the tree.
    `prepared`: `folder` is a worktree with an environment of its own, which is used instead of the tree's.

    `network`: any public host; `hosts` are those that are needed, "name" or "name:port". `gate` is the socket of the
    filter that leads to them and to nothing else (see `HostGate`); without it there is no way out.
    """

    folder: Path
    scratch: Path
    caches: Path
    tree: Path | None = None
    readable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    network: bool = False
    writable: tuple[Path, ...] = ()
    hosts: tuple[str, ...] = ()
    gate: Path | None = None
    variables: tuple[str, ...] = ()
    bind_mounts: tuple[tuple[Path, Path], ...] = ()
    prepared: bool = False

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
        """What commands have for /tmp, or TMPDIR where a rung cannot move places."""
        return self.scratch / "tmp"

    @property
    def home(self) -> Path:
        """HOME of the commands, empty but for links to what their tools read (see `host_paths.furnish`)."""
        return self.scratch / "home"

    @property
    def layers(self) -> Path:
        """Where what is written over the operator's tree lies. Commands never see it."""
        return self.scratch / "layers"

    def make(self) -> None:
        """Make the folders of the session's own. Raises OSError."""
        for folder in (self.files, self.tmp, self.home, self.layers, self.caches):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self.layers / "empty").touch()


class Sandbox(ABC):
    """One rung of the ladder. `confines`: commands are held by the operating system, not by good manners.
    `can_filter_hosts`: it can hold commands to the hosts of a `HostGate`."""

    name: str
    confines = True
    can_filter_hosts = False

    @property
    @abstractmethod
    def fault(self) -> str:
        """Why it does not work here, in words; "" when it does: a command was held by it."""

    @property
    def limitations(self) -> Sequence[str]:
        """What it does not do here though it works."""
        return ()

    @abstractmethod
    def wrap(self, argv: Sequence[str], confinement: Confinement, *, cwd: Path) -> list[str]:
        """The command line that runs `argv` in `cwd` confined. Raises `Refusal` `sandbox_tampered` when a folder that
        it relies on was exchanged."""

    def overlays(self, confinement: Confinement) -> bool:
        """Whether it can have commands write over `confinement.tree` so that nothing of it stays. Where it cannot, a
        session that only checks works in a copy."""
        return False

    def describe(self, *, network: bool, hosts: Sequence[str] = ()) -> str:
        """How a session's row says it, for instance "bubblewrap, network only to api.anthropic.com"."""
        if network:
            return f"{self.name}, with network"
        to = f"network only to {', '.join(hosts)}" if hosts and self.can_filter_hosts else "no network"
        return f"{self.name}, {to}"

    def temporary(self, confinement: Confinement) -> str:
        """TMPDIR as commands see it."""
        return str(confinement.tmp)


@frozen
class Trial:
    """How a command went by which a rung was tried. `fault`: what kept it from succeeding, in words, "" for nothing."""

    fault: str
    output: str = ""


def try_command(argv: Sequence[str], cwd: Path | None = None) -> Trial:
    """Run a command to see whether a rung works here; ten seconds at most."""
    try:
        completed = subprocess.run(
            argv, cwd=cwd, capture_output=True, text=True, errors="replace", timeout=10, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Trial(str(error))
    fault = completed.stderr.strip()[-500:] or f"exit code {completed.returncode}"
    return Trial("" if completed.returncode == 0 else fault, completed.stdout)


UNCONFINED = "no sandbox"
"""How the row of a session says that nothing confined it."""


class NoSandbox(Sandbox):
    """The last rung: a clean environment, limits, and an end for every process with its command. Nothing autonomous may
    execute here."""

    name = "none"
    confines = False
    fault = ""

    def describe(self, *, network: bool, hosts: Sequence[str] = ()) -> str:
        return UNCONFINED

    def wrap(self, argv: Sequence[str], confinement: Confinement, *, cwd: Path) -> list[str]:
        return limits.supervised(["cwd", str(cwd)], argv) if sys.platform == "linux" else list(argv)


@frozen
class RungReport:
    """What `doctor` says of one rung. `limitations` is what it does not do here, or why it does not work; `fix` how to
    mend that, "" when there is nothing to mend."""

    name: str
    works: bool
    in_force: bool
    limitations: str = ""
    fix: str = ""
