"""Starts the commands of one session, each in a process group of its own, and ends all of them with it (SPEC 3.7, 3.8).

Every command runs under bubblewrap or under the supervisor. The process namespace of bubblewrap ends with the command.
Everything that a command starts under the supervisor remains a descendant of the supervisor. If there is neither
(macOS), or a hostile command killed its supervisor, the rest is found by the session's mark in the environment.
"""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from engine.execution import sandbox
from engine.execution.sandbox import HOME_MARK, NICE, SESSION_MARK
from engine.execution.session_processes import (
    GRACE_S,
    SUPERVISOR,
    ChildrenOf,
    ControlGroup,
    PidFiles,
    ProcessFamily,
    identify_home,
    kill_process_group,
    read_name,
)
from engine.frozen import frozen

CHUNK_BYTES = 65_536
"""Maximum size of a piece of output."""

_POLL_S = 0.1
"""Seconds between two checks whether a command is cancelled."""

_DRAIN_S = 0.2
"""Seconds without output after the leader's end, in which its children may still write."""

_BATCH_S = 0.005
"""Seconds between two reads, so that a program that flushes every line is read in at most 200 batches a second."""


class ProcessesClosed(Exception):
    """The session is ending, so that no process starts any more."""


@frozen
class FinishedCommand:
    """How a command ended."""

    exit_code: int
    """Negative for a signal."""
    seconds: float
    """Wall time."""
    timed_out: bool


class Processes:
    """All processes of one session. `run` is called from the session's thread, `end` from any."""

    def __init__(
        self,
        session_id: str,
        pid_folder: Path | None = None,
        max_memory: int = sandbox.MAX_MEMORY_BYTES,
        *,
        is_contained: bool = False,
    ) -> None:
        """`pid_folder` is for the files by which `clawpy stop` finds the processes without the engine. `max_memory` is
        in bytes. `is_contained` says that each command has a process namespace of its own."""
        self.session_id = session_id
        self._home = identify_home(pid_folder) if pid_folder else ""
        self._pid_files = PidFiles(pid_folder) if pid_folder and sys.platform == "linux" else None
        self._max_memory = max_memory
        self._is_contained = is_contained
        self._control_group: ControlGroup | None = None
        self._lock = threading.Lock()
        self._leaders: dict[int, psutil.Process] = {}
        self._pid_file_of: dict[int, Path] = {}
        self._is_closed = False
        self._is_marked = False

    def mark_environment(self) -> dict[str, str]:
        """Return the variables that mark a process of this session. `end` searches for marked processes from now on."""
        self._is_marked = True
        return {SESSION_MARK: self.session_id} | ({HOME_MARK: self._home} if self._home else {})

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        on_output: Callable[[bytes], None],
        timeout: float | None = None,
        cancel: threading.Event | None = None,
    ) -> FinishedCommand:
        """Run a command to its end. `on_output` gets stdout and stderr as they come, in pieces of at most 64 KiB.

        The command is ended after `timeout` seconds, or within 0.1 s of `cancel`. Processes that it left in the
        background end with it. Raises `ProcessesClosed` once `end` was called, OSError when the program cannot be
        started.
        """
        started = time.monotonic()
        deadline = started + (math.inf if timeout is None else timeout)
        process = self.start(argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        try:
            timed_out = self._follow(process, on_output, deadline, cancel)
        finally:
            self.finish(process)
        return FinishedCommand(process.returncode, time.monotonic() - started, timed_out)

    def start(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdin: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
    ) -> subprocess.Popen[bytes]:
        """Start a child in a process group of its own, with a pipe for its output. The caller passes it to `finish`,
        and must not reap it before; `_has_ended` and `_wait_for_end` do not. Raises as `run`."""
        with self._lock:
            if self._is_closed:
                raise ProcessesClosed(self.session_id)
            command, pid_file = self._wrap_command(argv)
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env=dict(env) | self.mark_environment(),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                bufsize=0,
                start_new_session=True,
            )
            with contextlib.suppress(psutil.NoSuchProcess):
                self._leaders[process.pid] = psutil.Process(process.pid)
            if pid_file is not None:
                self._pid_file_of[process.pid] = pid_file
        _lower_priority(process.pid)
        return process

    def _wrap_command(self, argv: Sequence[str]) -> tuple[list[str], Path | None]:
        """The command line that enters the session's control group and becomes `argv`, and its PID file. The first call
        makes the group, where that is possible. Without PID files it is `argv` itself."""
        if self._pid_files is None:
            return list(argv), None
        if self._control_group is None:
            self._control_group = ControlGroup.make(
                self.session_id,
                self._home,
                max_memory=self._max_memory,
                max_processes=sandbox.MAX_PROCESSES,
                is_contained=self._is_contained,
            )
            self._pid_files.write_group_file(self.session_id, self._control_group)
        return self._pid_files.wrap(self.session_id, argv, self._control_group)

    def finish(self, process: subprocess.Popen[bytes]) -> None:
        """End a child and the rest of its process group at once, and close its pipes."""
        if not _has_ended(process):
            ProcessFamily(leaders=(psutil.Process(process.pid),)).end(grace=0)
        # While the leader is not reaped, no other process can have its id, so the group is surely ours.
        if _has_ended(process) or read_name(psutil.Process(process.pid)) != SUPERVISOR:
            kill_process_group(process.pid)
        process.wait()
        with self._lock:
            self._leaders.pop(process.pid, None)
            pid_file = self._pid_file_of.pop(process.pid, None)
        if pid_file is not None:
            pid_file.unlink(missing_ok=True)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()

    def end(self, grace: float = GRACE_S) -> bool:
        """End everything: SIGTERM, `grace` seconds, SIGKILL. True when nothing is left.

        Takes at most about `grace` + 0.5 s. From the first moment on nothing can be started. Safe to call again.
        """
        with self._lock:
            self._is_closed = True
            leaders = tuple(self._leaders.values())
        if not self._is_marked:
            return True  # nothing was ever started, so the processes of the machine need not be searched
        all_ended = ProcessFamily(self.session_id, leaders, self._control_group, self._home).end(grace)
        if all_ended and self._pid_files is not None:
            if self._control_group is not None:
                self._control_group.remove()
            self._pid_files.clear(self.session_id)
        return all_ended

    def explain_exceeded_limit(self, children_of: ChildrenOf) -> str:
        """Why its processes together exceed a limit. "" when they do not."""
        with self._lock:
            leaders = tuple(self._leaders.values())
        if not leaders:
            return ""
        memory = count = 0
        for process in ProcessFamily(leaders=leaders, group=self._control_group).find(children_of):
            with contextlib.suppress(psutil.Error):
                memory += process.memory_info().rss
                count += 1
        if memory > self._max_memory:
            used, allowed = _format_gigabytes(memory), _format_gigabytes(self._max_memory)
            return f"its processes used {used} of memory, more than {allowed}"
        if count > sandbox.MAX_PROCESSES:
            return f"it ran {count:,} processes, more than {sandbox.MAX_PROCESSES:,}"
        return ""

    def _follow(
        self,
        process: subprocess.Popen[bytes],
        on_output: Callable[[bytes], None],
        deadline: float,
        cancel: threading.Event | None,
    ) -> bool:
        """Read the output until it ends, or until the leader has ended and nothing was written for a moment. True when
        the command was ended at `deadline` or by `cancel`."""
        assert process.stdout is not None
        descriptor = process.stdout.fileno()
        is_open, last_read = True, time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while (now := time.monotonic()) < deadline and not (cancel is not None and cancel.is_set()):
                wait_s = min(_POLL_S, deadline - now)
                if not is_open:
                    if _wait_for_end(process, wait_s):
                        return False
                elif selector.select(wait_s):
                    last_read = time.monotonic()
                    is_open = _read_output(descriptor, on_output)
                elif now - last_read > _DRAIN_S and _has_ended(process):
                    return False
        ProcessFamily(leaders=(psutil.Process(process.pid),)).end()
        return True


