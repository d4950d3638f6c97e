"""The processes of one session: started in groups of their own, and ended with it, all of them (SPEC 3.7, 3.8).

Every command has a keeper: bubblewrap, with whose process namespace the kernel ends all that is in it, or the
supervisor, of whom everything that the command starts remains a descendant. So the descendants of what was started are
all there is; the keepers go last. Where there is neither (macOS), or a hostile command killed its keeper, the session's
mark in the environment finds who is left."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from engine.execution import traces
from engine.execution.sandbox import SESSION_MARK, limits
from engine.execution.sandbox.limits import NICE
from engine.execution.traces import Trace, Traces, forget_dead, found
from engine.frozen import frozen

GRACE = 0.3
"""Seconds between SIGTERM and SIGKILL."""

GIVE_UP = 0.9
"""Seconds after which killing stops waiting for the dead to be gone."""

CHUNK = 65_536
_POLL = 0.1
_DRAIN = 0.2
_GATHER = 0.005  # a program that flushes every line is read in batches, at most 200 a second

_SUPERVISOR = "clawpy-keeper"
_KEEPERS = ("bwrap", _SUPERVISOR)


class GroupClosed(Exception):
    """The session is ending: no further process starts."""


@frozen
class Finished:
    """How a process ended. `exit_code` is negative for a signal. `seconds` of wall time."""

    exit_code: int
    seconds: float
    timed_out: bool


class Processes:
    """All processes of the session `session_id`. `run` from the session's thread, `end` from any."""

    def __init__(
        self,
        session_id: str,
        traces: Path | None = None,
        memory: int = limits.MEMORY_BYTES,
        *,
        contained: bool = False,
    ) -> None:
        """`traces` is the folder by which `clawpy stop` finds them without the engine; `memory` in bytes. `contained`:
        each command has a process namespace of its own."""
        self.session_id = session_id
        self._traces = Traces(traces, session_id) if traces is not None and sys.platform == "linux" else None
        self._memory = memory
        self._contained = contained
        self._group: Path | None = None
        self._lock = threading.Lock()
        self._leaders: dict[int, psutil.Process] = {}
        self._trace_of: dict[int, Path] = {}
        self._closed = False
        self._marked = False
        self._entered = False

    def mark(self) -> dict[str, str]:
        """What the environment of a process holds that ends with this session; for those started by other ways too."""
        self._marked = True
        return {SESSION_MARK: self.session_id}

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        on_output: Callable[[bytes], None],
        timeout: float | None = None,
        cancel: threading.Event | None = None,
    ) -> Finished:
        """Run a command to its end; `on_output` gets stdout and stderr as they come, in pieces of at most 64 KiB.

        What the command left running in the background ends with it. After `timeout` seconds, or within 0.1 s of
        `cancel`, it is ended.
        Raises `GroupClosed` once `end` was called, OSError when the program cannot be started.
        """
        started = time.monotonic()
        process = self.start(argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        try:
            timed_out = self._follow(process, on_output, None if timeout is None else started + timeout, cancel)
        finally:
            self.finish(process)
        return Finished(process.returncode, time.monotonic() - started, timed_out)

    def start(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdin: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
    ) -> subprocess.Popen[bytes]:
        """Start a child in a group of its own, its output a pipe. Who starts it hands it to `finish`, and until then
        does not wait for it: `has_ended` and `await_end` tell without that. Raises as `run`."""
        with self._lock:
            if self._closed:
                raise GroupClosed(self.session_id)
            command, trace = list(argv), None
            if self._traces is not None:
                if not self._entered:
                    self._entered = True
                    self._group = traces.make(
                        self.session_id, memory=self._memory, processes=limits.PROCESSES, contained=self._contained
                    )
                    self._traces.enter(self._group)
                command, trace = self._traces.leaving(argv, self._group)
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env=dict(env) | self.mark(),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                bufsize=0,
                start_new_session=True,
            )
            with contextlib.suppress(psutil.NoSuchProcess):
                self._leaders[process.pid] = psutil.Process(process.pid)
            if trace is not None:
                self._trace_of[process.pid] = trace
        _lower_priority(process.pid)
        return process

    def finish(self, process: subprocess.Popen[bytes]) -> None:
        """End a child and what is left of its group, at once, and close its pipes."""
        if not has_ended(process):
            end_processes("", [psutil.Process(process.pid)], grace=0)
        # While the leader is not reaped, nobody else can carry its number: the group is surely ours.
        if has_ended(process) or name_of(psutil.Process(process.pid)) != _SUPERVISOR:
            _kill_group(process.pid)
        process.wait()
        with self._lock:
            self._leaders.pop(process.pid, None)
            trace = self._trace_of.pop(process.pid, None)
        if trace is not None:
            trace.unlink(missing_ok=True)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()

    def end(self, grace: float = GRACE) -> bool:
        """End everything: SIGTERM, `grace` seconds, SIGKILL. Takes at most about `grace` + 0.5 s, returns True when
        nothing is left. Nothing can be started any more from the first moment. Safe to call again."""
        with self._lock:
            self._closed = True
            leaders = list(self._leaders.values())
        if not self._marked:
            return True  # nothing was ever started: no need to look through all processes of the machine, twice
        gone = end_processes(self.session_id, leaders, grace, self._group)
        if gone and self._traces is not None:
            if self._group is not None:
                traces.remove(self._group)
            self._traces.clear()
        return gone

    def over_limit(self) -> str:
        """Which limit its processes pass together, in words; "" for none. A few milliseconds while something runs."""
        with self._lock:
            leaders = list(self._leaders.values())
        if not leaders:
            return ""
        memory = number = 0
        for process in gather("", leaders, self._group):
            with contextlib.suppress(psutil.Error):
                memory += process.memory_info().rss
                number += 1
        if memory > self._memory:
            return f"its processes used {_gigabytes(memory)} of memory, more than {_gigabytes(self._memory)}"
        return f"it ran {number:,} processes, more than {limits.PROCESSES:,}" if number > limits.PROCESSES else ""

    def _follow(
        self,
        process: subprocess.Popen[bytes],
        on_output: Callable[[bytes], None],
        end: float | None,
        cancel: threading.Event | None,
    ) -> bool:
        """Read until the output ends, or the leader has ended and was silent for a moment. True when it was ended."""
        assert process.stdout is not None
        descriptor = process.stdout.fileno()
        last_read = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            open_ended = True
            while True:
                now = time.monotonic()
                if (end is not None and now >= end) or (cancel is not None and cancel.is_set()):
                    end_processes("", [psutil.Process(process.pid)], GRACE)
                    return True
                if open_ended:
                    if selector.select(_POLL if end is None else min(_POLL, end - now)):
                        chunk = os.read(descriptor, CHUNK)
                        last_read = time.monotonic()
                        if chunk:
                            on_output(chunk)
                            if len(chunk) < CHUNK:
                                time.sleep(_GATHER)
                            continue
                        open_ended = False
                        selector.unregister(descriptor)
                    elif now - last_read > _DRAIN and has_ended(process):
                        return False
                elif await_end(process, _POLL if end is None else min(_POLL, end - now)):
                    return False


