"""What a session's commands may touch, and what a rung of the ladder has to do about it (SPEC 3.8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

SESSION_MARK = "CLAWPY_SESSION"
"""Environment variable that every process of a session carries: its session's id."""

PRIVATE = tuple(dict.fromkeys((Path("/tmp").resolve(), Path("/var/tmp").resolve())))
"""Places of which a session has its own, empty at first: other programs' temporary files are none of its business."""


@dataclass(frozen=True, slots=True)
class Confinement:
    """What one session's commands may touch; all paths absolute.

    `folder` is where it works, writable but for its `.git`. `readable` are shown read-only even where they lie in a
    place that is otherwise private (/tmp). `scratch` goes with the session, `caches` stay for later sessions of the
    same workspace. `writable` are further folders of the runner's own. `hidden` are secrets. `network` beyond loopback;
    `hosts` are all that is needed of it, "name" or "name:port", when the runner can say so: empty is not known.
    `gate` is the socket of the filter that leads to them and to nothing else (see `HostGate`), which takes the place
    of the network.
    """

    folder: Path
    scratch: Path
    caches: Path
    readable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    network: bool = False
    writable: tuple[Path, ...] = ()
    hosts: tuple[str, ...] = ()
    gate: Path | None = None


class Sandbox(Protocol):
    """One rung of the ladder."""

    @property
    def name(self) -> str: ...

    @property
    def confines(self) -> bool:
        """True when commands are held by the operating system, not by good manners."""

    @property
    def gates(self) -> bool:
        """True when it can hold commands to the hosts of a `HostGate`."""

    def describe(self, *, network: bool, hosts: Sequence[str] = ()) -> str:
        """How a session's row says it, for instance "bubblewrap, network only to api.anthropic.com"."""

    def wrap(self, argv: Sequence[str], confinement: Confinement, *, cwd: Path) -> list[str]:
        """The command line that runs `argv` in `cwd` confined. Raises `Refusal` `sandbox_tampered` when a folder that
        it relies on was exchanged."""

    def temporary(self, confinement: Confinement) -> str:
        """TMPDIR as commands see it."""


UNCONFINED = "no sandbox"
"""How the row of a session says that nothing confined it."""


class NoSandbox:
    """The last rung: a clean environment and a process group, no more. Nothing autonomous may execute here."""

    name = "none"
    confines = False
    gates = False

    def describe(self, *, network: bool, hosts: Sequence[str] = ()) -> str:
        return UNCONFINED

    def wrap(self, argv: Sequence[str], confinement: Confinement, *, cwd: Path) -> list[str]:
        return list(argv)

    def temporary(self, confinement: Confinement) -> str:
        return str(confinement.scratch / "tmp")


def described(name: str, *, network: bool, hosts: Sequence[str]) -> str:
    """The words of a rung that confines."""
    if network:
        return f"{name}, with network"
    return f"{name}, network only to {', '.join(hosts)}" if hosts else f"{name}, no network"


@dataclass(frozen=True, slots=True)
class RungReport:
    """What `doctor` says of one rung. `lacks` is what it does not do here, or why it does not work; `fix` how to mend
    that, "" when there is nothing to mend."""

    name: str
    works: bool
    in_force: bool
    lacks: str = ""
    fix: str = ""
