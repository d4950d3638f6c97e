"""Looks after running sessions: writes their transcripts, tells screens, enforces limits and the kill switch.

One thread for all of them, there only while something runs: an idle engine does not wake up for this.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from engine.events import EventBus, SessionOutput
from engine.execution.live import LiveSession, Stop
from engine.execution.sandbox import disk_shortage
from engine.model import SessionState

log = logging.getLogger(__name__)

TICK = 0.1
"""Seconds between two looks: at most ten flushes and ten events a second for each session."""

LIMITS_EVERY = 2
"""Limits and kill switch are looked at every so many ticks."""

USAGE_EVERY = 6
"""What the processes take together, which means a look at all of the machine, every so many."""


class Brakes(Protocol):
    """The kill switch (SPEC 3.7), asked before a session starts and while it runs."""

    def stopped(self) -> str | None:
        """Why nothing may run now, or None. Quick."""


def stopped(brakes: Brakes) -> str | None:
    """What the kill switch says; one that cannot be asked stops everything (fail closed)."""
    try:
        return brakes.stopped()
    except Exception as error:
        log.exception("the kill switch cannot be asked")
        return f"the kill switch cannot be read: {error}"


class Keeper:
    """`live` gives the running sessions; `end` is called for each that has to end."""

    def __init__(
        self,
        *,
        live: Callable[[], list[LiveSession]],
        end: Callable[[LiveSession, Stop], None],
        brakes: Brakes,
        bus: EventBus,
    ) -> None:
        self._live = live
        self._end = end
        self._brakes = brakes
        self._bus = bus
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pause = threading.Event()
        self._counting = False

    def wake(self) -> None:
        """Something runs: look after it. Call it after the session is among `live`."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="clawpy-keeper", daemon=True)
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
            self._pause.wait(TICK)

    def _write(self, live: LiveSession) -> None:
        try:
            self.report(live)
        except OSError as error:
            if live.stop_requested is None:
                log.error("session %s ends, its transcript cannot be written: %s", live.id, error)
                self._end(live, Stop(SessionState.FAILED, f"its transcript cannot be written: {error.strerror}"))

    def _judge(self, sessions: list[LiveSession]) -> None:
        reason = stopped(self._brakes)
        for live in sessions:
            if live.stop_requested is not None:
                continue
            if reason is not None:
                self._end(live, Stop(SessionState.CANCELLED, reason))
            elif over := self._over_limit(live):
                self._end(live, Stop(SessionState.FAILED, over))

    def _over_limit(self, live: LiveSession) -> str:
        if over := live.over_limit() or disk_shortage(live.scratch, live.folder):
            return over
        return live.processes.over_limit() if self._counting else ""
