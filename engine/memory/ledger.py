"""Layer B, the event ledger (SPEC 4.2): every significant event is one row, written before anything reacts to it."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any

import sqlalchemy
from sqlalchemy import JSON, Column, Connection, Index, bindparam
from sqlmodel import Field, col, desc, select

from engine.events import Event
from engine.storage.database import Database, Transaction
from engine.storage.quick import ask
from engine.storage.retention import TableDay
from engine.storage.rows import Row
from engine.storage.types import utc
from engine.values import Layer, LayerState


class MemoryEvent(Row, table=True):
    """One event. `kind` is the event's class name, `payload` its other fields."""

    __tablename__ = "memory_events"
    __table_args__ = (
        Index("ix_memory_events_kind_at", "kind", "at", "id"),
        Index("ix_memory_events_workspace_at", "workspace", "at", "id"),
        Index("ix_memory_events_subject", "subject", "id"),
    )

    id: int | None = Field(default=None, primary_key=True)
    at: datetime = Field(sa_column=utc())
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


@dataclass(frozen=True, slots=True)
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
    transaction.ask(
        _APPEND,
        {
            "at": transaction.now,
            "kind": event.kind,
            "subject": event.subject,
            "workspace": event.workspace,
            "payload": event.payload(),
        },
    )


_ENTRIES = sqlalchemy.select(
    col(MemoryEvent.id),
    col(MemoryEvent.at),
    col(MemoryEvent.kind),
    col(MemoryEvent.subject),
    col(MemoryEvent.workspace),
    col(MemoryEvent.payload),
)
_SINCE = (
    _ENTRIES.where(col(MemoryEvent.id) > bindparam("cursor")).order_by(col(MemoryEvent.id)).limit(bindparam("most"))
)
_NEWEST = sqlalchemy.select(sqlalchemy.func.coalesce(sqlalchemy.func.max(col(MemoryEvent.id)), 0))
_GONE = sqlalchemy.select(sqlalchemy.func.coalesce(sqlalchemy.func.sum(col(TableDay.number)), 0)).where(
    col(TableDay.table) == MemoryEvent.__tablename__
)
_PER_DAY = (
    sqlalchemy.select(col(EventDay.day), sqlalchemy.func.sum(col(EventDay.number)))
    .where(col(EventDay.kind) == bindparam("kind"))
    .where(col(EventDay.day) >= bindparam("first"), col(EventDay.day) <= bindparam("last"))
    .group_by(col(EventDay.day))
)
_PER_DAY_THERE = _PER_DAY.where(col(EventDay.workspace) == bindparam("workspace"))


READ_ON = 500
"""So many entries are read at once."""

KEPT = 500
"""So many of the newest entries are kept for who reads on."""


class Ledger:
    """Reads the ledger."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._reading = threading.Lock()
        self._tail: deque[LedgerEntry] = deque()
        """The newest entries: every one after `_before`, as of so many `_recorded`."""
        self._before = self._recorded = -1

    def latest(self, limit: int = 50, *, kinds: tuple[str, ...] = (), before: int | None = None) -> list[LedgerEntry]:
        """The newest entries first, at most `limit`; page on with `before` = the last id seen."""
        query = _ENTRIES.limit(limit)
        if before is not None:
            query = query.where(col(MemoryEvent.id) < before)
        if not kinds:
            return self._entries(query.order_by(desc(col(MemoryEvent.id))))
        # Kind by kind in the order of the index: all kinds at once would be sorted first, however many there are.
        query = query.order_by(desc(col(MemoryEvent.at)), desc(col(MemoryEvent.id)))
        found = [one for kind in set(kinds) for one in self._entries(query.where(col(MemoryEvent.kind) == kind))]
        return sorted(found, key=lambda one: one.id, reverse=True)[:limit]

    def since(self, cursor: int, limit: int = 500) -> list[LedgerEntry]:
        """Entries after `cursor`, oldest first: how a service that must miss nothing reads on.

        Many followers ask often, and nearly always for what is new. So the newest entries are read once for all of
        them, and only when something was recorded. What is in an entry is nobody's to change.
        """
        with self._reading:
            self._read_on()
            if cursor >= self._before:
                newer = takewhile(lambda one: one.id > cursor, reversed(self._tail))
                return list(newer)[::-1][:limit]
        return self._after(cursor, limit)

    def _read_on(self) -> None:
        """Bring the newest entries up to date."""
        recorded = self._database.recorded  # before the look: what is written during it is looked for again
        if self._before < 0:
            with self._database.read() as session:
                self._before = max(0, int(ask(session, _NEWEST).scalar()) - KEPT)
        while recorded != self._recorded:
            found = self._after(self._tail[-1].id if self._tail else self._before, READ_ON)
            self._tail.extend(found)
            while len(self._tail) > KEPT:
                self._before = self._tail.popleft().id
            if len(found) < READ_ON:
                self._recorded = recorded

    def _after(self, cursor: int, limit: int) -> list[LedgerEntry]:
        with self._database.read() as session:
            return [LedgerEntry(*row) for row in ask(session, _SINCE, {"cursor": cursor, "most": limit})]

    def between(self, start: datetime, end: datetime, kinds: tuple[str, ...], limit: int = 5_000) -> list[LedgerEntry]:
        """Entries of some kinds from `start` until before `end`, oldest first."""
        query = (
            _ENTRIES.where(col(MemoryEvent.kind).in_(kinds), col(MemoryEvent.at) >= start, col(MemoryEvent.at) < end)
            .order_by(col(MemoryEvent.id))
            .limit(limit)
        )
        return self._entries(query)

    def per_day(self, kind: str, start: datetime, end: datetime, *, workspace: str | None = None) -> dict[str, int]:
        """How many events of a kind each day had, by date in UTC, from the day of `start` to the one of `end`, both
        whole; days without are left out. In one `workspace`, or in all. Read from sums that are kept: as quick for a
        year as for a week, and right for days whose rows were given up."""
        days = {name: at.astimezone(UTC).date().isoformat() for name, at in (("first", start), ("last", end))}
        if workspace is None:
            query, values = _PER_DAY, {"kind": kind, **days}
        else:
            query, values = _PER_DAY_THERE, {"kind": kind, "workspace": workspace, **days}
        with self._database.read() as session:
            return {str(day): int(number) for day, number in ask(session, query, values)}

    def about(self, subject: str, limit: int = 100) -> list[LedgerEntry]:
        """What happened to `subject`, oldest first."""
        query = _ENTRIES.where(col(MemoryEvent.subject) == subject)
        return self._entries(query.order_by(col(MemoryEvent.id)).limit(limit))

    def layer(self) -> LayerState:
        """How layer B stands (SPEC 9.5). Its rows are counted by the newest id and by how many were let go."""
        last = select(MemoryEvent.id, MemoryEvent.at).order_by(desc(col(MemoryEvent.id))).limit(1)
        with self._database.read() as session:
            newest, gone = session.exec(last).first(), int(ask(session, _GONE).scalar())
        if newest is None:
            return LayerState(Layer.LEDGER, 0, None, "ready")
        return LayerState(Layer.LEDGER, (newest[0] or 0) - gone, newest[1], "ready")

    def _entries(self, query: Any) -> list[LedgerEntry]:
        with self._database.read() as session:
            return [LedgerEntry(*row) for row in session.connection().execute(query)]
