"""Looks after sessions: writes the transcripts of those that run, tells screens, enforces limits and the kill switch;
and stores the ends of those that could not be stored.

One thread for all that run, there only while something runs: an idle engine does not wake up for this.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from engine.events import EventBus, SessionOutput
from engine.execution.live_session import LiveSession, Stop
from engine.execution.sandbox import disk_shortage
from engine.model import SessionState

log = logging.getLogger(__name__)

TICK = 0.1
"""Seconds between two looks: at most ten flushes and ten events a second for each session."""

LIMITS_EVERY = 2
"""Limits and kill switch are looked at every so many ticks."""

USAGE_EVERY = 6
"""What the processes take together, which means a look at all of the machine, every so many."""


StopSignal = Callable[[], str]
"""The kill switch (SPEC 3.7), asked before a session starts and while it runs: why nothing may run now, "" when it
may."""


def read_stop_reason(signal: StopSignal) -> str:
    """What the kill switch says; one that cannot be asked stops everything (fail closed)."""
    try:
        return signal()
    except Exception as error:
        log.exception("the kill switch cannot be asked")
        return f"the kill switch cannot be read: {error}"


class SessionSupervisor:
    """`live` gives the running sessions; `end` is called for each that has to end."""

    def __init__(
        self,
        *,
        live: Callable[[], list[LiveSession]],
        end: Callable[[LiveSession, Stop], None],
        stop_signal: StopSignal,
        bus: EventBus,
    ) -> None:
        self._live = live
        self._end = end
        self._stop_signal = stop_signal
        self._bus = bus
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._counting = False

    def wake(self) -> None:
        """Something runs: look after it. Call it after the session is among `live`."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="clawpy-supervisor", daemon=True)
                self._thread.start()

    def report(self, live: LiveSession) -> None:
        """Write what the session printed since the last time, and tell screens. Raises OSError on a full disk."""
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
            self._counting = tick % USAGE_EVERY == 0
            try:
                for live in sessions:
                    self._write(live)
                if tick % LIMITS_EVERY == 0:
                    self._judge(sessions)
            except Exception:
                # Without it no limit and no kill switch would hold: it outlives a fault, and looks again.
                log.exception("looking after running sessions failed")
            time.sleep(TICK)

    def _write(self, live: LiveSession) -> None:
        try:
            self.report(live)
        except OSError as error:
            if live.stop_requested is None:
                log.error("session %s ends, its transcript cannot be written: %s", live.id, error)
                self._end(live, Stop(SessionState.FAILED, f"its transcript cannot be written: {error.strerror}"))

    def _judge(self, sessions: list[LiveSession]) -> None:
        reason = read_stop_reason(self._stop_signal)
        for live in sessions:
            if live.stop_requested is not None:
                continue
            if reason:
                self._end(live, Stop(SessionState.CANCELLED, reason))
            elif exceeded := self._over_limit(live):
                self._end(live, Stop(SessionState.FAILED, exceeded))

    def _over_limit(self, live: LiveSession) -> str:
        if exceeded := live.exceeded_limit() or disk_shortage(live.scratch, live.folder):
            return exceeded
        return live.processes.exceeded_limit() if self._counting else ""
