"""Small pieces of state that survive a restart: one row a key, a JSON value."""

from __future__ import annotations

from typing import Any

from sqlalchemy import bindparam, select
from sqlalchemy.dialects.sqlite import insert
from sqlmodel import Field, Session, col

from engine.storage.database import Database, Transaction
from engine.storage.rows import Row, ask, json_field


class EngineState(Row, table=True):
    """One named value."""

    __tablename__ = "engine_state"

    key: str = Field(primary_key=True)
    value: Any = json_field()


_SELECT_VALUE = select(col(EngineState.value)).where(col(EngineState.key) == bindparam("name"))
_INSERT = insert(EngineState)
_UPSERT = _INSERT.on_conflict_do_update(index_elements=["key"], set_={"value": _INSERT.excluded.value})


def get(session: Session, key: str, default: Any = None) -> Any:
    """The value under `key`, or `default`."""
    row = ask(session, _SELECT_VALUE, {"name": key}).first()
    return default if row is None else row[0]


def put(transaction: Transaction, key: str, value: Any) -> None:
    """Store a JSON-able `value` under `key`."""
    ask(transaction.session, _UPSERT, {"key": key, "value": value})


def put_with_next_write(database: Database, key: str, value: Any) -> None:
    """The same with whatever is written next; see `Database.defer_to_next_write`."""
    database.defer_to_next_write(key, lambda tx: put(tx, key, value))