def _read_output(descriptor: int, on_output: Callable[[bytes], None]) -> bool:
    """Pass on the next piece of output. False at its end."""
    chunk = os.read(descriptor, CHUNK_BYTES)
    if chunk:
        on_output(chunk)
        if len(chunk) < CHUNK_BYTES:
            time.sleep(_BATCH_S)
    return bool(chunk)


def _format_gigabytes(size: int) -> str:
    return f"{size / 1024**3:.1f} GiB"


def _lower_priority(leader: int) -> None:
    """Give the process group of `leader` a lower priority than other programs."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended already
        os.setpriority(os.PRIO_PGRP, leader, os.getpriority(os.PRIO_PROCESS, 0) + NICE)
    # If Linux shares the processors among terminal sessions (sched_autogroup), the niceness of a process counts only
    # within its session, and a command has a session of its own. Sessions have a niceness too. Without root rights one
    # may be set every 0.1 s, so that only some commands of a burst get it.
    with contextlib.suppress(OSError):
        Path(f"/proc/{leader}/autogroup").write_text(str(NICE))


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether the leader has ended. It is not reaped, if the platform allows that."""
    return read_exit_code(process) is not None


def read_exit_code(process: subprocess.Popen[bytes]) -> int | None:
    """The exit code of the leader, or its signal as a negative number; None while it runs. See `_has_ended`."""
    if process.returncode is not None or not hasattr(os, "waitid"):  # macOS before Python 3.13
        return process.poll()
    ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _wait_for_end(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait at most `seconds` for the leader's end, without reaping it. True when it has ended."""
    until = time.monotonic() + seconds
    while not _has_ended(process):
        if time.monotonic() >= until:
            return False
        time.sleep(0.005)
    return True
