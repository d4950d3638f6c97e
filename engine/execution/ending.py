"""Ends every process of every session of a home, without its engine: it may be stopped, hang, or be gone (SPEC 3.7)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from engine.execution import cgroups
from engine.execution.processes import await_death, gather, kill, name_of
from engine.execution.traces import Trace, forget_dead, found

WITHIN = 5.0
"""Seconds after which it is said what did not die."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How many processes were `killed`, of which `sessions`, and which are `left`: "PID NAME"."""

    sessions: tuple[str, ...] = ()
    killed: int = 0
    left: tuple[str, ...] = ()


def end_all(at: Path, *, first: Callable[[], object] = lambda: None, within: float = WITHIN) -> Ended:
    """End all sessions whose traces lie in the folder `at`. `first` may have somebody else do it; what it leaves, and
    what begins meanwhile, is ended for at most `within` seconds."""
    seen: dict[psutil.Process, str] = {}

    def living() -> list[tuple[Trace, list[psutil.Process]]]:
        now = [(trace, gather(trace.session_id, trace.leaders, trace.group)) for trace in found(at)]
        for trace, processes in now:
            seen.update(dict.fromkeys(processes, trace.session_id))
        return [(trace, processes) for trace, processes in now if processes]

    living()
    first()
    until = time.monotonic() + within
    while time.monotonic() < until:
        left = living()
        if not left:
            break
        for trace, processes in left:
            kill(processes, trace.leaders, trace.group)
        await_death([one for _, processes in left for one in processes], min(until, time.monotonic() + 0.02))
    survivors = await_death(list(seen), until)  # who is ending has no environment any more by which it is found
    for trace in found(at):
        if trace.group is not None:
            cgroups.remove(trace.group)
    forget_dead(at)
    return Ended(
        sessions=tuple(sorted(set(seen.values()))),
        killed=len(seen) - len(survivors),
        left=tuple(f"{process.pid} {name_of(process)}" for process in survivors),
    )


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal, and so answers nothing."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return False
