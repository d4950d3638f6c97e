"""Small pieces of state that survive a restart: one row a key, a JSON value."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, Column
from sqlmodel import Field, Session, SQLModel

from engine.storage.database import Transaction


class EngineState(SQLModel, table=True):
    """One named value."""

    __tablename__ = "engine_state"

    key: str = Field(primary_key=True)
    value: Any = Field(sa_column=Column(JSON, nullable=False))


def get(session: Session, key: str, default: Any = None) -> Any:
    """The value under `key`, or `default`."""
    row = session.get(EngineState, key)
    return default if row is None else row.value


def put(transaction: Transaction, key: str, value: Any) -> None:
    """Store a JSON-able `value` under `key`."""
    transaction.session.merge(EngineState(key=key, value=value))
