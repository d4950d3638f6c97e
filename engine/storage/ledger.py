"""Layer B, the event ledger (SPEC 4.2): every significant event is one row, written before anything reacts to it."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any

import sqlalchemy
from sqlalchemy import JSON, Column, Connection, Index
from sqlmodel import Field

from engine.events import Event
from engine.frozen import frozen
from engine.model import Layer, LayerState, sanitise
from engine.model.secrets import redact
from engine.storage import state
from engine.storage.database import Database, Transaction
from engine.storage.rows import Row, session_driver
from engine.storage.types import as_stored, utc_column


class MemoryEvent(Row, table=True):
    """One event. `kind` is the event's class name, `payload` its other fields."""

    __tablename__ = "memory_events"
    __table_args__ = (
        Index("ix_memory_events_kind_at", "kind", "at", "id"),
        Index("ix_memory_events_workspace_at", "workspace", "at", "id"),
        Index("ix_memory_events_subject", "subject", "id"),
    )

    id: int | None = Field(default=None, primary_key=True)
    at: datetime = Field(sa_column=utc_column())
    kind: str
    subject: str = ""
    workspace: str = ""
    payload: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))


class EventDay(Row, table=True):
    """How many events of a kind a workspace had on a day (UTC, `2026-01-05`).

    A trigger counts each row in the transaction that writes it, so that no crash lies between the two; a row that is
    given up later stays counted: days go, sums are kept.
    """

    __tablename__ = "memory_event_days"
    __table_args__ = ({"sqlite_with_rowid": False},)

    kind: str = Field(primary_key=True)
    day: str = Field(primary_key=True)
    workspace: str = Field(primary_key=True)
    number: int


COUNTING = (
    "CREATE TRIGGER memory_events_counted AFTER INSERT ON memory_events BEGIN "
    "INSERT INTO memory_event_days (kind, day, workspace, number) "
    "VALUES (new.kind, substr(new.at, 1, 10), new.workspace, 1) "
    "ON CONFLICT (kind, day, workspace) DO UPDATE SET number = number + 1; END"
)
"""The statement that makes the sums follow the rows."""


@sqlalchemy.event.listens_for(MemoryEvent.__table__, "after_create")  # type: ignore[attr-defined]
def _count(_target: object, connection: Connection, **_: object) -> None:
    connection.exec_driver_sql(COUNTING)


@frozen
class LedgerEntry:
    """A row of the ledger as others see it; `id` grows with time and serves as a cursor."""

    id: int
    at: datetime
    kind: str
    subject: str
    workspace: str
    payload: dict[str, Any]


_APPEND = sqlalchemy.insert(MemoryEvent)


def append(transaction: Transaction, event: Event) -> None:
    """Write one event; the database calls this inside the transaction that made the event true."""
    transaction.append(
        _APPEND,
        {
            "at": transaction.now,
            "kind": event.kind,
            "subject": event.subject,
            "workspace": event.workspace,
            "payload": event.payload(),
        },
    )


_ENTRIES = "SELECT id, at, kind, subject, workspace, payload FROM memory_events"


_PER_DAY = (
    "SELECT day, sum(number) FROM memory_event_days WHERE kind = :kind AND day >= :first AND day <= :last "
    "AND workspace = ifnull(:workspace, workspace) GROUP BY day"
)
LAST = 2**63 - 1

BATCH = 500
"""Maximum number of entries that are read at once."""

MAX_KEPT = 500
"""Maximum number of entries kept in memory for consumers, the newest."""


MAX_ERROR_LENGTH = 500
"""Characters of an error that are kept."""


