"""Layer B, the event ledger (SPEC 4.2): each event is one row, written before anything reacts to it."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any

import sqlalchemy
from sqlmodel import Field

from engine.background import Background
from engine.clock import Clock
from engine.events import Event, FaultReported
from engine.frozen import frozen
from engine.model import Layer, LayerState, sanitise
from engine.model.secrets import redact
from engine.storage import state
from engine.storage.database import Database, Transaction
from engine.storage.rows import Row, as_stored, json_field, session_driver, utc_field


class MemoryEvent(Row, table=True):
    """One event. `kind` is the event's class name, `payload` its other fields."""

    __tablename__ = "memory_events"

    id: int | None = Field(default=None, primary_key=True)
    at: datetime = utc_field()
    kind: str
    subject: str = ""
    workspace: str = ""
    payload: dict[str, Any] = json_field()


class EventDay(Row, table=True):
    """The number of events of a kind in a workspace on a day (UTC, `2026-01-05`).

    A database trigger counts each row in the transaction that writes it. A row that retention deletes later stays
    counted.
    """

    __tablename__ = "memory_event_days"

    kind: str = Field(primary_key=True)
    day: str = Field(primary_key=True)
    workspace: str = Field(primary_key=True)
    number: int


@frozen
class LedgerEntry:
    """An entry of the ledger; `id` grows with time and serves as a cursor."""

    id: int
    at: datetime
    kind: str
    subject: str
    workspace: str
    payload: dict[str, Any]


_INSERT_EVENT = sqlalchemy.insert(MemoryEvent)


def append(transaction: Transaction, event: Event) -> None:
    """Write one event; the database calls this inside the transaction that made the event true."""
    transaction.append(
        _INSERT_EVENT,
        {
            "at": transaction.now,
            "kind": event.kind,
            "subject": event.subject,
            "workspace": event.workspace,
            "payload": event.payload(),
        },
    )


_SELECT_ENTRIES = "SELECT id, at, kind, subject, workspace, payload FROM memory_events"


_COUNTS_PER_DAY = (
    "SELECT day, sum(number) FROM memory_event_days WHERE kind = :kind AND day >= :first AND day <= :last "
    "AND workspace = ifnull(:workspace, workspace) GROUP BY day"
)
MAX_ID = 2**63 - 1

BATCH = 500
"""Maximum number of entries that are read at once."""

MAX_CACHED = 500
"""Maximum number of the newest entries in memory for consumers."""


MAX_ERROR_LENGTH = 500
"""Maximum length of a stored error."""


