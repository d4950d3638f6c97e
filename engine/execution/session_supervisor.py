"""Looks after sessions: writes the transcripts of those that run, tells screens, enforces limits and the kill switch;
and stores the ends of those that could not be stored.

One thread for all that run, there only while something runs: an idle engine does not wake up for this.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from engine.events import EventBus, FaultReported, SessionOutput
from engine.execution.live_session import LiveSession, Stop
from engine.execution.sandbox import disk_shortage
from engine.model import Refusal, SessionState

log = logging.getLogger(__name__)

TICK = 0.1
"""Seconds between two looks: at most ten flushes and ten events a second for each session."""

LIMITS_EVERY = 2
"""Limits and kill switch are looked at every so many ticks."""

USAGE_EVERY = 6
"""What the processes take together, which means a look at all of the machine, every so many."""


FIRST, LONGEST, GIVE_UP = 0.2, 30.0, 24 * 3_600.0
"""Seconds until the first new try, each wait twice the last, none longer than `LONGEST`, none later than `GIVE_UP`."""

WAITED_FOR = 5.0
"""Seconds after which who waits for the session's end waits no longer, though it is not stored."""

CLOSED = "engine_closed"
"""The refusal of a database that takes nothing any more."""

StopSignal = Callable[[], str | None]
"""The kill switch (SPEC 3.7), asked before a session starts and while it runs: why nothing may run now, or None."""


def stopped(signal: StopSignal) -> str | None:
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
        self._pause = threading.Event()
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
            self._pause.wait(TICK)

    def _write(self, live: LiveSession) -> None:
        try:
            self.report(live)
        except OSError as error:
            if live.stop_requested is None:
                log.error("session %s ends, its transcript cannot be written: %s", live.id, error)
                self._end(live, Stop(SessionState.FAILED, f"its transcript cannot be written: {error.strerror}"))

    def _judge(self, sessions: list[LiveSession]) -> None:
        reason = stopped(self._stop_signal)
        for live in sessions:
            if live.stop_requested is not None:
                continue
            if reason is not None:
                self._end(live, Stop(SessionState.CANCELLED, reason))
            elif exceeded := self._over_limit(live):
                self._end(live, Stop(SessionState.FAILED, exceeded))

    def _over_limit(self, live: LiveSession) -> str:
        if exceeded := live.over_limit() or disk_shortage(live.scratch, live.folder):
            return exceeded
        return live.processes.over_limit() if self._counting else ""


class LateEnds:
    """Ends of sessions that could not be stored, on a full disk for instance, are tried again (SPEC 11.3).

    Until then their rows say RUNNING, though nothing runs any more. What is not stored when the engine closes, or after
    `GIVE_UP` seconds, is left to the next start, which finds the row and says that the session was interrupted. One
    thread for each: there are as many as may run, and seldom any.
    """

    def __init__(self, bus: EventBus) -> None:
        self._bus = bus
        self._lock = threading.Lock()
        self._threads: dict[str, threading.Thread] = {}
        self._closing = threading.Event()

    def __contains__(self, session_id: object) -> bool:
        with self._lock:
            return session_id in self._threads

    def keep_trying(
        self, session_id: str, store: Callable[[], object], error: Exception, on_end: Callable[[], object]
    ) -> None:
        """Have `store` tried again until it does not raise. `on_end` is called then, and when nobody should wait for it
        any longer; it may be called twice. `error` is what `store` raised the first time. Nothing is done for a session
        that is among these already."""
        thread = threading.Thread(
            target=self._try, args=(session_id, store, on_end), name=f"clawpy-late-{session_id}", daemon=True
        )
        with self._lock:
            if session_id in self._threads:
                return
            self._threads[session_id] = thread
        self._tell(session_id, f"the end of session {session_id} could not be stored; it is tried again: {error}")
        try:
            thread.start()
        except RuntimeError:  # the machine has no thread left
            log.exception("nothing tries to store the end of session %s", session_id)
            self._forget(session_id, on_end)

    def close(self) -> None:
        """Give up at once; waits for a try that is under way."""
        self._closing.set()
        with self._lock:
            threads = list(self._threads.values())
        for thread in threads:
            if thread.is_alive():
                thread.join()

    def _try(self, session_id: str, store: Callable[[], object], on_end: Callable[[], object]) -> None:
        began, wait = time.monotonic(), FIRST
        while not self._closing.wait(wait) and time.monotonic() - began < GIVE_UP:
            try:
                store()
            except Exception as error:
                log.warning("the end of session %s still cannot be stored: %s", session_id, error)
                if isinstance(error, Refusal) and error.code == CLOSED:
                    break
                wait = min(2 * wait, LONGEST)
                if time.monotonic() - began >= WAITED_FOR:
                    on_end()
                continue
            delay = round(time.monotonic() - began)
            self._tell(session_id, f"the end of session {session_id} is stored now, {delay} s late")
            self._forget(session_id, on_end)
            return
        self._tell(
            session_id,
            f"the end of session {session_id} is not stored; the next start reports the session as interrupted",
        )
        self._forget(session_id, on_end)

    def _forget(self, session_id: str, on_end: Callable[[], object]) -> None:
        with self._lock:
            self._threads.pop(session_id, None)
        on_end()

    def _tell(self, session_id: str, message: str) -> None:
        log.error("%s", message)
        self._bus.publish(FaultReported(subject=session_id, where="sessions", message=message))
