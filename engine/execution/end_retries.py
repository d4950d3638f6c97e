"""Retries to store the end of a session, for example after a full disk (SPEC 11.3)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from engine.events import EventBus, FaultReported
from engine.model import Refusal

log = logging.getLogger(__name__)

FIRST_WAIT_S, MAX_WAIT_S, GIVE_UP_S = 0.2, 30.0, 24 * 3_600.0
"""Seconds until the first retry, the longest wait (each is twice the last), and the time after which it gives up."""

WAITER_TIMEOUT_S = 5.0
"""Seconds after which callers that wait for the session's end are released, although it is not stored."""

CLOSED = "engine_closed"
"""The code with which a closed database refuses a write."""


class EndRetries:
    """Retries to store ends of sessions, each in its own thread.

    Until then their rows are RUNNING, though nothing runs any more. An end that is not stored when the engine closes,
    or after `GIVE_UP_S` seconds, is left to the next start, which reports the session as interrupted.
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
        """Call `store` again until it does not raise; `error` is its first error. `on_end` is called then, and when
        nobody should wait any longer; it may be called twice. A second call for the same session does nothing."""
        thread = threading.Thread(
            target=self._retry, args=(session_id, store, on_end), name=f"clawpy-late-{session_id}", daemon=True
        )
        with self._lock:
            if session_id in self._threads:
                return
            self._threads[session_id] = thread
        self._report(session_id, f"the end of session {session_id} could not be stored; it is tried again: {error}")
        try:
            thread.start()
        except RuntimeError:  # the machine has no thread left
            log.exception("nothing tries to store the end of session %s", session_id)
            self._forget(session_id, on_end)

    def close(self) -> None:
        """Give up; wait for a retry that is under way."""
        self._closing.set()
        with self._lock:
            threads = list(self._threads.values())
        for thread in threads:
            if thread.is_alive():
                thread.join()

    def _retry(self, session_id: str, store: Callable[[], object], on_end: Callable[[], object]) -> None:
        began, wait = time.monotonic(), FIRST_WAIT_S
        while not self._closing.wait(wait) and time.monotonic() - began < GIVE_UP_S:
            try:
                store()
            except Exception as error:
                log.warning("the end of session %s still cannot be stored: %s", session_id, error)
                if isinstance(error, Refusal) and error.code == CLOSED:
                    break
                wait = min(2 * wait, MAX_WAIT_S)
                if time.monotonic() - began >= WAITER_TIMEOUT_S:
                    on_end()
                continue
            delay = round(time.monotonic() - began)
            self._report(session_id, f"the end of session {session_id} is stored now, {delay} s late")
            self._forget(session_id, on_end)
            return
        self._report(
            session_id,
            f"the end of session {session_id} is not stored; the next start reports the session as interrupted",
        )
        self._forget(session_id, on_end)

    def _forget(self, session_id: str, on_end: Callable[[], object]) -> None:
        with self._lock:
            self._threads.pop(session_id, None)
        on_end()

    def _report(self, session_id: str, message: str) -> None:
        log.error("%s", message)
        self._bus.publish(FaultReported(subject=session_id, where="sessions", message=message))
