"""A cache of query results that is valid as long as nothing writes to their tables.

Jobs that run twice a minute nearly always find nothing to do, and the queries would be most of their cost. The database
counts the writes to each table; a cached result is valid while the counts of its tables stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from sqlmodel import Session, SQLModel

from engine.storage.connections import ALL_TABLES
from engine.storage.database import Database
from engine.storage.rows import DRIVER, READS

T = TypeVar("T")

MAX_RESULTS = 500
"""Maximum number of answers that are kept."""


class TableCache(Generic[T]):
    """Results of queries that read the tables of `rows` only. Callers must not change them."""

    def __init__(self, database: Database, *rows: type[SQLModel]) -> None:
        self._database = database
        self._tables = [str(row.__tablename__) for row in rows]
        self._results: dict[Hashable, tuple[int, T]] = {}

    def get(self, key: Hashable, read: Callable[[], T]) -> T:
        """The result under `key`, by `read` where it is not cached or not valid. `read` must not see what a
        transaction has written and not committed."""
        stamp = self._database.stamp(*self._tables)  # before the look: what is written during it is looked for again
        cached = self._results.get(key)
        if cached is not None and cached[0] == stamp:
            return cached[1]
        result = read()
        if len(self._results) >= MAX_RESULTS:
            self._results.clear()
        self._results[key] = (stamp, result)
        return result

    def seen(self, session: Session, key: Hashable, read: Callable[[Session], T]) -> T:
        """The result as `session` sees it; for a session that only reads, as of now."""
        if READS in session.info:
            return self.get(key, lambda: self._read_snapshot(read))
        return self.get(key, lambda: read(session)) if self._sees_committed_rows(session) else read(session)

    def _sees_committed_rows(self, session: Session) -> bool:
        """Whether a session that writes still sees what everybody does: nobody else writes meanwhile, and it has not
        written to our tables, nor holds anything that it is yet to write."""
        if session.new or session.dirty or session.deleted:
            return False
        written: set[str] = session.info[DRIVER].written
        return ALL_TABLES not in written and written.isdisjoint(self._tables)

    def _read_snapshot(self, read: Callable[[Session], T]) -> T:
        with self._database.read() as session:  # a snapshot no older than the stamp; whoever asks may have an older one
            return read(session)
