"""The processes of one session: started in groups of their own, and ended with it, all of them (SPEC 3.7, 3.8).

Three ways lead to a process that has to go: the groups that were started, the descendants of their leaders, and the
session's mark in the environment, which also finds who left both by forking twice. In bubblewrap the kernel ends the
whole process namespace with its first process; there the three are only asked to be polite first.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from engine.execution.sandbox import SESSION_MARK

GRACE = 0.3
"""Seconds between SIGTERM and SIGKILL."""

GIVE_UP = 0.9
"""Seconds after which killing stops waiting for the dead to be gone."""

NICE = 10
"""What is added to our own niceness for what agents run: the operator's keys and programs come first (SPEC 11.4)."""

CHUNK = 65_536
_POLL = 0.1
_DRAIN = 0.2
_GATHER = 0.005  # a program that flushes every line is read in batches, at most 200 a second

_SANDBOX_PROGRAMS = ("bwrap",)


class GroupClosed(Exception):
    """The session is ending: no further process starts."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How a process ended. `exit_code` is negative for a signal. `seconds` of wall time."""

    exit_code: int
    seconds: float
    timed_out: bool


class Processes:
    """All processes of the session `session_id`. `run` from the session's thread, `end` from any."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._lock = threading.Lock()
        self._leaders: dict[int, psutil.Process] = {}
        self._closed = False
        self._marked = False

    def mark(self) -> dict[str, str]:
        """What the environment of a process holds that ends with this session; for those started by other ways too."""
        self._marked = True
        return {SESSION_MARK: self._session_id}

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
                raise GroupClosed(self._session_id)
            process = subprocess.Popen(
                list(argv),
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
        _give_way(process.pid)
        return process

    def finish(self, process: subprocess.Popen[bytes]) -> None:
        """End a child and what is left of its group, at once, and close its pipes."""
        # While the leader is not reaped, nobody else can carry its number: the group is surely ours.
        _kill_group(process.pid)
        process.wait()
        with self._lock:
            self._leaders.pop(process.pid, None)
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
        return end_processes(self._session_id, leaders, grace)

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


def _give_way(leader: int) -> None:
    """Have the group of `leader`, and what it starts, wait for everybody else when the processors are busy."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended already
        os.setpriority(os.PRIO_PGRP, leader, os.getpriority(os.PRIO_PROCESS, 0) + NICE)
    # Where Linux shares the processors among terminal sessions (sched_autogroup), the niceness of a process counts
    # only within its own, and a command has a session of its own. That has a niceness too; who is not root may set
    # one every 0.1 s, so that of a burst only some give way.
    with contextlib.suppress(OSError):
        Path(f"/proc/{leader}/autogroup").write_text(str(NICE))


def end_processes(session_id: str, leaders: Iterable[psutil.Process] = (), grace: float = GRACE) -> bool:
    """End `leaders`, their descendants and their groups, and every process that carries `session_id`'s mark
    ("" for none). True when nothing is left."""
    leaders = list(leaders)
    began = time.monotonic()
    found = _gather(session_id, leaders)
    for process in found:
        # A sandbox's own process goes when what is in it goes; ended first, it would take that with it unasked.
        if _name(process) not in _SANDBOX_PROGRAMS:
            with contextlib.suppress(psutil.Error):
                process.terminate()
    left = _await_end(found, began + grace)
    while True:
        left = [process for process in {*left, *_gather(session_id, leaders)} if _lives(process)]
        if not left or time.monotonic() - began > GIVE_UP:
            return not left
        for leader in leaders:
            if _lives(leader):
                _kill_group(leader.pid)
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        left = _await_end(left, time.monotonic() + 0.05)


def marked(session_id: str) -> list[psutil.Process]:
    """The living processes of this user that carry the session's mark, never this one."""
    found = []
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(SESSION_MARK) == session_id and _lives(process):
                found.append(process)
    return found


def _gather(session_id: str, leaders: Iterable[psutil.Process]) -> list[psutil.Process]:
    found: dict[int, psutil.Process] = {}
    for leader in leaders:
        with contextlib.suppress(psutil.Error):
            for process in (leader, *leader.children(recursive=True)):
                found[process.pid] = process
    if session_id:
        found |= {process.pid: process for process in marked(session_id)}
    return [process for process in found.values() if _lives(process)]


def _lives(process: psutil.Process) -> bool:
    """False for the dead, for zombies, and when the number belongs to another process by now."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.Error:
        return ""


def _await_end(processes: Iterable[psutil.Process], until: float) -> list[psutil.Process]:
    """Who still lives at `until` (monotonic seconds), or [] as soon as nobody does."""
    left = list(processes)
    while (left := [process for process in left if _lives(process)]) and time.monotonic() < until:
        time.sleep(0.01)
    return left


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
