"""SQLite's connections: how they are opened, what a transaction is at the driver, and what its faults mean.

`database.py` alone uses them.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlmodel import Session

from engine.files import recovery_hint
from engine.model import Refusal
from engine.storage.rows import DRIVER, READS

# The database file of a home: made whole from `schema.sql`, and opened only when it has the version of this program.
#
# There is one version so far. A database of a checkout from before the first release has none; it is refused and left
# as it is.


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


ALL_TABLES = ""
"""Stands for all tables, where a statement does not say which it writes to."""

_WRITES = re.compile(r"\s*(?:INSERT(?: OR \w+)? INTO|REPLACE INTO|UPDATE(?: OR \w+)?|DELETE FROM)\s+\"?(\w+)", re.I)
_WRITES_NOTHING = re.compile(r"\s*(SELECT|PRAGMA|BEGIN|COMMIT|END|ROLLBACK|SAVEPOINT|RELEASE|VACUUM|ANALYZE)\b", re.I)


class Reader:
    """A connection for reading and its session, kept for the next read: making either costs more than most queries.

    For SQLAlchemy one transaction lasts as long as the connection; the snapshots in it are begun and ended at the
    driver.
    """

    def __init__(self, engine: Engine) -> None:
        self._connection = engine.connect()
        self._transaction = self._connection.begin()
        self._driver = driver_of(self._connection)
        self._session = Session(
            self._connection,
            join_transaction_mode="rollback_only",
            expire_on_commit=False,
            info={DRIVER: self._driver, READS: True},
        )

    def begin(self) -> Session:
        """Take a snapshot, at the first statement."""
        self._driver.execute("BEGIN")
        return self._session

    def end(self) -> bool:
        """End the snapshot. False when it failed, so that the connection cannot be used again."""
        if self._session.in_transaction():
            self._session.close()
        if self._driver.in_transaction:
            self._driver.execute("ROLLBACK")
        return self._transaction.is_active

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


@contextmanager
def immediate_transaction(connection: Connection) -> Iterator[sqlite3.Connection]:
    """A transaction, committed in the end, or rolled back when something is raised."""
    driver = driver_of(connection)
    driver.execute("BEGIN IMMEDIATE")
    try:
        yield driver
        driver.execute("COMMIT")
    finally:
        if driver.in_transaction:
            driver.execute("ROLLBACK")
        if not connection.in_transaction():  # a session rolled back for SQLAlchemy what lasts as long as the connection
            connection.begin()


@contextmanager
def savepoint(driver: sqlite3.Connection) -> Iterator[None]:
    """Part of a transaction: when something is raised, this part is undone."""
    driver.execute("SAVEPOINT job")
    try:
        yield
    except BaseException:
        if driver.in_transaction:
            driver.execute("ROLLBACK TO job")
        raise
    finally:
        if driver.in_transaction:
            driver.execute("RELEASE job")


def ends_transaction(error: Exception) -> bool:
    """True for faults of the file itself: SQLite has then rolled back everything, not just one savepoint."""
    text = str(error.orig) if isinstance(error, DBAPIError) else str(error) if isinstance(error, sqlite3.Error) else ""
    return any(word in text for word in ("disk is full", "disk I/O error", "malformed", "readonly"))


class translated_errors:  # noqa: N801 (a context, named as the functions beside it)
    """Turn SQLite's faults of the file or the disk into a `Refusal` that says how to mend it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            translate_error(self._path, error)


def translate_error(path: Path, error: BaseException) -> None:
    """Raise a `Refusal` for an error of the file or the disk; return for any other."""
    if not isinstance(error, DBAPIError | sqlite3.DatabaseError):
        return
    text = str(error.orig if isinstance(error, DBAPIError) else error)
    if "disk is full" in text:
        raise Refusal(
            "disk_full",
            f"the disk that holds {path.parent} is full",
            "free some space; nothing was half-written",
        ) from error
    if "readonly" in text or "unable to open" in text:
        raise Refusal(
            "unwritable_home",
            f"{path} cannot be opened for writing: {text}",
            "make the folder writable, or name another with --home DIR",
        ) from error
    if "malformed" in text or "not a database" in text:
        raise Refusal("damaged_home", f"{path} is damaged: {text}", recovery_hint(path)) from error


def use_write_ahead_log(path: Path) -> None:
    """Switch to write-ahead logging, before other connections exist: the switch fails while there are any."""
    with closing(sqlite3.connect(path, timeout=10)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")


def open_sqlite(path: Path, *, read_only: bool, durable: bool) -> Engine:
    """Connections to the database of a home. `durable`: a commit waits until it is on the disk."""
    arguments: dict[str, Any] = {"isolation_level": None, "check_same_thread": False, "timeout": 10}
    if not read_only:
        arguments["factory"] = WriteTracking
    engine = create_engine(f"sqlite:///{path}", connect_args=arguments)

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _record: object) -> None:
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA synchronous={'FULL' if durable else 'OFF'}")
        cursor.execute("PRAGMA foreign_keys=ON")
        if read_only:
            cursor.execute("PRAGMA query_only=ON")
        cursor.close()

    return engine


def driver_of(connection: Connection) -> sqlite3.Connection:
    """SQLite's own connection beneath SQLAlchemy's."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver


class WriteTracking(sqlite3.Connection):
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
        self.written.add(ALL_TABLES)
        return super().executescript(sql_script)

    def cursor(self, factory: Any = None) -> Any:
        return super().cursor(_WriteTrackingCursor if factory is None else factory)

    def note(self, sql: str) -> None:
        """Note what `sql` writes to."""
        if (table := written_by(sql)) is not None:
            self.written.add(table)


class _WriteTrackingCursor(sqlite3.Cursor):
    connection: WriteTracking

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        self.connection.note(sql)
        return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Any, /) -> Any:
        self.connection.note(sql)
        return super().executemany(sql, parameters)

    def executescript(self, sql_script: str, /) -> Any:
        self.connection.written.add(ALL_TABLES)
        return super().executescript(sql_script)


@lru_cache(1000)
def written_by(statement: str) -> str | None:
    """The table that a statement writes to, `ALL_TABLES` where that is not plain, None for a statement that only
    reads. Tables that SQLite writes to by itself, by triggers or foreign keys, are not found."""
    if (match := _WRITES.match(statement)) is not None:
        return match[1].lower()
    return None if _WRITES_NOTHING.match(statement) else ALL_TABLES
