"""Intent rows: a change to files is an intent, the write, a done (ARCHITECTURE rule 4).

A service that changes files which SQLite must agree with writes an intent first. At the next start, intents that are
still there are handed to their service, which finishes or undoes the change, and reports it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlmodel import Field, col, select

from engine.storage.database import Database, Transaction
from engine.storage.rows import Row, json_field, utc_field


class Intent(Row, table=True):
    """One change of files that was begun. `kind` names its owner, `payload` all it needs to finish or undo it."""

    __tablename__ = "intents"

    id: int = Field(default=None, primary_key=True)
    """The database gives it."""
    kind: str
    subject: str
    payload: dict[str, Any] = json_field()
    begun_at: datetime = utc_field()


def begin(transaction: Transaction, kind: str, subject: str, payload: dict[str, Any]) -> int:
    """Write an intent in `transaction`; returns its id. The files may be touched once it is committed."""
    intent = Intent(kind=kind, subject=subject, payload=payload, begun_at=transaction.now)
    transaction.insert(intent)
    return intent.id


def finish(transaction: Transaction, intent_id: int) -> None:
    """Take the intent away: the files now agree with the database. Harmless when it is gone already."""
    intent = transaction.session.get(Intent, intent_id)
    if intent is not None:
        transaction.session.delete(intent)


def drop(database: Database, intent_id: int) -> None:
    """Take the intent away in a transaction of its own: nothing was changed, or it was undone."""
    database.write(lambda transaction: finish(transaction, intent_id))


def of(transaction: Transaction, kind: str, subject: str) -> list[Intent]:
    """Intents for `subject` that were begun and not done. They belong to `transaction`: changes of them are stored."""
    query = select(Intent).where(col(Intent.kind) == kind, col(Intent.subject) == subject)
    return list(transaction.session.exec(query.order_by(col(Intent.id))))


def unfinished(database: Database, kind: str) -> list[Intent]:
    """The intents that were begun and not done, oldest first."""
    with database.read() as session:
        return list(session.exec(select(Intent).where(col(Intent.kind) == kind).order_by(col(Intent.id))))
