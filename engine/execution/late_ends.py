"""Ends of sessions that could not be stored, on a full disk for instance, are tried again (SPEC 11.3).

Until then their rows say RUNNING, though nothing runs any more. What is not stored when the engine closes, or after
`GIVE_UP` seconds, is left to the next start, which finds the row and says that the session was interrupted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from engine.events import EventBus, FaultReported
from engine.model import Refusal

log = logging.getLogger(__name__)

FIRST, LONGEST, GIVE_UP = 0.2, 30.0, 24 * 3_600.0
"""Seconds until the first new try, each wait twice the last, none longer than `LONGEST`, none later than `GIVE_UP`."""

WAITED_FOR = 5.0
"""Seconds after which who waits for the session's end waits no longer, though it is not stored."""

CLOSED = "engine_closed"
"""The refusal of a database that takes nothing any more."""


class LateEnds:
    """One thread for each session whose end waits to be stored; there are as many as may run, and seldom any."""

    def __init__(self, bus: EventBus) -> None:
        self._bus = bus
        self._lock = threading.Lock()
        self._threads: dict[str, threading.Thread] = {}
        self._closing = threading.Event()

    def __contains__(self, session_id: object) -> bool:
        with self._lock:
            return session_id in self._threads

    def keep_trying(
        self, session_id: str, store: Callable[[], object], error: Exception, over: Callable[[], object]
    ) -> None:
        """Have `store` tried again until it does not raise. `over` is called then, and when nobody should wait for it
        any longer; it may be called twice. `error` is what `store` raised the first time. Nothing is done for a session
        that is among these already."""
        thread = threading.Thread(
            target=self._try, args=(session_id, store, over), name=f"clawpy-late-{session_id}", daemon=True
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
            self._forget(session_id, over)

    def close(self) -> None:
        """Give up at once; waits for a try that is under way."""
        self._closing.set()
        with self._lock:
            threads = list(self._threads.values())
        for thread in threads:
            if thread.is_alive():
                thread.join()

    def _try(self, session_id: str, store: Callable[[], object], over: Callable[[], object]) -> None:
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
                    over()
                continue
            late = round(time.monotonic() - began)
            self._tell(session_id, f"the end of session {session_id} is stored now, {late} s late")
            self._forget(session_id, over)
            return
        self._tell(
            session_id,
            f"the end of session {session_id} is not stored; the next start reports the session as interrupted",
        )
        self._forget(session_id, over)

    def _forget(self, session_id: str, over: Callable[[], object]) -> None:
        with self._lock:
            self._threads.pop(session_id, None)
        over()

    def _tell(self, session_id: str, message: str) -> None:
        log.error("%s", message)
        self._bus.publish(FaultReported(subject=session_id, where="sessions", message=message))
