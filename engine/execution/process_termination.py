"""Ends processes of sessions: all of one session, or of every session in the home (SPEC 3.7).

A session's processes are the descendants of its commands, those in its control group, and those that carry its mark in
their environment. They get SIGTERM, a moment, and SIGKILL. The programs that keep them together (bubblewrap, the
supervisor) end last, because killed first they would let the others go."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import psutil

from engine.execution import cgroups
from engine.execution.pid_files import SessionProcesses, read_pid_files, remove_stale
from engine.execution.sandbox import SESSION_MARK
from engine.frozen import frozen

GRACE = 0.3
"""Seconds between SIGTERM and SIGKILL."""

GIVE_UP = 0.9
"""Seconds after which killing stops waiting for the dead to be gone."""

SUPERVISOR = "clawpy-keeper"
"""What a list of processes calls the supervisor of a command."""

_KEEPERS = ("bwrap", SUPERVISOR)


def end_processes(
    session_id: str, leaders: Iterable[psutil.Process] = (), grace: float = GRACE, group: Path | None = None
) -> bool:
    """End `leaders`, their descendants and groups, all in the control `group`, and every process that carries
    `session_id`'s mark ("" for none): SIGTERM, `grace` seconds, SIGKILL. True when nothing is left."""
    leaders = list(leaders)
    began = time.monotonic()
    if grace:
        running = gather(session_id, leaders, group)
        for process in running:
            # A keeper goes when what it keeps goes; ended first, it would take that with it unasked.
            if name_of(process) not in _KEEPERS:
                with contextlib.suppress(psutil.Error):
                    process.terminate()
        await_death(running, began + grace)
    while True:
        survivors = gather(session_id, leaders, group)
        if not survivors or time.monotonic() - began > GIVE_UP + grace:
            return not survivors
        kill(survivors, leaders, group)
        await_death(survivors, time.monotonic() + 0.02)


def kill(survivors: Sequence[psutil.Process], leaders: Sequence[psutil.Process], group: Path | None) -> None:
    """Kill those of a session that are `survivors`. A supervisor is only told to: it ends when nothing it keeps is
    left, and killed before that, it would set free what forks faster than a list of processes is read."""
    if group is not None:
        cgroups.kill(group)
    supervisors = [leader for leader in leaders if leader in survivors and name_of(leader) == SUPERVISOR]
    others = [process for process in survivors if process not in supervisors]
    for supervisor in supervisors:  # it is quicker than anybody whom it has to end
        with contextlib.suppress(psutil.Error):
            supervisor.resume()
            supervisor.terminate()
    for process in others:
        with contextlib.suppress(psutil.Error):
            process.kill()
    for leader in leaders:
        if leader not in supervisors and _is_alive(leader):
            kill_group(leader.pid)


def marked_processes(session_id: str) -> list[psutil.Process]:
    """The living processes of this user that carry the session's mark, never this one."""
    processes = []
    for pid in _pids_with(f"{SESSION_MARK}={session_id}") if sys.platform == "linux" else psutil.pids():
        if pid == os.getpid():
            continue
        with contextlib.suppress(psutil.Error, OSError):
            process = psutil.Process(pid)
            if process.environ().get(SESSION_MARK) == session_id and _is_alive(process):
                processes.append(process)
    return processes


def _pids_with(variable: str) -> Iterator[int]:
    """The processes whose environment has `variable`, "NAME=VALUE". Every session looks through all processes of the
    machine more than once: read like this, that takes a fraction of what a `psutil.Process` for each takes."""
    entry = variable.encode()
    for name in os.listdir("/proc"):  # noqa: PTH208  a path for each costs more than to read it
        if name.isdecimal():
            with contextlib.suppress(OSError):
                descriptor = os.open(f"/proc/{name}/environ", os.O_RDONLY | os.O_CLOEXEC)
                with os.fdopen(descriptor, "rb", buffering=0) as stream:
                    if entry in stream.read().split(b"\0"):
                        yield int(name)


def gather(session_id: str, leaders: Iterable[psutil.Process], group: Path | None = None) -> list[psutil.Process]:
    """The living processes of a session; see `end_processes`."""
    processes: dict[int, psutil.Process] = {}
    for leader in leaders:
        with contextlib.suppress(psutil.Error):
            for process in (leader, *leader.children(recursive=True)):
                processes[process.pid] = process
    for pid in [] if group is None else cgroups.members(group):
        with contextlib.suppress(psutil.Error):
            processes.setdefault(pid, psutil.Process(pid))
    if session_id:
        processes |= {process.pid: process for process in marked_processes(session_id)}
    return [process for process in processes.values() if _is_alive(process)]


def _is_alive(process: psutil.Process) -> bool:
    """False for the dead, for zombies, and when the number belongs to another process by now."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def name_of(process: psutil.Process) -> str:
    """What it is called, "" when it has ended."""
    try:
        return str(process.name())
    except psutil.Error:
        return ""


def await_death(processes: Iterable[psutil.Process], until: float) -> list[psutil.Process]:
    """Who still lives at `until` (monotonic seconds), or [] as soon as nobody does."""
    alive = list(processes)
    while (alive := [process for process in alive if _is_alive(process)]) and time.monotonic() < until:
        time.sleep(0.01)
    return alive


def kill_group(leader: int) -> None:
    # macOS answers EPERM for a group of zombies.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


TERMINATE_TIMEOUT_S = 5.0
"""Seconds after which the processes that did not end are named."""


@frozen
class Terminated:
    """How many processes were `killed`, of which `sessions`, and which are `left`: "PID NAME"."""

    sessions: tuple[str, ...] = ()
    killed: int = 0
    left: tuple[str, ...] = ()


def terminate_sessions(
    pid_folder: Path, *, first: Callable[[], object] = lambda: None, within: float = TERMINATE_TIMEOUT_S
) -> Terminated:
    """End all sessions that have PID files in `pid_folder`. `first` may ask the engine to do it; what that leaves, and
    what begins meanwhile, is ended for at most `within` seconds."""
    session_of: dict[psutil.Process, str] = {}

    def find_alive() -> list[tuple[SessionProcesses, list[psutil.Process]]]:
        alive = []
        for session in read_pid_files(pid_folder):
            if processes := gather(session.session_id, session.leaders, session.group):
                session_of.update(dict.fromkeys(processes, session.session_id))
                alive.append((session, processes))
        return alive

    find_alive()
    first()
    until = time.monotonic() + within
    while time.monotonic() < until:
        alive = find_alive()
        if not alive:
            break
        for session, processes in alive:
            kill(processes, session.leaders, session.group)
        await_death([process for _, processes in alive for process in processes], min(until, time.monotonic() + 0.02))
    survivors = await_death(list(session_of), until)  # a process that is ending has no environment to be found by
    for session in read_pid_files(pid_folder):
        if session.group is not None:
            cgroups.remove(session.group)
    remove_stale(pid_folder)
    return Terminated(
        sessions=tuple(sorted(set(session_of.values()))),
        killed=len(session_of) - len(survivors),
        left=tuple(f"{process.pid} {name_of(process)}" for process in survivors),
    )


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal, and so answers nothing."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return False
