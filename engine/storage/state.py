"""Named values that survive a restart; below them, intents: changes of files that were begun and are not finished.

A service that changes files with which SQLite must agree writes an intent first, and deletes it after the change
(ARCHITECTURE rule 4). At the next start each service finishes or undoes the changes of its intents that are still
there, and reports them.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from sqlmodel import Field, Session

from engine.storage import Row, ask, load_all
from engine.storage.database import Database, Transaction

_SELECT_VALUE = "SELECT CAST(value AS TEXT) FROM engine_state WHERE key = :key"

_SELECT_PREFIXED = "SELECT key, CAST(value AS TEXT) FROM engine_state WHERE key >= :prefix AND key < :end"

_UPSERT = "INSERT INTO engine_state VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value"

_DELETE = "DELETE FROM engine_state WHERE key = :key"


class EngineState(Row, table=True):
    """One named value."""

    __tablename__ = "engine_state"

    key: str = Field(primary_key=True)
    value: Any


def get(session: Session, key: str, default: Any = None) -> Any:
    """The value under `key`, or `default`."""
    value = ask(session, _SELECT_VALUE, {"key": key}).scalar()
    return default if value is None else json.loads(value)


def get_all(session: Session, prefix: str) -> dict[str, Any]:
    """All values whose key begins with `prefix`, by the rest of the key."""
    rows = ask(session, _SELECT_PREFIXED, {"prefix": prefix, "end": prefix + "\U0010ffff"})
    return {key.removeprefix(prefix): json.loads(value) for key, value in rows}


def put(transaction: Transaction, key: str, value: Any) -> None:
    """Store a JSON-able `value` under `key`."""
    ask(transaction.session, _UPSERT, {"key": key, "value": json.dumps(value)})


def delete(transaction: Transaction, key: str) -> None:
    """Delete the value under `key`, if there is one."""
    ask(transaction.session, _DELETE, {"key": key})


def put_with_next_write(database: Database, key: str, value: Any) -> None:
    """Store a value together with the next write; see `Database.defer_to_next_write`."""
    database.defer_to_next_write(key, lambda tx: put(tx, key, value))


class Intent(Row, table=True):
    """One change of files that was begun. `kind` names its service, and `payload` contains what the service needs to
    finish or undo it."""

    __tablename__ = "intents"

    id: int = Field(default=None, primary_key=True)
    """Given by the database."""
    kind: str
    subject: str
    payload: dict[str, Any]
    begun_at: datetime


def begin_intent(transaction: Transaction, kind: str, subject: str, payload: dict[str, Any]) -> int:
    """Write an intent in `transaction`, and return its id. Files may be changed once it is committed."""
    intent = Intent(kind=kind, subject=subject, payload=payload, begun_at=transaction.now)
    transaction.insert(intent)
    return intent.id


def finish_intent(transaction: Transaction, intent_id: int) -> None:
    """Delete an intent: the files agree with the database now. Does nothing if it is gone already."""
    ask(transaction.session, "DELETE FROM intents WHERE id = :id", {"id": intent_id})


def finish_intent_now(database: Database, intent_id: int) -> None:
    """Delete an intent in a transaction of its own: nothing was changed, or the change was undone."""
    database.write(lambda transaction: finish_intent(transaction, intent_id))


def read_intents(transaction: Transaction, kind: str, subject: str) -> list[Intent]:
    """The unfinished intents for `subject`. They belong to `transaction`: changes of them are stored."""
    clauses = "WHERE kind = :kind AND subject = :subject ORDER BY id"
    return load_all(transaction.session, Intent, clauses, {"kind": kind, "subject": subject})


def read_unfinished_intents(database: Database, kind: str) -> list[Intent]:
    """The unfinished intents of a service, oldest first."""
    with database.read() as session:
        return load_all(session, Intent, "WHERE kind = :kind ORDER BY id", {"kind": kind})