def _gigabytes(size: int) -> str:
    return f"{size / 1024**3:.1f} GiB"


def _lower_priority(leader: int) -> None:
    """Have the group of `leader`, and what it starts, wait for everybody else when the processors are busy."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended already
        os.setpriority(os.PRIO_PGRP, leader, os.getpriority(os.PRIO_PROCESS, 0) + NICE)
    # Where Linux shares the processors among terminal sessions (sched_autogroup), the niceness of a process counts
    # only within its own, and a command has a session of its own. That has a niceness too; who is not root may set
    # one every 0.1 s, so that of a burst only some give way.
    with contextlib.suppress(OSError):
        Path(f"/proc/{leader}/autogroup").write_text(str(NICE))


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
        traces.kill(group)
    supervisors = [leader for leader in leaders if leader in survivors and name_of(leader) == _SUPERVISOR]
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
            _kill_group(leader.pid)


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
    for pid in [] if group is None else traces.members(group):
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


def _kill_group(leader: int) -> None:
    # macOS answers EPERM for a group of zombies.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether the leader has ended, without reaping it where the platform can tell."""
    if process.returncode is not None:
        return True
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def await_end(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for the leader's end, at most `seconds`, without reaping it."""
    until = time.monotonic() + seconds
    while not has_ended(process):
        if time.monotonic() >= until:
            return False
        time.sleep(0.005)
    return True


WITHIN = 5.0
"""Seconds after which it is said what did not die."""


@frozen
class Ended:
    """How many processes were `killed`, of which `sessions`, and which are `left`: "PID NAME"."""

    sessions: tuple[str, ...] = ()
    killed: int = 0
    left: tuple[str, ...] = ()


def end_all(pid_folder: Path, *, first: Callable[[], object] = lambda: None, within: float = WITHIN) -> Ended:
    """End all sessions whose traces lie in the folder `pid_folder`. `first` may have somebody else do it; what it
    leaves, and what begins meanwhile, is ended for at most `within` seconds."""
    session_of: dict[psutil.Process, str] = {}

    def living() -> list[tuple[Trace, list[psutil.Process]]]:
        alive = [(trace, gather(trace.session_id, trace.leaders, trace.group)) for trace in found(pid_folder)]
        for trace, processes in alive:
            session_of.update(dict.fromkeys(processes, trace.session_id))
        return [(trace, processes) for trace, processes in alive if processes]

    living()
    first()
    until = time.monotonic() + within
    while time.monotonic() < until:
        alive_sessions = living()
        if not alive_sessions:
            break
        for trace, processes in alive_sessions:
            kill(processes, trace.leaders, trace.group)
        await_death(
            [process for _, processes in alive_sessions for process in processes], min(until, time.monotonic() + 0.02)
        )
    survivors = await_death(list(session_of), until)  # who is ending has no environment any more by which it is found
    for trace in found(pid_folder):
        if trace.group is not None:
            traces.remove(trace.group)
    forget_dead(pid_folder)
    return Ended(
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
