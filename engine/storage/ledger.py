"""Layer B, the event ledger (SPEC 4.2): each event is one row, written before anything reacts to it.

A service that handles recorded events has a cursor. `LedgerConsumer` handles events one by one; it retries one that
fails, and then skips and reports it. `ConsumerThread` runs several consumers in a thread of their own, because they
read files and ask models.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from engine.background import BackgroundWorker
from engine.frozen import frozen
from engine.model import Layer, LayerState
from engine.storage import as_stored, driver_of, state
from engine.storage.database import Database

log = logging.getLogger(__name__)

_SELECT_ENTRIES = "SELECT id, at, kind, subject, workspace, payload FROM memory_events"

MAX_ID = 2**63 - 1
"""Larger than every id."""

BATCH_SIZE = 500
"""Maximum number of entries that are read at once."""

MAX_ENTRIES_BETWEEN = 5_000
"""Maximum number of entries of a span of time that are read."""

MAX_ATTEMPTS = 3
"""Number of failures after which an entry is reported and skipped."""

CLOSE_TIMEOUT_S = 5.0
"""Maximum time that `close` waits for the entry that is being handled; the next start handles it again."""


@frozen
class LedgerEntry:
    """An event as `Transaction.record` wrote it. `id` grows with time, and is used as a cursor. `kind` is the name of
    the event's class, and `payload` contains its other fields."""

    id: int
    at: datetime
    kind: str
    subject: str
    workspace: str
    payload: dict[str, Any]

    @property
    def session_id(self) -> str:
        """The session that it is about, for an event about a session or its changes. For any other one its subject."""
        return str(self.payload.get("session_id") or self.subject)


class Ledger:
    """Reads the ledger."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.cursor_keys: set[str] = set()
        """The keys of all consumers' cursors: entries after a cursor are still needed."""
        self._last_read: tuple[tuple[int, int, int], list[LedgerEntry]] | None = None
        """What `read_since` returned last, after the commits and the arguments that it was read with."""

    def read_newest(
        self, limit: int = 50, *, kinds: tuple[str, ...] = (), before: int | None = None
    ) -> list[LedgerEntry]:
        """The newest entries first, at most `limit`; page on with `before` = the last id seen."""
        before = before or MAX_ID
        if not kinds:
            return self._load_entries("WHERE id < ? ORDER BY id DESC LIMIT ?", before, limit)
        # One query for each kind uses the index; one for all kinds would sort all their entries.
        clause = "WHERE kind = ? AND id < ? ORDER BY at DESC, id DESC LIMIT ?"
        entries = [entry for kind in set(kinds) for entry in self._load_entries(clause, kind, before, limit)]
        return sorted(entries, key=lambda entry: entry.id, reverse=True)[:limit]

    def read_since(self, cursor: int, limit: int = BATCH_SIZE) -> Sequence[LedgerEntry]:
        """Entries after `cursor`, oldest first, for services that must miss nothing. A result is kept until the next
        commit, since most of these services have the same cursor."""
        read_at = self.database.commits, cursor, limit  # before reading: after a commit meanwhile it is read again
        last = self._last_read
        if last is None or last[0] != read_at:
            last = read_at, self._load_entries("WHERE id > ? ORDER BY id LIMIT ?", cursor, limit)
            self._last_read = last
        return last[1]

    def read_between(self, start: datetime, end: datetime, kinds: tuple[str, ...]) -> list[LedgerEntry]:
        """Entries of some kinds from `start` until before `end`, oldest first, at most `MAX_ENTRIES_BETWEEN`."""
        return self._load_entries(
            "WHERE kind IN (SELECT value FROM json_each(?)) AND at >= ? AND at < ? ORDER BY id LIMIT ?",
            *(json.dumps(kinds), as_stored(start), as_stored(end), MAX_ENTRIES_BETWEEN),
        )

    def describe_layer(self) -> LayerState:
        """The state of layer B (SPEC 9.5)."""
        newest = self.read_newest(1)
        with self.database.read() as session:
            (number,) = driver_of(session).execute("SELECT count(*) FROM memory_events").fetchone()
        return LayerState(Layer.LEDGER, number, newest[0].at if newest else None, "ready")

    def _load_entries(self, clause: str, *values: object) -> list[LedgerEntry]:
        with self.database.read() as session:
            rows = driver_of(session).execute(f"{_SELECT_ENTRIES} {clause}", values).fetchall()
        return [
            LedgerEntry(id, datetime.fromisoformat(at), kind, subject, workspace, json.loads(payload))
            for id, at, kind, subject, workspace, payload in rows
        ]


Handler = Callable[[Sequence[LedgerEntry]], int | None]
"""Handles entries, oldest first; returns how many it handled, None for all."""


