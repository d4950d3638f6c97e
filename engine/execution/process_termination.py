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
from engine.execution.sandbox import SESSION_MARK, supervisor
from engine.frozen import frozen

GRACE_S = 0.3
"""Seconds between SIGTERM and SIGKILL."""

GIVE_UP_S = 0.9
"""Seconds after which killing stops waiting for the dead to be gone."""

SUPERVISOR = supervisor.NAME.decode()
"""The name of a command's supervisor in lists of processes."""

_KEEPERS = ("bwrap", SUPERVISOR)


def end_processes(
    session_id: str, leaders: Iterable[psutil.Process] = (), grace: float = GRACE_S, group: Path | None = None
) -> bool:
    """End `leaders`, their descendants and groups, all in the control `group`, and every process that carries
    `session_id`'s mark ("" for none): SIGTERM, `grace` seconds, SIGKILL. True when nothing is left."""
    leaders = list(leaders)
    began = time.monotonic()
    if grace:
        running = find_processes(session_id, leaders, group)
        for process in running:
            # A keeper ends when the processes that it keeps have ended; ended first, it would kill them at once.
            if name_of(process) not in _KEEPERS:
                with contextlib.suppress(psutil.Error):
                    process.terminate()
        wait_for_deaths(running, began + grace)
    while True:
        survivors = find_processes(session_id, leaders, group)
        if not survivors or time.monotonic() - began > GIVE_UP_S + grace:
            return not survivors
        kill_processes(survivors, leaders, group)
        wait_for_deaths(survivors, time.monotonic() + 0.02)


def kill_processes(survivors: Sequence[psutil.Process], leaders: Sequence[psutil.Process], group: Path | None) -> None:
    """Kill the `survivors` of a session. A supervisor is only told to end: it does when nothing that it keeps is left.
    Killed before, it would set free programs that fork faster than a list of processes is read."""
    if group is not None:
        cgroups.kill_members(group)
    supervisors = [leader for leader in leaders if leader in survivors and name_of(leader) == SUPERVISOR]
    others = [process for process in survivors if process not in supervisors]
    for keeper in supervisors:
        with contextlib.suppress(psutil.Error):
            keeper.resume()
            keeper.terminate()
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
    machine more than once: this takes a fraction of the time of a `psutil.Process` for each."""
    entry = variable.encode()
    for name in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208  a path for each costs more than to read it
        with contextlib.suppress(OSError):
            descriptor = os.open(f"/proc/{name}/environ", os.O_RDONLY | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb", buffering=0) as stream:
                variables = stream.read().split(b"\0")
            if entry in variables:
                yield int(name)


def find_processes(
    session_id: str, leaders: Iterable[psutil.Process], group: Path | None = None
) -> list[psutil.Process]:
    """The living processes of a session; see `end_processes`."""
    processes: dict[int, psutil.Process] = {}
    for leader in leaders:
        with contextlib.suppress(psutil.Error):
            for process in (leader, *leader.children(recursive=True)):
                processes[process.pid] = process
    for pid in [] if group is None else cgroups.member_pids(group):
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
    """The name of a process, "" when it has ended."""
    try:
        return str(process.name())
    except psutil.Error:
        return ""


def wait_for_deaths(processes: Iterable[psutil.Process], until: float) -> list[psutil.Process]:
    """The processes that are alive at `until` (monotonic seconds), or [] as soon as none is."""
    alive = list(processes)
    while (alive := [process for process in alive if _is_alive(process)]) and time.monotonic() < until:
        time.sleep(0.01)
    return alive


def kill_group(leader: int) -> None:
    """Kill the process group of `leader`."""
    # macOS answers EPERM for a group of zombies.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


TERMINATE_TIMEOUT_S = 5.0
"""Seconds after which processes that did not end are reported."""


@frozen
class Termination:
    """The result of `terminate_sessions`."""

    sessions: tuple[str, ...] = ()
    """The sessions that had processes."""
    killed: int = 0
    survivors: tuple[str, ...] = ()
    """The processes that did not end: "PID NAME"."""


def terminate_sessions(pid_folder: Path, *, ask_engine: Callable[[], object] = lambda: None) -> Termination:
    """End all sessions that have PID files in `pid_folder`. `ask_engine` may ask the engine to do it; processes that
    are left, or that begin meanwhile, are ended for at most `TERMINATE_TIMEOUT_S` seconds."""
    session_of: dict[psutil.Process, str] = {}

    def find_alive() -> list[tuple[SessionProcesses, list[psutil.Process]]]:
        alive = []
        for session in read_pid_files(pid_folder):
            if processes := find_processes(session.session_id, session.leaders, session.group):
                session_of.update(dict.fromkeys(processes, session.session_id))
                alive.append((session, processes))
        return alive

    find_alive()
    ask_engine()
    until = time.monotonic() + TERMINATE_TIMEOUT_S
    while time.monotonic() < until:
        alive = find_alive()
        if not alive:
            break
        for session, processes in alive:
            kill_processes(processes, session.leaders, session.group)
        wait_for_deaths(
            [process for _, processes in alive for process in processes], min(until, time.monotonic() + 0.02)
        )
    survivors = wait_for_deaths(list(session_of), until)  # a process that is ending has no environment to be found by
    for session in read_pid_files(pid_folder):
        if session.group is not None:
            cgroups.remove_group(session.group)
    remove_stale(pid_folder)
    return Termination(
        sessions=tuple(sorted(set(session_of.values()))),
        killed=len(session_of) - len(survivors),
        survivors=tuple(f"{process.pid} {name_of(process)}" for process in survivors),
    )


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal, and so answers nothing."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return False
