"""Layer B, the event ledger (SPEC 4.2): every significant event is one row, written before anything reacts to it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy
from sqlalchemy import JSON, Column, Index, bindparam
from sqlmodel import Field, Session, SQLModel, col, desc, select

from engine.events import Event
from engine.storage.database import Database
from engine.storage.quick import ask
from engine.storage.types import utc
from engine.values import Layer, LayerState


class MemoryEvent(SQLModel, table=True):
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


def append(session: Session, event: Event, at: datetime) -> None:
    """Write one event; the database calls this inside the transaction that made the event true."""
    ask(
        session,
        _APPEND,
        {
            "at": at,
            "kind": event.kind,
            "subject": event.subject,
            "workspace": event.workspace,
            "payload": event.payload(),
        },
    )


_SINCE = (
    sqlalchemy.select(
        col(MemoryEvent.id),
        col(MemoryEvent.at),
        col(MemoryEvent.kind),
        col(MemoryEvent.subject),
        col(MemoryEvent.workspace),
        col(MemoryEvent.payload),
    )
    .where(col(MemoryEvent.id) > bindparam("cursor"))
    .order_by(col(MemoryEvent.id))
    .limit(bindparam("most"))
)


class Ledger:
    """Reads the ledger."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._ended: dict[int, int] = {}  # by cursor with nothing after it: at which commit that was so

    def latest(self, limit: int = 50, *, kinds: tuple[str, ...] = (), before: int | None = None) -> list[LedgerEntry]:
        """The newest entries first, at most `limit`; page on with `before` = the last id seen."""
        query = select(MemoryEvent).limit(limit)
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

        Followers ask twice a minute; while nothing was written they are answered without asking the database.
        """
        commits = self._database.commits  # before the look: what is written during it is looked for again
        if self._ended.get(cursor) == commits:
            return []
        with self._database.read() as session:
            found = [LedgerEntry(*row) for row in ask(session, _SINCE, {"cursor": cursor, "most": limit})]
        if not found:
            self._ended = {at: when for at, when in self._ended.items() if when == commits} | {cursor: commits}
        return found

    def between(self, start: datetime, end: datetime, kinds: tuple[str, ...], limit: int = 5_000) -> list[LedgerEntry]:
        """Entries of some kinds from `start` until before `end`, oldest first."""
        query = (
            select(MemoryEvent)
            .where(col(MemoryEvent.kind).in_(kinds), col(MemoryEvent.at) >= start, col(MemoryEvent.at) < end)
            .order_by(col(MemoryEvent.id))
            .limit(limit)
        )
        return self._entries(query)

    def per_day(self, kind: str, start: datetime, end: datetime) -> dict[str, int]:
        """How many events of a kind each day had between two instants, by date in UTC; days without are left out."""
        day = sqlalchemy.func.substr(sqlalchemy.type_coerce(col(MemoryEvent.at), sqlalchemy.String), 1, 10)
        query = (
            sqlalchemy.select(day, sqlalchemy.func.count())
            .where(col(MemoryEvent.kind) == kind, col(MemoryEvent.at) >= start, col(MemoryEvent.at) < end)
            .group_by(day)
        )
        with self._database.read() as session:
            return {str(date): int(number) for date, number in session.connection().execute(query)}

    def about(self, subject: str, limit: int = 100) -> list[LedgerEntry]:
        """What happened to `subject`, oldest first."""
        return self._entries(
            select(MemoryEvent).where(col(MemoryEvent.subject) == subject).order_by(col(MemoryEvent.id)).limit(limit)
        )

    def layer(self) -> LayerState:
        """How layer B stands (SPEC 9.5). Its rows are counted by their ids: exact but for days that were given up."""
        first = select(MemoryEvent.id).order_by(col(MemoryEvent.id)).limit(1)
        last = select(MemoryEvent.id, MemoryEvent.at).order_by(desc(col(MemoryEvent.id))).limit(1)
        with self._database.read() as session:
            oldest, newest = session.exec(first).first(), session.exec(last).first()
        if oldest is None or newest is None:
            return LayerState(Layer.LEDGER, 0, None, "ready")
        return LayerState(Layer.LEDGER, (newest[0] or 0) - oldest + 1, newest[1], "ready")

    def _entries(self, query: Any) -> list[LedgerEntry]:
        with self._database.read() as session:
            return [
                LedgerEntry(row.id or 0, row.at, row.kind, row.subject, row.workspace, row.payload)
                for row in session.exec(query)
            ]
