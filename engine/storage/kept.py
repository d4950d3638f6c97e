"""What was read of tables, kept for as long as nobody writes to them.

Who looks twice a minute whether there is anything to do, finds nearly always that there is not; asking SQLite for it
each time costs more than all the rest of the look. The database tells for each table how often it was written to, and
that is what such an answer is kept by.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar

from sqlmodel import Session, SQLModel

from engine.storage.rows import DRIVER, WriteSession

T = TypeVar("T")

READS = "reads"
"""A session whose `info` has this reads only: rows that are found for it are nobody's, and no change is looked for."""

EVERYTHING = ""
"""Stands for all tables, where a statement does not say which it writes to."""

_WRITES = re.compile(r"\s*(?:INSERT(?: OR \w+)? INTO|REPLACE INTO|UPDATE(?: OR \w+)?|DELETE FROM)\s+\"?(\w+)", re.I)
_WRITES_NOTHING = re.compile(r"\s*(SELECT|PRAGMA|BEGIN|COMMIT|END|ROLLBACK|SAVEPOINT|RELEASE|VACUUM|ANALYZE)\b", re.I)

MOST = 500
"""So many answers are kept at most."""


class Stamps(Protocol):
    """A database that tells when tables change."""

    def read(self) -> AbstractContextManager[Session]:
        """A session on a snapshot as of now."""

    def stamp(self, *tables: str) -> int:
        """A number that grows with each transaction that wrote to one of them, once it is on disk."""


class Kept(Generic[T]):
    """Answers that were read of the tables of `rows` alone. What is in them is nobody's to change."""

    def __init__(self, database: Stamps, *rows: type[SQLModel]) -> None:
        self._database = database
        self._tables = [str(one.__tablename__) for one in rows]
        self._answers: dict[Hashable, tuple[int, T]] = {}

    def get(self, question: Hashable, read: Callable[[], T]) -> T:
        """The answer to `question`, by `read` where it is not known or may have become another. `read` must not see
        what a transaction has written that is not on disk yet: nobody else does."""
        stamp = self._database.stamp(*self._tables)  # before the look: what is written during it is looked for again
        known = self._answers.get(question)
        if known is not None and known[0] == stamp:
            return known[1]
        answer = read()
        if len(self._answers) >= MOST:
            self._answers.clear()
        self._answers[question] = (stamp, answer)
        return answer

    def seen(self, session: Session, question: Hashable, read: Callable[[Session], T]) -> T:
        """The answer as `session` sees it, or, where it only reads, as of now."""
        if READS in session.info:
            return self.get(question, lambda: self._now(read))
        return self.get(question, lambda: read(session)) if self._untouched(session) else read(session)

    def _untouched(self, session: Session) -> bool:
        """Whether a session that writes still sees what everybody does: nobody else writes meanwhile, and it has not
        written to our tables, nor holds anything that it is yet to write."""
        if not isinstance(session, WriteSession) or not session.clean:
            return False
        written: set[str] = session.info[DRIVER].written
        return EVERYTHING not in written and written.isdisjoint(self._tables)

    def _now(self, read: Callable[[Session], T]) -> T:
        with self._database.read() as session:  # a snapshot no older than the stamp; whoever asks may have an older one
            return read(session)


class Noting(sqlite3.Connection):
    """A connection that notes in `written` which tables its statements write to."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.written: set[str] = set()

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        self.note(sql)
        return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Any, /) -> Any:
        self.note(sql)
        return super().executemany(sql, parameters)

    def executescript(self, sql_script: str, /) -> Any:
        self.written.add(EVERYTHING)
        return super().executescript(sql_script)

    def cursor(self, factory: Any = None) -> Any:
        return super().cursor(_NotingCursor if factory is None else factory)

    def note(self, sql: str) -> None:
        """Note what `sql` writes to."""
        if (table := written_by(sql)) is not None:
            self.written.add(table)


class _NotingCursor(sqlite3.Cursor):
    connection: Noting

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        self.connection.note(sql)
        return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Any, /) -> Any:
        self.connection.note(sql)
        return super().executemany(sql, parameters)

    def executescript(self, sql_script: str, /) -> Any:
        self.connection.written.add(EVERYTHING)
        return super().executescript(sql_script)


@lru_cache(1000)
def written_by(statement: str) -> str | None:
    """The table that a statement writes to, `EVERYTHING` where that is not plain, None for a statement that only
    reads. Tables that SQLite writes to by itself, by triggers or foreign keys, are not found."""
    if (found := _WRITES.match(statement)) is not None:
        return found[1].lower()
    return None if _WRITES_NOTHING.match(statement) else EVERYTHING
