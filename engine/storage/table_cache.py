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

MAX_ANSWERS = 500
"""Maximum number of answers that are kept."""


class TableCache(Generic[T]):
    """Results of queries that read the tables of `rows` only. Callers must not change them."""

    def __init__(self, database: Database, *rows: type[SQLModel]) -> None:
        self._database = database
        self._tables = [str(row.__tablename__) for row in rows]
        self._answers: dict[Hashable, tuple[int, T]] = {}

    def get(self, question: Hashable, read: Callable[[], T]) -> T:
        """The result under `question`, by `read` where it is not cached or not valid. `read` must not see what a
        transaction has written and not committed."""
        stamp = self._database.stamp(*self._tables)  # before the look: what is written during it is looked for again
        cached = self._answers.get(question)
        if cached is not None and cached[0] == stamp:
            return cached[1]
        answer = read()
        if len(self._answers) >= MAX_ANSWERS:
            self._answers.clear()
        self._answers[question] = (stamp, answer)
        return answer

    def seen(self, session: Session, question: Hashable, read: Callable[[Session], T]) -> T:
        """The result as `session` sees it; for a session that only reads, as of now."""
        if READS in session.info:
            return self.get(question, lambda: self._now(read))
        return self.get(question, lambda: read(session)) if self._untouched(session) else read(session)

    def _untouched(self, session: Session) -> bool:
        """Whether a session that writes still sees what everybody does: nobody else writes meanwhile, and it has not
        written to our tables, nor holds anything that it is yet to write."""
        if session.new or session.dirty or session.deleted:
            return False
        written: set[str] = session.info[DRIVER].written
        return ALL_TABLES not in written and written.isdisjoint(self._tables)

    def _now(self, read: Callable[[Session], T]) -> T:
        with self._database.read() as session:  # a snapshot no older than the stamp; whoever asks may have an older one
            return read(session)
