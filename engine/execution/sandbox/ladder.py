"""Chooses the rung of the sandbox ladder that is used on this machine, and reports on all rungs (SPEC 3.8).

On Linux the rungs are bubblewrap, and Landlock with seccomp; on macOS Seatbelt; elsewhere there is none. That a program
is installed is not enough: a rung is used only if it confined a real command on this machine.
"""

from __future__ import annotations

import functools
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.execution.sandbox import Confinement, Sandbox, make_supervised_command
from engine.execution.sandbox.bubblewrap import Bubblewrap
from engine.execution.sandbox.landlock import Landlock
from engine.execution.sandbox.seatbelt import Seatbelt
from engine.frozen import frozen
from engine.model import SANDBOX_FIX

_SYSTEMS = {"bubblewrap": "Linux", "landlock": "Linux", "seatbelt": "Darwin"}
"""The system of each rung, the best rung first."""

UNCONFINED = "no sandbox"
"""The text in the row of a session that nothing confined."""


class NoSandbox(Sandbox):
    """The last rung. A command has a clean environment and limits, and all its processes end with it, but nothing
    confines it. Work that runs by itself executes no command on this rung."""

    name = "none"
    upgrade = SANDBOX_FIX
    confines = False
    problem = ""

    def describe(self, *, network: bool, hosts: Sequence[str] = ()) -> str:
        return UNCONFINED

    def wrap(self, argv: Sequence[str], confinement: Confinement, *, cwd: Path) -> list[str]:
        return make_supervised_command([f"cwd={cwd}"], argv) if sys.platform == "linux" else list(argv)


@frozen
class RungReport:
    """What `clawpy doctor` reports on one rung."""

    name: str
    works: bool
    in_force: bool
    limitations: str = ""
    """What it cannot confine on this machine, or why it does not work."""
    fix: str = ""
    """How to make it work; "" if it works."""


@functools.cache
def find_best_sandbox() -> Sandbox:
    """The best rung that works on this machine. The rungs are tried once a process."""
    return next((rung for rung in _rungs_of_platform() if not rung.problem), NoSandbox())


def find_rungs() -> list[Sandbox]:
    """All rungs that work on this machine, the best first. `NoSandbox` is the last."""
    working: list[Sandbox] = [rung for rung in _rungs_of_platform() if not rung.problem]
    return [*working, NoSandbox()]


@functools.cache
def _rungs_of_platform() -> Sequence[Sandbox]:
    """The rungs of this platform, the best first."""
    system = platform.system()
    if system == "Darwin":
        return (Seatbelt(),)
    return (Bubblewrap(), Landlock()) if system == "Linux" else ()


def report_rungs() -> list[RungReport]:
    """A report on each rung on this machine, the best first."""
    rungs = {rung.name: rung for rung in _rungs_of_platform()}
    in_force = find_best_sandbox().name
    reports = []
    for name, system in _SYSTEMS.items():
        rung = rungs.get(name)
        if rung is None:
            reports.append(RungReport(name, works=False, in_force=False, limitations=f"it is of {system}"))
        elif rung.problem:
            problem = f"it does not work: {rung.problem}"
            reports.append(RungReport(name, works=False, in_force=False, limitations=problem, fix=rung.fix))
        else:
            limitations = "; ".join(rung.limitations)
            reports.append(RungReport(name, works=True, in_force=name == in_force, limitations=limitations))
    nothing = "nothing confines a command; no session starts by itself"
    return [*reports, RungReport("none", works=True, in_force=in_force == "none", limitations=nothing)]