class Ledger:
    """Reads the ledger."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.cursors: dict[str, LedgerCursor] = {}
        """The cursors of all consumers, by key: entries after a cursor are still needed."""
        self._reading = threading.Lock()
        self._tail: deque[LedgerEntry] = deque()
        """The newest entries: every one after `_before`, as of so many `_recorded`."""
        self._before = self._recorded = -1

    def latest(self, limit: int = 50, *, kinds: tuple[str, ...] = (), before: int | None = None) -> list[LedgerEntry]:
        """The newest entries first, at most `limit`; page on with `before` = the last id seen."""
        before = before or LAST
        if not kinds:
            return self._entries("WHERE id < ? ORDER BY id DESC LIMIT ?", before, limit)
        # Kind by kind in the order of the index: all kinds at once would be sorted first, however many there are.
        clause = "WHERE kind = ? AND id < ? ORDER BY at DESC, id DESC LIMIT ?"
        entries = [entry for kind in set(kinds) for entry in self._entries(clause, kind, before, limit)]
        return sorted(entries, key=lambda entry: entry.id, reverse=True)[:limit]

    def since(self, cursor: int, limit: int = BATCH) -> list[LedgerEntry]:
        """Entries after `cursor`, oldest first: how a service that must miss nothing reads on.

        Many followers ask often, and nearly always for what is new. So the newest entries are read once for all of
        them, and only when something was recorded. Entries must not be changed.
        """
        with self._reading:
            self._read_on()
            if cursor >= self._before:
                newer = takewhile(lambda entry: entry.id > cursor, reversed(self._tail))
                return list(newer)[::-1][:limit]
        return self._after(cursor, limit)

    def _read_on(self) -> None:
        """Bring the newest entries up to date."""
        recorded = self.database.recorded  # before the look: what is written during it is looked for again
        if self._before < 0:
            (newest,) = self._entries("ORDER BY id DESC LIMIT 1") or (None,)
            self._before = max(0, newest.id - MAX_KEPT) if newest else 0
        while recorded != self._recorded:
            entries = self._after(self._tail[-1].id if self._tail else self._before, BATCH)
            self._tail.extend(entries)
            while len(self._tail) > MAX_KEPT:
                self._before = self._tail.popleft().id
            if len(entries) < BATCH:
                self._recorded = recorded

    def _after(self, cursor: int, limit: int) -> list[LedgerEntry]:
        return self._entries("WHERE id > ? ORDER BY id LIMIT ?", cursor, limit)

    def between(self, start: datetime, end: datetime, kinds: tuple[str, ...], limit: int = 5_000) -> list[LedgerEntry]:
        """Entries of some kinds from `start` until before `end`, oldest first."""
        return self._entries(
            "WHERE kind IN (SELECT value FROM json_each(?)) AND at >= ? AND at < ? ORDER BY id LIMIT ?",
            *(json.dumps(kinds), as_stored(start), as_stored(end), limit),
        )

    def per_day(self, kind: str, start: datetime, end: datetime, *, workspace: str | None = None) -> dict[str, int]:
        """How many events of a kind each day had, by date in UTC, from the day of `start` to the one of `end`, both
        whole; days without are left out. In one `workspace`, or in all. Read from sums that are kept: as quick for a
        year as for a week, and right for days whose rows were given up."""
        days = {name: at.astimezone(UTC).date().isoformat() for name, at in (("first", start), ("last", end))}
        values = {"kind": kind, "workspace": workspace, **days}
        with self.database.read() as session:
            return dict(session_driver(session).execute(_PER_DAY, values).fetchall())

    def layer(self) -> LayerState:
        """How layer B stands (SPEC 9.5). Its rows are counted by the newest id and by how many were let go."""
        (newest,) = self._entries("ORDER BY id DESC LIMIT 1") or (None,)
        if newest is None:
            return LayerState(Layer.LEDGER, 0, None, "ready")
        deleted = "SELECT coalesce(sum(number), 0) FROM table_days WHERE \"table\" = 'memory_events'"
        with self.database.read() as session:
            (number,) = session_driver(session).execute(deleted).fetchone()
        return LayerState(Layer.LEDGER, newest.id - number, newest.at, "ready")

    def _entries(self, clause: str, *values: object) -> list[LedgerEntry]:
        with self.database.read() as session:
            rows = session_driver(session).execute(f"{_ENTRIES} {clause}", values).fetchall()
        return [
            LedgerEntry(id, datetime.fromisoformat(at), kind, subject, workspace, json.loads(payload))
            for id, at, kind, subject, workspace, payload in rows
        ]


Handler = Callable[[Sequence[LedgerEntry]], int | None]
"""Takes facts, oldest first; returns how many it took, None for all."""


class LedgerCursor:
    """How far a consumer has read the ledger, stored under `key`: each fact is handled once, after a crash once again.

    `concerns` says which facts are handled. The ledger grows with everything that happens, and most of it concerns no
    consumer. So how far it was read is kept in memory, and stored only when something was handled, or a whole batch
    was of no concern, and then along with what is written next: an engine with nothing to do writes nothing.
    One thread at a time.
    """

    def __init__(self, ledger: Ledger, key: str, concerns: Callable[[LedgerEntry], bool]) -> None:
        self.ledger = ledger
        self._database = ledger.database
        self._key = key
        self._concerns = concerns
        self._cursor: int | None = None
        self._recorded = -1
        """As of so many writes to the ledger there is nothing to hand over."""
        self.fault = ""
        """What handling raised the last time, in words; "" when it went well."""
        ledger.cursors[key] = self

    def each(self, handle: Handler) -> None:
        """Hand over the facts of concern since the last time, oldest first, in batches.

        `handle` returns how many it took, None for all. What it left comes the next time, with what is after it.
        What it raises is raised here, and its whole batch comes again; it must not mind facts that it handled before.
        """
        recorded = self._database.recorded  # before the look: what is written during it is looked for again
        if recorded == self._recorded:
            return
        cursor = self._stored() if self._cursor is None else self._cursor
        while facts := self.ledger.since(cursor, BATCH):
            concerning = [fact for fact in facts if self._concerns(fact)]
            handled = self._handled(handle, concerning) if concerning else 0
            unhandled = concerning[len(concerning) if handled is None else handled :]
            cursor = unhandled[0].id - 1 if unhandled else facts[-1].id
            if len(unhandled) < len(concerning) or (len(facts) == BATCH and not unhandled):
                self._store(cursor)
            self._cursor = cursor
            if unhandled:
                return
            if len(facts) < BATCH:
                break
        self._recorded = recorded

    def next_of_concern(self) -> LedgerEntry | None:
        """The first fact that it has not handled yet, of the next `BATCH`."""
        cursor = self._stored() if self._cursor is None else self._cursor
        return next((fact for fact in self.ledger.since(cursor, BATCH) if self._concerns(fact)), None)

    def _handled(self, handle: Handler, facts: Sequence[LedgerEntry]) -> int | None:
        try:
            handled = handle(facts)
        except Exception as error:
            self.fault = redact(sanitise(f"{type(error).__name__}: {error}"))[:MAX_ERROR_LENGTH]
            raise
        self.fault = ""
        return handled

    def _stored(self) -> int:
        with self._database.read() as session:
            return int(state.get(session, self._key, 0))

    def _store(self, cursor: int) -> None:
        state.put_with_next_write(self._database, self._key, cursor)
