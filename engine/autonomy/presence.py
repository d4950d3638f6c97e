"""The operator's last sign of presence (SPEC 2.2): console, verbs, API, or a change of files."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta

from engine.clock import Clock
from engine.storage import state
from engine.storage.database import Database

STATE_KEY = "autonomy.presence"

ABSENCE = timedelta(minutes=30)
"""Time without input after which the operator was away, and is told what happened meanwhile (SPEC 9.3)."""

WRITE_INTERVAL = timedelta(seconds=30)
"""Minimum time between two writes to disk; a crash loses at most so much."""


class Presence:
    """The last input: exact in memory, to half a minute on disk. Before any input, the time of creation."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._lock = threading.Lock()
        with database.read() as session:
            stored = state.get(session, STATE_KEY)
        self._written = datetime.fromisoformat(stored["at"]) if stored else None
        self._last = self._written or clock.now()
        self._source = stored["what"] if stored else "start"
        absent_since = stored.get("left") if stored else None
        self._absent_since = datetime.fromisoformat(absent_since) if absent_since else None

    def note_now(self, source: str) -> None:
        """The operator did something; `source` is a word for it, such as `key`, `verb`."""
        self.note(self._clock.now(), source)

    def note(self, at: datetime, source: str) -> None:
        """The operator did something at `at`, such as a change of files found later; an older sign changes nothing."""
        with self._lock:
            if at <= self._last and self._written is not None:
                return
            if at - self._last >= ABSENCE:
                self._absent_since = self._last
            self._last, self._source = max(at, self._last), source
            due = self._written is None or abs(at - self._written) >= WRITE_INTERVAL
            if due:
                self._written = at
            absent_since = self._absent_since.isoformat() if self._absent_since else None
        if due:
            self._database.write(
                lambda tx: state.put(tx, STATE_KEY, {"at": at.isoformat(), "what": source, "left": absent_since})
            )

    def silence(self) -> timedelta:
        """Time since the last input, never negative."""
        with self._lock:
            return max(timedelta(0), self._clock.now() - self._last)

    def away_since(self) -> datetime | None:
        """When the present absence began, or else the last one; None when there was none."""
        with self._lock:
            return self._last if self._clock.now() - self._last >= ABSENCE else self._absent_since

    def last(self) -> tuple[datetime, str]:
        """The time and the source of the last input."""
        with self._lock:
            return self._last, self._source
