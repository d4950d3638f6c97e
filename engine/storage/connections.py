"""Connections to the database of a home."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import TracebackType
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlmodel import Session

from engine.storage.rows import DRIVER, READS


def open_sqlite(path: Path, *, read_only: bool, durable: bool) -> Engine:
    """An engine for connections to the database. `durable`: a commit waits until it is on disk."""
    arguments: dict[str, Any] = {"isolation_level": None, "check_same_thread": False, "timeout": 10}
    engine = create_engine(f"sqlite:///{path}", connect_args=arguments, max_overflow=-1)

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'OFF'}")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute(f"PRAGMA query_only={'ON' if read_only else 'OFF'}")

    return engine


class KeptConnection:
    """A connection with a session, kept for many transactions: making them costs more than most queries.

    Each use as a context is one transaction of SQLite, which is committed at the end, or rolled back when something was
    raised. For SQLAlchemy one transaction lasts as long as the connection. This is a class and no generator, because
    an engine reads thousands of times a minute.
    """

    def __init__(self, engine: Engine, *, reads: bool) -> None:
        """`reads`: its transactions only read."""
        self._reads = reads
        self._connection = engine.connect()
        self._connection.begin()
        driver = self._connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        self.driver = driver
        self._session = Session(
            self._connection,
            join_transaction_mode="rollback_only",
            expire_on_commit=False,
            info={DRIVER: self.driver, READS: reads},
        )

    def __enter__(self) -> Session:
        self.driver.execute("BEGIN" if self._reads else "BEGIN IMMEDIATE")
        return self._session

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        has_succeeded = False
        try:
            if error is None:
                self._finish()
                has_succeeded = True
        finally:
            if not has_succeeded:
                self._session.close()
            if self.driver.in_transaction:
                self.driver.execute("ROLLBACK")
            if not self._connection.in_transaction():  # a session ended SQLAlchemy's transaction by a rollback
                self._connection.begin()

    def _finish(self) -> None:
        if not self._reads:
            self._session.flush()
            self.driver.execute("COMMIT")
        if list(self._session):  # mostly it holds nothing
            self._session.expunge_all()

    def close(self) -> None:
        """Close the connection."""
        self._session.close()
        self._connection.close()
