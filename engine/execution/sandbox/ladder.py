"""Finds the rung of the sandbox ladder that is in force on this machine, and reports on the others (SPEC 3.8).

Bubblewrap on Linux, then Landlock with seccomp; Seatbelt on macOS; none anywhere else. A rung is taken when a real
command was held by it here, never because a program was found. `escapes` measures what each rung holds.
"""

from __future__ import annotations

import functools
import platform
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.execution.sandbox import Confinement, Sandbox, supervised_command
from engine.execution.sandbox.bubblewrap import find_bubblewrap
from engine.execution.sandbox.landlock import Landlock
from engine.execution.sandbox.seatbelt import Seatbelt
from engine.frozen import frozen

_SYSTEMS = {"bubblewrap": "Linux", "landlock": "Linux", "seatbelt": "Darwin"}
"""The system of each rung, the best rung first."""

_NOT_INSTALLED = "it is not installed"

_FIXES = (
    (
        "bubblewrap",
        _NOT_INSTALLED,
        "install bubblewrap, for example `apt install bubblewrap` or `dnf install bubblewrap`",
    ),
    ("landlock", "", "use a kernel of version 5.13 or newer with Landlock, or install bubblewrap"),
    (
        "",
        "namespace|uid map|not permitted|permission denied",
        "allow unprivileged user namespaces: `sysctl kernel.unprivileged_userns_clone=1` or "
        "`user.max_user_namespaces=10000`; with AppArmor (Ubuntu) a profile for bwrap that has `userns,`",
    ),
    ("", "", "check that `{rung}` can run a command"),
)
"""Rung ("" is any), pattern of its problem, and how to get the rung to work. The first row that fits counts."""

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
        return supervised_command([f"cwd={cwd}"], argv) if sys.platform == "linux" else list(argv)


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


@functools.cache
def best_sandbox() -> Sandbox:
    """The highest rung that works on this machine, tried once a process."""
    return next((rung for rung in _rungs_of_platform() if not rung.problem), NoSandbox())


def find_rungs() -> list[Sandbox]:
    """Every rung that works here, the best first; `NoSandbox` last."""
    working: list[Sandbox] = [rung for rung in _rungs_of_platform() if not rung.problem]
    return [*working, NoSandbox()]


@functools.cache
def _rungs_of_platform() -> Sequence[Sandbox]:
    """The rungs of this platform."""
    if platform.system() == "Darwin":
        return (Seatbelt(),)
    if platform.system() != "Linux":
        return ()
    bubblewrap = find_bubblewrap()
    return (Landlock(),) if bubblewrap is None else (bubblewrap, Landlock())


def ladder_reports() -> list[RungReport]:
    """A report on each rung on this machine, the best first."""
    system = platform.system()
    candidates = {rung.name: rung for rung in _rungs_of_platform()}
    in_force = best_sandbox().name
    reports = []
    for name, system_of_rung in _SYSTEMS.items():
        rung = candidates.get(name)
        if rung is not None:
            problem = rung.problem
            limitations = f"it does not work: {problem}" if problem else "; ".join(rung.limitations)
            fix = _suggest_fix(name, problem) if problem else ""
            reports.append(RungReport(name, not problem, name == in_force, limitations, fix))
        elif system == system_of_rung:
            reports.append(RungReport(name, False, False, _NOT_INSTALLED, _suggest_fix(name, _NOT_INSTALLED)))
        else:
            reports.append(RungReport(name, False, False, f"it is of {system_of_rung}"))
    nothing = "nothing confines a command; no session starts by itself"
    return [*reports, RungReport("none", True, in_force == "none", nothing)]


def _suggest_fix(name: str, problem: str) -> str:
    """How to get a rung to work, as far as its problem tells."""
    return next(
        fix.format(rung=name)
        for rung, pattern, fix in _FIXES
        if rung in ("", name) and re.search(pattern, problem, re.IGNORECASE)
    )
