"""Which rung of the sandbox ladder is in force on this machine (SPEC 3.8).

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

_HOMES = {"bubblewrap": "Linux", "landlock": "Linux", "seatbelt": "Darwin"}
_MENDS = {
    "bubblewrap": "install bubblewrap, for example `apt install bubblewrap` or `dnf install bubblewrap`",
    "seatbelt": "sandbox-exec comes with macOS; check that /usr/bin/sandbox-exec exists",
}


@functools.cache
def best_sandbox() -> Sandbox:
    """The highest rung that works on this machine, tried once a process."""
    return next((rung for rung in _candidates() if not rung.fault), NoSandbox())


def rungs() -> list[Sandbox]:
    """Every rung that works here, the best first; none last."""
    working: list[Sandbox] = [rung for rung in _candidates() if not rung.fault]
    return [*working, NoSandbox()]


@functools.cache
def _candidates() -> Sequence[Sandbox]:
    """The rungs of this platform."""
    if platform.system() == "Darwin":
        return (Seatbelt(),)
    if platform.system() != "Linux":
        return ()
    bubblewrap = find_bubblewrap()
    return (Landlock(),) if bubblewrap is None else (bubblewrap, Landlock())


def ladder_reports() -> list[RungReport]:
    """What is to be said of each rung on this machine, the best first."""
    system = platform.system()
    candidates = {rung.name: rung for rung in _candidates()}
    in_force = best_sandbox().name
    reports = []
    for name, system_name in _HOMES.items():
        rung = candidates.get(name)
        if rung is not None:
            reports.append(RungReport(name, not rung.fault, name == in_force, _lacks(rung), _fix(rung)))
        elif system == system_name:
            reports.append(RungReport(name, False, False, "it is not installed", _MENDS[name]))
        else:
            reports.append(RungReport(name, False, False, f"it is of {system_name}"))
    nothing = "nothing confines a command; no session starts by itself"
    return [*reports, RungReport("none", True, in_force == "none", nothing)]


def _lacks(rung: Sandbox) -> str:
    if rung.fault:
        return f"it does not work: {rung.fault}"
    return "; ".join(rung.limitations)


def _fix(rung: Sandbox) -> str:
    """How to get a rung to work, as far as its words tell."""
    fault = rung.fault.lower()
    if not fault:
        return ""
    if rung.name == "landlock":
        return "use a kernel of version 5.13 or newer with Landlock, or install bubblewrap"
    if "namespace" in fault or "uid map" in fault or "not permitted" in fault or "permission denied" in fault:
        return (
            "allow unprivileged user namespaces: `sysctl kernel.unprivileged_userns_clone=1` or "
            "`user.max_user_namespaces=10000`; with AppArmor (Ubuntu) a profile for bwrap that has `userns,`"
        )
    return f"check that `{rung.name}` can run a command"
