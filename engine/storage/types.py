"""Column types that SQLite needs help with."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Column, Dialect, String, TypeDecorator


class UtcDateTime(TypeDecorator[datetime]):
    """An aware instant, stored as ISO 8601 in UTC with microseconds, so that text order is time order.

    SQLite's own DateTime drops the offset without a word; here a naive value raises ValueError.
    """

    impl = String(32)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"naive datetime {value!r}: give it a time zone")
        return value.astimezone(UTC).isoformat(timespec="microseconds")[: -len("+00:00")] + "Z"

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        return None if value is None else datetime.fromisoformat(value)


def utc(*, nullable: bool = False, index: bool = False) -> Column[datetime]:
    """A fresh column for an instant; each table field needs its own."""
    return Column(UtcDateTime(), nullable=nullable, index=index)
