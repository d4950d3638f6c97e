"""The database file of a home and its connections: how it is made, opened and begun, and what SQLite's faults mean.

It is made whole from `schema.sql`, and opened only when it has the version of this program. There is one version so
far. A database of a checkout from before the first release has none; it is refused and left as it is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlmodel import Session

from engine.files import recovery_hint
from engine.model import Refusal
from engine.storage.rows import DRIVER, READS

VERSION = 2
"""Stored as SQLite's `user_version`; raised with each change of `schema.sql`."""

SCRIPT = Path(__file__).with_name("schema.sql")


def make_or_check(path: Path) -> None:
    """Make the database at `path` where there is none. Raises `Refusal` for one that this program cannot read."""
    if not path.exists():
        _create(path)
        return
    if path.stat().st_size == 0:  # what this program makes is never empty, see `_create`
        raise Refusal("damaged_home", f"{path} is damaged: it is empty", recovery_hint(path))
    refusal = refused(path)
    if refusal is not None:
        raise refusal


def refused(path: Path) -> Refusal | None:
    """Why this program cannot read the database at `path`, None if it can. Raises `sqlite3.DatabaseError` for no
    database."""
    version = stored_version(path)
    if version > VERSION:
        return Refusal(
            "newer_home",
            f"{path} was written by a newer version of Clawpy Console (its format is {version}, this one knows "
            f"{VERSION})",
            "upgrade Clawpy Console, or name another folder with --home DIR",
        )
    if version < VERSION:
        return Refusal(
            "older_home",
            f"{path} was written by a development version of Clawpy Console, which this version cannot read",
            f"it was left as it is: move the folder {path.parent} away to start afresh, or name another home with "
            "--home DIR",
        )
    return None


def stored_version(path: Path) -> int:
    """The format of the database at `path`, 0 for one from before the first release. Changes no file beside it."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _create(path: Path) -> None:
    """Make the database, whole or not at all: beside its place, then moved there."""
    half = path.with_name(path.name + ".new")
    for leftover in (half, half.with_name(half.name + "-journal")):  # of a start that was killed
        leftover.unlink(missing_ok=True)
    script = SCRIPT.read_text(encoding="utf-8")
    with closing(sqlite3.connect(half, timeout=10, isolation_level=None)) as connection:
        connection.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {VERSION}; COMMIT;")
    half.replace(path)


@contextmanager
def translated_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's faults of the file or the disk into a `Refusal` that says how to mend it."""
    try:
        yield
    except (DBAPIError, sqlite3.DatabaseError) as error:
        text = str(error.orig if isinstance(error, DBAPIError) else error)
        if "disk is full" in text:
            code, message = "disk_full", f"the disk that holds {path.parent} is full"
            fix = "free some space; nothing was half-written"
        elif "readonly" in text or "unable to open" in text:
            code, message = "unwritable_home", f"{path} cannot be opened for writing: {text}"
            fix = "make the folder writable, or name another with --home DIR"
        elif "malformed" in text or "not a database" in text:
            code, message, fix = "damaged_home", f"{path} is damaged: {text}", recovery_hint(path)
        else:
            raise
        raise Refusal(code, message, fix) from error


def use_write_ahead_log(path: Path) -> None:
    """Switch to write-ahead logging, before other connections exist: the switch fails while there are any."""
    with closing(sqlite3.connect(path, timeout=10)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")


def open_sqlite(path: Path, *, read_only: bool, durable: bool) -> Engine:
    """Connections to the database of a home. `durable`: a commit waits until it is on the disk."""
    arguments: dict[str, Any] = {"isolation_level": None, "check_same_thread": False, "timeout": 10}
    engine = create_engine(f"sqlite:///{path}", connect_args=arguments, max_overflow=-1)

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'OFF'}")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute(f"PRAGMA query_only={'ON' if read_only else 'OFF'}")

    return engine


class Connected:
    """A connection that is kept, and transactions on it: making one costs more than most queries.

    For SQLAlchemy one transaction lasts as long as the connection; what a transaction is for SQLite is begun and ended
    at the driver.
    """

    def __init__(self, engine: Engine) -> None:
        self._connection = engine.connect()
        self._connection.begin()
        driver = self._connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        self.driver = driver

    @contextmanager
    def transaction(self, *, reads: bool) -> Iterator[Session]:
        """A session in a transaction, which is committed in the end, or rolled back when something is raised."""
        self.driver.execute("BEGIN" if reads else "BEGIN IMMEDIATE")
        session = Session(
            self._connection,
            join_transaction_mode="rollback_only",
            expire_on_commit=False,
            info={DRIVER: self.driver, READS: reads},
        )
        try:
            yield session
            if not reads:
                session.flush()
                self.driver.execute("COMMIT")
        finally:
            session.close()
            if self.driver.in_transaction:
                self.driver.execute("ROLLBACK")
            if not self._connection.in_transaction():  # a session rolled back for SQLAlchemy what lasts for ever
                self._connection.begin()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
