"""A stand-in for the database that machines share: SQLite runs the statements."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from engine.storage.shared import SharedDatabase


class LocalSharedDatabase(SharedDatabase):
    """A shared database in memory."""

    def __init__(self):
        super().__init__("shared")
        self._connection = sqlite3.connect(":memory:", check_same_thread=False, factory=_Connection)
        self._connection.create_function("pg_advisory_xact_lock", 1, lambda lock_id: None)

    @contextmanager
    def connect(self) -> Iterator[Any]:
        with self._connection:
            yield self._connection

    def documents(self) -> list[dict[str, Any]]:
        """All documents, the oldest change first."""
        if not self._has_table:
            return []
        topics = [topic for (topic,) in self._connection.execute("SELECT DISTINCT topic FROM clawpy_shared")]
        return [dict(row.document) for topic in topics for row in self.fetch(topic, 0)[0]]


class _Cursor(sqlite3.Cursor):
    """Takes statements with the placeholders of psycopg."""

    def execute(self, statement: str, values: Any = ()) -> _Cursor:
        super().execute(statement.replace("%s", "?"), values)
        return self

    def executemany(self, statement: str, rows: Any) -> _Cursor:
        super().executemany(statement.replace("%s", "?"), rows)
        return self


class _Connection(sqlite3.Connection):
    def cursor(self, *_: Any) -> _Cursor:
        return super().cursor(_Cursor)

    def execute(self, statement: str, values: Any = ()) -> _Cursor:
        return self.cursor().execute(statement, values)
