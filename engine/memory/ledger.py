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

    def latest(self, limit: int = 50, *, kinds: tuple[str, ...] = (), before: int | None = None) -> list[LedgerEntry]:
        """The newest entries first, at most `limit`; page on with `before` = the last id seen."""
        query = select(MemoryEvent).order_by(desc(col(MemoryEvent.id))).limit(limit)
        if kinds:
            query = query.where(col(MemoryEvent.kind).in_(kinds))
        if before is not None:
            query = query.where(col(MemoryEvent.id) < before)
        return self._entries(query)

    def since(self, cursor: int, limit: int = 500) -> list[LedgerEntry]:
        """Entries after `cursor`, oldest first: how a service that must miss nothing reads on."""
        with self._database.read() as session:
            return [LedgerEntry(*row) for row in ask(session, _SINCE, {"cursor": cursor, "most": limit})]

    def about(self, subject: str, limit: int = 100) -> list[LedgerEntry]:
        """What happened to `subject`, oldest first."""
        return self._entries(
            select(MemoryEvent).where(col(MemoryEvent.subject) == subject).order_by(col(MemoryEvent.id)).limit(limit)
        )

    def _entries(self, query: Any) -> list[LedgerEntry]:
        with self._database.read() as session:
            return [
                LedgerEntry(row.id or 0, row.at, row.kind, row.subject, row.workspace, row.payload)
                for row in session.exec(query)
            ]
