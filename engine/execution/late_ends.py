"""Stores the ends of sessions later, when they could not be stored at once, for example because the disk was full
(SPEC 11.3). `Sessions` shows their results meanwhile."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

from engine.events import EventBus, FaultReported
from engine.execution.session_store import SessionResult

log = logging.getLogger(__name__)

FIRST_RETRY_S, MAX_RETRY_S = 0.2, 30.0
"""Seconds until the end of a session that could not be stored is tried again, at first and at most."""


class LateEnds:
    """The ends of sessions that are not stored yet. Each is tried again in a thread until the engine closes. Then it is
    left to the next start, which reports the session as interrupted."""

    def __init__(
        self, bus: EventBus, closing: threading.Event, start_thread: Callable[[str, Callable[[], None]], None]
    ) -> None:
        """`closing` is set when the engine closes. `start_thread` starts a thread by its name and its work, or raises
        `RuntimeError`."""
        self._bus = bus
        self._closing = closing
        self._start_thread = start_thread
        self._results: dict[str, SessionResult] = {}

    def remember(self, session_id: str, result: SessionResult) -> None:
        """Remember the result of a session that is over."""
        self._results[session_id] = result

    def find_result(self, session_id: str) -> SessionResult | None:
        """The result of a session that is over, but whose end is not stored yet."""
        return self._results.get(session_id)

    def retry(self, session_id: str, store: Callable[[], None], failed: Exception) -> None:
        """Report that the end of a session could not be stored, and try `store` until it succeeds."""
        then = "it is tried again"
        try:
            self._start_thread(f"clawpy-late-{session_id}", partial(self._store_late, session_id, store))
        except RuntimeError:  # the machine has no thread left
            then = "the next start reports it as interrupted"
        self._report(session_id, f"the end of session {session_id} could not be stored; {then}: {failed}")

    def _store_late(self, session_id: str, store: Callable[[], None]) -> None:
        wait = FIRST_RETRY_S
        while not self._closing.wait(wait):
            try:
                store()
            except Exception as error:
                log.warning("the end of session %s still cannot be stored: %s", session_id, error)
                wait = min(2 * wait, MAX_RETRY_S)
            else:
                self._results.pop(session_id, None)
                self._report(session_id, f"the end of session {session_id} is stored now")
                return

    def _report(self, session_id: str, message: str) -> None:
        log.error("%s", message)
        self._bus.publish(FaultReported(subject=session_id, where="sessions", message=message))
