"""Finds the processes of sessions and ends them, even after a crash of the engine (SPEC 3.7).

The processes of a session are the descendants of its commands, those in its control group, and those that carry its
mark in their environment. They get SIGTERM, and a moment later SIGKILL. The programs that keep them together, which are
bubblewrap and the supervisor, end last: if they were killed first, they would set the others free.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import psutil

from engine.execution.control_groups import kill_members, read_member_pids, remove_group
from engine.execution.pid_files import read_entries
from engine.execution.sandbox import SESSION_MARK, supervisor
from engine.frozen import frozen

GRACE_S = 0.3
"""Seconds between SIGTERM and SIGKILL."""

GIVE_UP_S = 0.9
"""Seconds after which killing stops waiting for the dead to be gone."""

SUPERVISOR = supervisor.NAME.decode()
"""The name of a command's supervisor in lists of processes."""

_KEEPERS = ("bwrap", SUPERVISOR)


@frozen
class SessionProcesses:
    """The processes of a session: its commands and their descendants, all in its control group, and every process that
    carries its mark."""

    session_id: str = ""
    """The session whose mark is looked for; "" for none."""
    leaders: tuple[psutil.Process, ...] = ()
    """The first processes of its commands."""
    group: Path | None = None
    """Its control group."""

    def find(self) -> list[psutil.Process]:
        """The processes that are alive."""
        processes: dict[int, psutil.Process] = {}
        for leader in self.leaders:
            with contextlib.suppress(psutil.Error):
                processes |= {process.pid: process for process in (leader, *leader.children(recursive=True))}
        for pid in [] if self.group is None else read_member_pids(self.group):
            with contextlib.suppress(psutil.Error):
                processes.setdefault(pid, psutil.Process(pid))
        if self.session_id:
            processes |= {process.pid: process for process in find_marked_processes(self.session_id)}
        return [process for process in processes.values() if _is_alive(process)]

    def kill(self, survivors: Sequence[psutil.Process]) -> None:
        """Kill the processes that `find` returned.

        A supervisor is only told to end, which it does when nothing that it keeps is left. If it were killed before, it
        would set free programs that fork faster than a list of processes is read.
        """
        if self.group is not None:
            kill_members(self.group)
        supervisors = [leader for leader in self.leaders if leader in survivors and read_name(leader) == SUPERVISOR]
        for process in [*supervisors, *(process for process in survivors if process not in supervisors)]:
            with contextlib.suppress(psutil.Error):
                if process in supervisors:
                    process.resume()
                    process.terminate()
                else:
                    process.kill()
        for leader in self.leaders:
            if leader not in supervisors and _is_alive(leader):
                kill_group(leader.pid)

    def end(self, grace: float = GRACE_S) -> bool:
        """End the processes: SIGTERM, `grace` seconds, SIGKILL. True when nothing is left."""
        began = time.monotonic()
        if grace:
            running = self.find()
            for process in running:
                # A keeper ends when the processes that it keeps have ended. Ended first, it would kill them at once.
                if read_name(process) not in _KEEPERS:
                    with contextlib.suppress(psutil.Error):
                        process.terminate()
            wait_for_deaths(running, began + grace)
        while survivors := self.find():
            if time.monotonic() - began > GIVE_UP_S + grace:
                return False
            self.kill(survivors)
            wait_for_deaths(survivors, time.monotonic() + 0.02)
        return True


def read_pid_files(folder: Path) -> list[SessionProcesses]:
    """The processes of each session that has files in `folder`."""
    sessions: dict[str, SessionProcesses] = {}
    for session_id, _, process in read_entries(folder):
        session = sessions.get(session_id, SessionProcesses(session_id))
        if isinstance(process, Path):
            session = replace(session, group=process)
        elif process is not None:
            session = replace(session, leaders=(*session.leaders, process))
        sessions[session_id] = session
    return [*sessions.values()]


def find_marked_processes(session_id: str) -> list[psutil.Process]:
    """The living processes of this user that carry the session's mark, except for this one."""
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
    """The ids of the processes whose environment has `variable`, in the form "NAME=VALUE".

    Every session looks through all processes of the machine more than once, and a `psutil.Process` for each of them
    would take several times as long.
    """
    entry = variable.encode()
    for name in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208  a path for each costs more than to read it
        with contextlib.suppress(OSError):
            descriptor = os.open(f"/proc/{name}/environ", os.O_RDONLY | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb", buffering=0) as stream:
                variables = stream.read().split(b"\0")
            if entry in variables:
                yield int(name)


def _is_alive(process: psutil.Process) -> bool:
    """Whether a process runs. False for a zombie, and when the id belongs to another process by now."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def read_name(process: psutil.Process) -> str:
    """The name of a process, "" when it has ended."""
    try:
        return str(process.name())
    except psutil.Error:
        return ""


def wait_for_deaths(processes: Iterable[psutil.Process], until: float) -> list[psutil.Process]:
    """Wait until no process is alive, at most until `until` (monotonic seconds). Returns those that are alive then."""
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
    """End all sessions that have PID files in `pid_folder`.

    `ask_engine` may ask the engine to do it. Processes that are left after that, or that begin meanwhile, are ended
    here, for at most `TERMINATE_TIMEOUT_S` seconds.
    """
    session_of: dict[psutil.Process, str] = {}

    def find_alive() -> list[tuple[SessionProcesses, list[psutil.Process]]]:
        alive = []
        for session in read_pid_files(pid_folder):
            if processes := session.find():
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
            session.kill(processes)
        wait_for_deaths(
            [process for _, processes in alive for process in processes], min(until, time.monotonic() + 0.02)
        )
    survivors = wait_for_deaths(list(session_of), until)  # a process that is ending has no environment to be found by
    for session in read_pid_files(pid_folder):
        if session.group is not None:
            remove_group(session.group)
    for _, file, process in read_entries(pid_folder):
        if process is None:  # it has ended, or its group is gone
            with contextlib.suppress(OSError):
                file.unlink()
    return Termination(
        sessions=tuple(sorted(set(session_of.values()))),
        killed=len(session_of) - len(survivors),
        survivors=tuple(f"{process.pid} {read_name(process)}" for process in survivors),
    )


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped a process, so that it answers nothing."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return False
