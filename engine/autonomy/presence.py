"""The operator's last sign of presence (SPEC 2.2): console, verbs, API, or a change of files."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta

from engine.clock import Clock
from engine.storage import state
from engine.storage.database import Database

KEY = "autonomy.presence"
ABSENCE = timedelta(minutes=30)
"""Silent for so long, the operator was away, and is told what happened meanwhile (SPEC 9.3)."""
WRITE_EVERY = timedelta(seconds=30)
"""A crash may lose so much of it: a key press is no reason for a write to disk."""


class Presence:
    """The last input, in memory exact, on disk to half a minute. Before any input: when it was created."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._lock = threading.Lock()
        with database.read() as session:
            stored = state.get(session, KEY)
        self._written = datetime.fromisoformat(stored["at"]) if stored else None
        self._last = self._written or clock.now()
        self._what = stored["what"] if stored else "start"
        absent_since = stored.get("left") if stored else None
        self._left = datetime.fromisoformat(absent_since) if absent_since else None

    def note_now(self, source: str) -> None:
        """The operator did something; `what` is a word for it, such as `key`, `verb`."""
        self.note(self._clock.now(), source)

    def note(self, at: datetime, source: str) -> None:
        """The operator did something at `at`, such as a change of files found later; an older sign changes nothing."""
        with self._lock:
            if at <= self._last and self._written is not None:
                return
            if at - self._last >= ABSENCE:
                self._left = self._last
            self._last, self._what = max(at, self._last), source
            due = self._written is None or abs(at - self._written) >= WRITE_EVERY
            if due:
                self._written = at
            absent_since = self._left.isoformat() if self._left else None
        if due:
            self._database.write(
                lambda tx: state.put(tx, KEY, {"at": at.isoformat(), "what": source, "left": absent_since})
            )

    def silence(self) -> timedelta:
        """Time since the last input, never negative."""
        with self._lock:
            return max(timedelta(0), self._clock.now() - self._last)

    def away_since(self) -> datetime | None:
        """When the present absence began, or else the last one; None when there was none."""
        with self._lock:
            return self._last if self._clock.now() - self._last >= ABSENCE else self._left

    def last(self) -> tuple[datetime, str]:
        """When, and what it was."""
        with self._lock:
            return self._last, self._what
