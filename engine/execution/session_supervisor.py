"""Watches running sessions: writes their transcripts, publishes their output, enforces limits and the kill switch.

One thread watches all of them. It exists only while a session runs, so an idle engine does not wake up.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from engine.events import EventBus, SessionOutput
from engine.execution.live_session import LiveSession, StopRequest
from engine.execution.sandbox import disk_shortage
from engine.model import SessionState

log = logging.getLogger(__name__)

TICK_S = 0.1
"""Seconds between two rounds: at most ten flushes and ten events a second for each session."""

LIMIT_CHECK_TICKS = 2
"""Ticks between two checks of limits and kill switch."""

USAGE_CHECK_TICKS = 6
"""Ticks between two checks of memory and processes, which read all processes of the machine."""

StopSignal = Callable[[], str]
"""The kill switch (SPEC 3.7): why nothing may run now, "" when it may."""


def read_stop_reason(signal: StopSignal) -> str:
    """The answer of the kill switch. One that raises stops everything (fail closed)."""
    try:
        return signal()
    except Exception as error:
        log.exception("the kill switch cannot be asked")
        return f"the kill switch cannot be read: {error}"


class SessionSupervisor:
    """Watches the sessions that `live` returns, and calls `end` for each that has to end."""

    def __init__(
        self,
        *,
        live: Callable[[], list[LiveSession]],
        end: Callable[[LiveSession, StopRequest], None],
        stop_signal: StopSignal,
        bus: EventBus,
    ) -> None:
        self._live = live
        self._end = end
        self._stop_signal = stop_signal
        self._bus = bus
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._checks_usage = False

    def wake(self) -> None:
        """Start the thread if it does not run. Call it when `live` has the new session."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="clawpy-supervisor", daemon=True)
                self._thread.start()

    def publish_output(self, live: LiveSession) -> None:
        """Write and publish the session's output since the last time. Raises OSError on a full disk."""
        text = live.transcript.flush()
        if text:
            self._bus.publish(
                SessionOutput(
                    subject=live.id,
                    workspace=live.assignment.workspace,
                    last_line=live.transcript.lines,
                    text=text,
                )
            )

    def _run(self) -> None:
        tick = 0
        while True:
            with self._lock:
                sessions = self._live()
                if not sessions:
                    self._thread = None
                    return
            tick += 1
            self._checks_usage = tick % USAGE_CHECK_TICKS == 0
            try:
                for live in sessions:
                    self._write_transcript(live)
                if tick % LIMIT_CHECK_TICKS == 0:
                    self._enforce_limits(sessions)
            except Exception:
                # The thread goes on: without it no limit and no kill switch would work.
                log.exception("watching running sessions failed")
            time.sleep(TICK_S)

    def _write_transcript(self, live: LiveSession) -> None:
        try:
            self.publish_output(live)
        except OSError as error:
            if live.stop_requested is None:
                log.error("session %s ends, its transcript cannot be written: %s", live.id, error)
                self._end(live, StopRequest(SessionState.FAILED, f"its transcript cannot be written: {error.strerror}"))

    def _enforce_limits(self, sessions: list[LiveSession]) -> None:
        reason = read_stop_reason(self._stop_signal)
        for live in sessions:
            if live.stop_requested is not None:
                continue
            if reason:
                self._end(live, StopRequest(SessionState.CANCELLED, reason))
            elif exceeded := self._exceeded_limit(live):
                self._end(live, StopRequest(SessionState.FAILED, exceeded))

    def _exceeded_limit(self, live: LiveSession) -> str:
        if exceeded := live.exceeded_limit() or disk_shortage(live.scratch, live.folder):
            return exceeded
        return live.processes.exceeded_limit() if self._checks_usage else ""