class Ledger:
    """Reads the ledger."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.cursors: dict[str, LedgerCursor] = {}
        """The cursors of all consumers, by key: entries after a cursor are still needed."""
        self._newest_lock = threading.Lock()
        self._newest: deque[LedgerEntry] = deque()
        """All entries after the id `_newest_after`, when `_recorded` writes had been made."""
        self._newest_after = self._recorded = -1

    def latest(self, limit: int = 50, *, kinds: tuple[str, ...] = (), before: int | None = None) -> list[LedgerEntry]:
        """The newest entries first, at most `limit`; page on with `before` = the last id seen."""
        before = before or MAX_ID
        if not kinds:
            return self._entries("WHERE id < ? ORDER BY id DESC LIMIT ?", before, limit)
        # One query for each kind uses the index; one for all kinds would sort all their entries.
        clause = "WHERE kind = ? AND id < ? ORDER BY at DESC, id DESC LIMIT ?"
        entries = [entry for kind in set(kinds) for entry in self._entries(clause, kind, before, limit)]
        return sorted(entries, key=lambda entry: entry.id, reverse=True)[:limit]

    def since(self, cursor: int, limit: int = BATCH) -> list[LedgerEntry]:
        """Entries after `cursor`, oldest first, for services that must miss nothing.

        Many consumers ask often, mostly for new entries, so the newest entries are read once for all, and only when
        something was recorded. Do not change the entries.
        """
        with self._newest_lock:
            self._read_newest()
            if cursor >= self._newest_after:
                newer = takewhile(lambda entry: entry.id > cursor, reversed(self._newest))
                return list(newer)[::-1][:limit]
        return self._entries_after(cursor, limit)

    def _read_newest(self) -> None:
        """Read the newest entries into memory."""
        recorded = self.database.recorded  # read first, so that later writes are noticed
        if self._newest_after < 0:
            (newest,) = self._entries("ORDER BY id DESC LIMIT 1") or (None,)
            self._newest_after = max(0, newest.id - MAX_CACHED) if newest else 0
        while recorded != self._recorded:
            entries = self._entries_after(self._newest[-1].id if self._newest else self._newest_after, BATCH)
            self._newest.extend(entries)
            while len(self._newest) > MAX_CACHED:
                self._newest_after = self._newest.popleft().id
            if len(entries) < BATCH:
                self._recorded = recorded

    def _entries_after(self, cursor: int, limit: int) -> list[LedgerEntry]:
        return self._entries("WHERE id > ? ORDER BY id LIMIT ?", cursor, limit)

    def between(self, start: datetime, end: datetime, kinds: tuple[str, ...], limit: int = 5_000) -> list[LedgerEntry]:
        """Entries of some kinds from `start` until before `end`, oldest first."""
        return self._entries(
            "WHERE kind IN (SELECT value FROM json_each(?)) AND at >= ? AND at < ? ORDER BY id LIMIT ?",
            *(json.dumps(kinds), as_stored(start), as_stored(end), limit),
        )

    def per_day(self, kind: str, start: datetime, end: datetime, *, workspace: str | None = None) -> dict[str, int]:
        """The number of events of a kind by date (UTC), from the day of `start` to that of `end`, both included,
        without days of none. In one `workspace`, or in all. Deleted rows count too."""
        days = {name: at.astimezone(UTC).date().isoformat() for name, at in (("first", start), ("last", end))}
        values = {"kind": kind, "workspace": workspace, **days}
        with self.database.read() as session:
            return dict(session_driver(session).execute(_COUNTS_PER_DAY, values).fetchall())

    def layer(self) -> LayerState:
        """The state of layer B (SPEC 9.5). The number of its rows is the newest id less the deleted rows."""
        (newest,) = self._entries("ORDER BY id DESC LIMIT 1") or (None,)
        if newest is None:
            return LayerState(Layer.LEDGER, 0, None, "ready")
        deleted = "SELECT coalesce(sum(number), 0) FROM table_days WHERE \"table\" = 'memory_events'"
        with self.database.read() as session:
            (number,) = session_driver(session).execute(deleted).fetchone()
        return LayerState(Layer.LEDGER, newest.id - number, newest.at, "ready")

    def _entries(self, clause: str, *values: object) -> list[LedgerEntry]:
        with self.database.read() as session:
            rows = session_driver(session).execute(f"{_SELECT_ENTRIES} {clause}", values).fetchall()
        return [
            LedgerEntry(id, datetime.fromisoformat(at), kind, subject, workspace, json.loads(payload))
            for id, at, kind, subject, workspace, payload in rows
        ]


Handler = Callable[[Sequence[LedgerEntry]], int | None]
"""Handles entries, oldest first; returns how many it handled, None for all."""


class LedgerCursor:
    """The position of a consumer in the ledger, stored under `key`: each entry is handled once, or again after a crash.

    `is_relevant` says which entries are handled. The position is stored only after entries were handled, or a whole
    batch was irrelevant, together with the next write: an idle engine writes nothing. One thread at a time.
    """

    def __init__(self, ledger: Ledger, key: str, is_relevant: Callable[[LedgerEntry], bool]) -> None:
        self.ledger = ledger
        self._database = ledger.database
        self._key = key
        self._is_relevant = is_relevant
        self._cursor: int | None = None
        self._recorded = -1
        """The number of writes to the ledger after which nothing was left to handle."""
        self.error = ""
        """The error of the last call of the handler, "" for none."""
        ledger.cursors[key] = self

    def each(self, handle: Handler) -> None:
        """Call `handle` with the new relevant entries, oldest first, in batches.

        `handle` returns how many it handled, None for all; the rest comes the next time. Its errors are raised here,
        and its whole batch comes again, so it must accept entries that it handled before.
        """
        recorded = self._database.recorded  # read first, so that later writes are noticed
        if recorded == self._recorded:
            return
        cursor = self._load_position() if self._cursor is None else self._cursor
        while facts := self.ledger.since(cursor, BATCH):
            relevant = [fact for fact in facts if self._is_relevant(fact)]
            handled = self._call_handler(handle, relevant) if relevant else 0
            unhandled = relevant[len(relevant) if handled is None else handled :]
            cursor = unhandled[0].id - 1 if unhandled else facts[-1].id
            if len(unhandled) < len(relevant) or (len(facts) == BATCH and not unhandled):
                self._store_position(cursor)
            self._cursor = cursor
            if unhandled:
                return
            if len(facts) < BATCH:
                break
        self._recorded = recorded

    def next_unhandled(self) -> LedgerEntry | None:
        """The first relevant entry that is not handled yet, of the next `BATCH`, None without one."""
        cursor = self._load_position() if self._cursor is None else self._cursor
        return next((fact for fact in self.ledger.since(cursor, BATCH) if self._is_relevant(fact)), None)

    def _call_handler(self, handle: Handler, facts: Sequence[LedgerEntry]) -> int | None:
        try:
            handled = handle(facts)
        except Exception as error:
            self.error = redact(sanitise(f"{type(error).__name__}: {error}"))[:MAX_ERROR_LENGTH]
            raise
        self.error = ""
        return handled

    def _load_position(self) -> int:
        with self._database.read() as session:
            return int(state.get(session, self._key, 0))

    def _store_position(self, cursor: int) -> None:
        state.put_with_next_write(self._database, self._key, cursor)


# Consumers of the ledger: services that handle events after they were recorded, each with a cursor of its own.
#
# `LedgerConsumer` handles events one by one, retries what fails, then skips and reports it. `ConsumerThread` runs
# several consumers in one thread, since they read files and ask models. `StalledConsumers` reports cursors that do not
# advance.


log = logging.getLogger(__name__)

MAX_ATTEMPTS = 3
"""Number of failures after which an entry is reported and skipped."""

CLOSE_TIMEOUT_S = 5.0
"""Maximum time that `close` waits for the entry that is being handled; the next start handles it again."""


class NotReady(Exception):
    """An entry cannot be handled yet; it is handled later, before those after it."""


class LedgerConsumer:
    """Handles ledger entries of some `kinds`. `handle` does the work for one of them; it may be called again for the
    same entry after a crash, and then must change nothing."""

    def __init__(
        self,
        name: str,
        ledger: Ledger,
        kinds: frozenset[str],
        handle: Callable[[LedgerEntry], None],
        *,
        key: str = "memory.follow",
    ) -> None:
        """The cursor is stored under `key` and the name."""
        self.name = name
        self._cursor = LedgerCursor(ledger, f"{key}.{name}", lambda entry: entry.kind in kinds)
        self._handle = handle
        self._tries = 0
        self._lock = threading.Lock()

    def catch_up(self, should_continue: Callable[[], bool] = lambda: True) -> list[str]:
        """Handle every entry since the last time, while `should_continue()`. Returns messages of what was skipped.

        What handling raises is not raised here: the next call tries again, `MAX_ATTEMPTS` times in all.
        """
        skipped: list[str] = []
        with self._lock:
            self._cursor.each(lambda entries: self._handle_batch(entries, should_continue, skipped))
        return skipped

    def _handle_batch(
        self, entries: Sequence[LedgerEntry], should_continue: Callable[[], bool], skipped: list[str]
    ) -> int:
        """Handle entries in order; returns how many were handled."""
        for done, entry in enumerate(entries):
            words = self._try_handle(entry) if should_continue() else None
            if words is None:
                return done
            if words:
                skipped.append(words)
        return len(entries)

    def _try_handle(self, entry: LedgerEntry) -> str | None:
        """Handle one entry. Returns "" for success, a message if it is skipped, None if it must be tried again."""
        try:
            self._handle(entry)
        except NotReady:
            return None
        except Exception as error:
            self._tries += 1
            log.exception("%s: %s of %s could not be handled", self.name, entry.kind, entry.subject)
            if self._tries < MAX_ATTEMPTS:
                return None
            self._tries = 0
            return f"{entry.kind} of {entry.subject} was skipped: {error}"
        self._tries = 0
        return ""


class ConsumerThread:
    """A thread in which the consumers catch up, one after the other, whenever it is poked."""

    def __init__(
        self,
        consumers: Sequence[LedgerConsumer],
        report: Callable[[str, str], None],
        *,
        service: str = "memory",
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """`report(service, message)` is called for skipped entries; `then` after all have caught up."""
        self._service = service
        self._then = then
        self._consumers = tuple(consumers)
        self._report = report
        self._background = Background(f"clawpy-{service}-follow", self._step)
        self._started = False

    def start(self) -> None:
        """Start the thread, which first handles what was recorded while no engine ran."""
        self._started = True
        self._background.wake()

    def poke(self) -> None:
        """Let the consumers catch up, if the thread was started. Returns at once; from any thread."""
        if self._started:
            self._background.wake()

    def catch_up(self, until: float | None = None) -> None:
        """Let all consumers catch up in this thread. No entry is begun after `until`, a monotonic time; the next call
        handles the rest."""

        def should_continue() -> bool:
            return not self._background.closed and (until is None or time.monotonic() < until)

        for consumer in self._consumers:
            for words in consumer.catch_up(should_continue):
                self._report(f"{self._service} ({consumer.name})", words)
        if not self._background.closed:
            self._then()

    def close(self) -> None:
        """Stop after the entry that is being handled. Safe to call twice."""
        self._background.close(CLOSE_TIMEOUT_S)

    def _step(self) -> None:
        try:
            self.catch_up()
        except Exception:
            if not self._background.closed:
                log.exception("following the ledger failed; it continues with the next fact")


STALLED_AFTER = timedelta(days=1)
"""Age of an unhandled entry from which on its consumer is stalled; the slowest run every few hours."""

REPORTED_KEY = "readers.stuck"
"""The state under this key has, by cursor, the entry (`fact`) that it stays at and the message (`words`) reported."""

FIX = "see the log for the full error and fix its cause; nothing is lost, and older events are kept until then"


class StalledConsumers:
    """Reports consumers whose cursor does not advance (SPEC 4.2); retention keeps all entries after it. One thread at a
    time."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._database = ledger.database
        self._clock = clock
        self._last_waiting: dict[str, int] = {}

    def check(self) -> list[str]:
        """Report each newly stalled consumer, once, in a `FaultReported`; returns the messages.

        A consumer is stalled when its cursor is where it was at the last check, at an entry older than `STALLED_AFTER`.
        """
        now = self._clock.now()
        waiting = {
            key: entry
            for key, cursor in list(self._ledger.cursors.items())
            if (entry := cursor.next_unhandled()) is not None and now - entry.at >= STALLED_AFTER
        }
        last_waiting, self._last_waiting = self._last_waiting, {key: entry.id for key, entry in waiting.items()}
        with self._database.read() as session:
            reported = dict(state.get(session, REPORTED_KEY, {}))
        still_stalled = {
            key: report for key, report in reported.items() if key in waiting and waiting[key].id == report["fact"]
        }
        messages = {
            key: _message(key, entry, self._ledger.cursors[key].error)
            for key, entry in waiting.items()
            if key not in still_stalled and last_waiting.get(key) == entry.id
        }

        def record(tx: Transaction) -> None:
            new = {key: {"fact": waiting[key].id, "words": message} for key, message in messages.items()}
            state.put(tx, REPORTED_KEY, still_stalled | new)
            for message in messages.values():
                tx.record(FaultReported(where="ledger", message=f"{message}; {FIX}"))

        if messages or still_stalled != reported:
            self._database.write(record)
        return list(messages.values())


def _message(key: str, entry: LedgerEntry, error: str) -> str:
    reason = error or "it reports no error; some readers wait while everything is stopped (`clawpy status`)"
    return f"{key} has not processed {entry.kind} of {entry.subject} ({entry.at:%Y-%m-%d}, fact {entry.id}): {reason}"
