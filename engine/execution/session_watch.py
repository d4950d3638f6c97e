"""Watches running sessions: writes their transcripts, publishes their output, and stops them at a limit or when the
kill switch is on (SPEC 3.7, 3.8). `Sessions` owns the watch."""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from engine.events import EventBus, SessionOutput
from engine.execution.live_session import LiveSession
from engine.execution.session_terms import StopRequest
from engine.model import SessionState

log = logging.getLogger(__name__)

TICK_S = 0.1
"""Seconds between two rounds. So a session has at most ten flushes and ten events a second."""

LIMIT_CHECK_TICKS = 2
"""Rounds between two checks of limits and kill switch."""

USAGE_CHECK_TICKS = 6
"""Rounds between two checks of memory and processes, for which all processes of the machine are read."""

MIN_FREE_BYTES = 256 * 1024**2
"""A session ends when less than this is left on its disk, because the engine's own records need room."""

MIN_FREE_FILES = 10_000
"""A session ends when fewer files than this can be made on its disk."""


class SessionWatch:
    """Watches in one thread. The thread exists only while a session runs, so that an idle engine does not wake up."""

    def __init__(
        self, bus: EventBus, *, stop_reason: Callable[[], str], stop: Callable[[LiveSession, StopRequest], None]
    ) -> None:
        """`stop_reason` says why nothing may run now, "" when it may. `stop` stops a session. Both are quick."""
        self._bus = bus
        self._stop_reason = stop_reason
        self._stop = stop
        self._lock = threading.Lock()
        self._sessions: dict[str, LiveSession] = {}
        self._thread: threading.Thread | None = None

    def add(self, live: LiveSession) -> None:
        """Watch a session from now on. Raises `RuntimeError` when the machine has no thread left."""
        with self._lock:
            self._sessions[live.id] = live
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="clawpy-supervisor", daemon=True)
                thread.start()
                self._thread = thread

    def remove(self, session_id: str) -> None:
        """Watch a session no longer."""
        with self._lock:
            self._sessions.pop(session_id, None)

    def publish_output(self, live: LiveSession) -> None:
        """Write and publish the session's output since the last time. Raises OSError on a full disk."""
        if text := live.transcript.flush():
            workspace, last_line = live.assignment.workspace, live.transcript.lines
            self._bus.publish(SessionOutput(subject=live.id, workspace=workspace, last_line=last_line, text=text))

    def _run(self) -> None:
        for tick in itertools.count(1):
            with self._lock:
                sessions = [*self._sessions.values()]
                if not sessions:
                    self._thread = None
                    return
            try:
                for live in sessions:
                    self._write_transcript(live)
                if tick % LIMIT_CHECK_TICKS == 0:
                    self._enforce_limits(sessions, usage=tick % USAGE_CHECK_TICKS == 0)
            except Exception:
                # The thread goes on: without it no limit and no kill switch would work.
                log.exception("watching running sessions failed")
            time.sleep(TICK_S)

    def _write_transcript(self, live: LiveSession) -> None:
        try:
            self.publish_output(live)
        except OSError as error:
            if live.stop_requested is None:
                reason = f"its transcript cannot be written: {error.strerror}"
                log.error("session %s ends: %s", live.id, reason)
                self._stop(live, StopRequest(SessionState.FAILED, reason))

    def _enforce_limits(self, sessions: Sequence[LiveSession], *, usage: bool) -> None:
        reason = self._stop_reason()
        for live in sessions:
            if live.stop_requested is not None:
                continue
            if reason:
                self._stop(live, StopRequest(SessionState.CANCELLED, reason))
                continue
            exceeded = live.exceeded_limit() or find_disk_shortage(live.scratch, live.folder)
            if usage and not exceeded:
                exceeded = live.processes.exceeded_limit()
            if exceeded:
                self._stop(live, StopRequest(SessionState.FAILED, exceeded))


def find_disk_shortage(*folders: Path) -> str:
    """Why the disk of one of `folders` has too little room for a session. "" when there is room."""
    for folder in folders:
        try:
            stats = os.statvfs(folder)
        except OSError:
            continue  # gone with the session
        if stats.f_bavail * stats.f_frsize < MIN_FREE_BYTES:
            return f"less than {MIN_FREE_BYTES // 1024**2} MB are free on the disk of {folder}"
        if stats.f_files and stats.f_favail < MIN_FREE_FILES:
            return f"the disk of {folder} has room for fewer than {MIN_FREE_FILES:,} more files"
    return ""