class LedgerCursor:
    """The position of a consumer in the ledger, stored under `key`. Each entry is handled once, after a crash perhaps
    again.

    `is_relevant` says which entries are handled. The position is stored after entries were handled, or after a whole
    batch without relevant ones, and only together with the next write, so that an idle engine writes nothing. One
    thread at a time.
    """

    def __init__(self, ledger: Ledger, key: str, is_relevant: Callable[[LedgerEntry], bool]) -> None:
        self._ledger = ledger
        self._database = ledger.database
        self._key = key
        self._is_relevant = is_relevant
        self._cursor = -1
        self._commits_when_done = -1
        """`Database.ledger_commits` when nothing was left to handle."""
        ledger.cursor_keys.add(key)

    def handle_new(self, handle: Handler) -> None:
        """Call `handle` with the new relevant entries, oldest first, in batches.

        `handle` returns how many it has handled, None for all; the others come the next time. Its errors are raised
        here. Then its whole batch comes again, so it must accept entries that it has handled before.
        """
        while (commits := self._database.ledger_commits) != self._commits_when_done:
            if self._cursor < 0:
                with self._database.read() as session:
                    self._cursor = int(state.get(session, self._key, 0))
            entries = self._ledger.read_since(self._cursor)
            if not self._handle_batch(entries, handle):
                return
            if len(entries) < BATCH_SIZE:
                self._commits_when_done = commits  # from before reading: what was written since is read next

    def _handle_batch(self, entries: Sequence[LedgerEntry], handle: Handler) -> bool:
        """Handle the relevant ones of `entries`, and move the cursor behind what was handled. False if some were not
        handled."""
        relevant = [entry for entry in entries if self._is_relevant(entry)]
        handled = handle(relevant) if relevant else None
        unhandled = [] if handled is None else relevant[handled:]
        if entries:
            self._cursor = unhandled[0].id - 1 if unhandled else entries[-1].id
        was_any_handled = len(unhandled) < len(relevant)
        was_full_batch_irrelevant = not relevant and len(entries) == BATCH_SIZE
        if was_any_handled or was_full_batch_irrelevant:
            state.put_with_next_write(self._database, self._key, self._cursor)
        return not unhandled


class NotReady(Exception):
    """An entry cannot be handled yet. It is tried again later, before the entries after it."""


class LedgerConsumer:
    """Handles ledger entries of some `kinds`, by calling `handle` with each. After a crash it may be called again with
    an entry that it has handled, and then must change nothing."""

    def __init__(
        self,
        name: str,
        ledger: Ledger,
        kinds: frozenset[str],
        handle: Callable[[LedgerEntry], None],
        *,
        key: str,
    ) -> None:
        """The cursor is stored under `key` and the name."""
        self.name = name
        self._cursor = LedgerCursor(ledger, f"{key}.{name}", lambda entry: entry.kind in kinds)
        self._handle = handle
        self._failures = 0
        self._lock = threading.Lock()

    def catch_up(self, should_continue: Callable[[], bool] = lambda: True) -> list[str]:
        """Handle new entries while `should_continue()` is true. Returns messages about entries that were skipped.

        An error of `handle` is logged, and the next call tries again, `MAX_ATTEMPTS` times in all.
        """
        skipped: list[str] = []

        def handle_in_order(entries: Sequence[LedgerEntry]) -> int:
            for done, entry in enumerate(entries):
                if not should_continue() or not self._try_to_handle(entry, skipped):
                    return done
            return len(entries)

        with self._lock:
            self._cursor.handle_new(handle_in_order)
        return skipped

    def _try_to_handle(self, entry: LedgerEntry, skipped: list[str]) -> bool:
        """Handle an entry. False if it must be tried again. One that failed too often gets a message in `skipped`."""
        try:
            self._handle(entry)
        except NotReady:
            return False
        except Exception as error:
            log.exception("%s: %s of %s could not be handled", self.name, entry.kind, entry.subject)
            self._failures += 1
            if self._failures < MAX_ATTEMPTS:
                return False
            skipped.append(f"{entry.kind} of {entry.subject} was skipped: {error}")
        self._failures = 0
        return True


class ConsumerThread:
    """A thread in which the consumers catch up, one after the other, whenever it is poked."""

    def __init__(
        self,
        consumers: Sequence[LedgerConsumer],
        report: Callable[[str, str], None],
        *,
        service: str,
        on_caught_up: Callable[[], None] = lambda: None,
    ) -> None:
        """`report(service, message)` is called for skipped entries; `on_caught_up` after all have caught up."""
        self._service = service
        self._on_caught_up = on_caught_up
        self._consumers = tuple(consumers)
        self._report = report
        self._background = BackgroundWorker(f"clawpy-{service}-follow", self._step)
        self._is_started = False

    def start(self) -> None:
        """Start the thread, which first handles what was recorded while no engine ran."""
        self._is_started = True
        self._background.wake()

    def poke(self) -> None:
        """Let the consumers catch up, if the thread was started. Returns at once; from any thread."""
        if self._is_started:
            self._background.wake()

    def catch_up(self, until: float | None = None) -> None:
        """Let all consumers catch up in this thread. No entry is begun after `until`, a monotonic time; the next call
        handles the rest."""

        def should_continue() -> bool:
            return not self._background.is_closed and (until is None or time.monotonic() < until)

        for consumer in self._consumers:
            for message in consumer.catch_up(should_continue):
                self._report(f"{self._service} ({consumer.name})", message)
        if not self._background.is_closed:
            self._on_caught_up()

    def close(self) -> None:
        """Stop after the entry in progress. Safe to call twice."""
        self._background.close(CLOSE_TIMEOUT_S)

    def _step(self) -> None:
        try:
            self.catch_up()
        except Exception:
            if not self._background.is_closed:
                log.exception("following the ledger failed; it continues with the next entry")
