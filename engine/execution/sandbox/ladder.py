"""Finds the rung of the sandbox ladder that is in force on this machine (SPEC 3.8).

Bubblewrap on Linux, then Landlock with seccomp; Seatbelt on macOS; none anywhere else. A rung is taken when a real
command was held by it here, never because a program was found.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Sequence

from engine.execution.sandbox.base import NoSandbox, RungReport, Sandbox
from engine.execution.sandbox.bubblewrap import find_bubblewrap
from engine.execution.sandbox.landlock import Landlock
from engine.execution.sandbox.seatbelt import Seatbelt

_SYSTEM_BY_RUNG = {"bubblewrap": "Linux", "landlock": "Linux", "seatbelt": "Darwin"}
_FIX_BY_RUNG = {
    "bubblewrap": "install bubblewrap, for example `apt install bubblewrap` or `dnf install bubblewrap`",
    "seatbelt": "sandbox-exec comes with macOS; check that /usr/bin/sandbox-exec exists",
}


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
    for name, system_name in _SYSTEM_BY_RUNG.items():
        rung = candidates.get(name)
        if rung is not None:
            reports.append(
                RungReport(name, not rung.problem, name == in_force, _describe_limitations(rung), _suggest_fix(rung))
            )
        elif system == system_name:
            reports.append(RungReport(name, False, False, "it is not installed", _FIX_BY_RUNG[name]))
        else:
            reports.append(RungReport(name, False, False, f"it is of {system_name}"))
    nothing = "nothing confines a command; no session starts by itself"
    return [*reports, RungReport("none", True, in_force == "none", nothing)]


def _describe_limitations(rung: Sandbox) -> str:
    if rung.problem:
        return f"it does not work: {rung.problem}"
    return "; ".join(rung.limitations)


def _suggest_fix(rung: Sandbox) -> str:
    """How to get a rung to work, as far as its problem tells; "" when it works."""
    problem = rung.problem.lower()
    if not problem:
        return ""
    if rung.name == "landlock":
        return "use a kernel of version 5.13 or newer with Landlock, or install bubblewrap"
    if "namespace" in problem or "uid map" in problem or "not permitted" in problem or "permission denied" in problem:
        return (
            "allow unprivileged user namespaces: `sysctl kernel.unprivileged_userns_clone=1` or "
            "`user.max_user_namespaces=10000`; with AppArmor (Ubuntu) a profile for bwrap that has `userns,`"
        )
    return f"check that `{rung.name}` can run a command"
