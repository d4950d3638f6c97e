"""The database of a home: one writer at a time, and read-only connections beside it (ARCHITECTURE rule 4).

A write is a function over a `Transaction`. The writer's thread runs one write after the other, each in a `BEGIN
IMMEDIATE` of its own. After the commit it publishes the events that were recorded, and answers the caller. So what a
caller was answered is on disk, a function that raises leaves nothing behind, and a read followed by a write in one
`write` is safe without locks.

The file is created from `schema.sql`, and read only if it has the version of this program. Faults of the file or the
disk become refusals, which say how to fix them.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote

from sqlalchemy import URL, Engine, create_engine
from sqlalchemy.event import listens_for
from sqlalchemy.exc import DBAPIError
from sqlmodel import Session, SQLModel

from engine.clock import Clock
from engine.events import Event, EventBus
from engine.model import Refusal
from engine.storage import DRIVER, READ_ONLY, as_stored, driver_of, erasing, insert

log = logging.getLogger(__name__)

T = TypeVar("T")

_INSERT_EVENT = "INSERT INTO memory_events (at, kind, subject, workspace, payload) VALUES (?, ?, ?, ?, ?)"

SCHEMA_VERSION = 9
"""Stored as SQLite's `user_version`; raised with each change of `schema.sql`."""

SCHEMA_FILE = Path(__file__).with_name("schema.sql")
"""The statements that create the tables."""


# -- reading and writing


class Transaction:
    """A write in progress, and the events that it publishes when it commits.

    `session` writes objects with the ORM. Other ways cost less: `insert` for a new row that is not changed here,
    `ask` for a statement, `driver` for plain SQL.
    """

    def __init__(self, session: Session, now: datetime) -> None:
        self.session = session
        self.now = now
        self.events: list[Event] = []
        self.actions_after_commit: list[Callable[[], None]] = []

    @property
    def driver(self) -> sqlite3.Connection:
        """SQLite's own connection. Changes of the session's objects are written first. Raises as `driver_of`."""
        self.session.flush()
        return driver_of(self.session)

    def insert(self, row: SQLModel) -> None:
        """Write a new row now, in a third of the time of `session.add`. It does not become an object of the session."""
        insert(self.session, row)

    def record(self, event: Event) -> None:
        """Write `event` to the ledger, in this transaction. It is published once the transaction is committed."""
        if not event.volatile:
            values = (as_stored(self.now), event.kind, event.subject, event.workspace, json.dumps(event.payload()))
            driver_of(self.session).execute(_INSERT_EVENT, values)
        self.events.append(event)

    def after_commit(self, action: Callable[[], None]) -> None:
        """Run `action` once this transaction is on disk, before its events are published and before the next write. It
        must be quick, and must not write."""
        self.actions_after_commit.append(action)


class Database:
    """The database of one home.

    Raises `Refusal` on opening when the file is from a newer version (`newer_home`), damaged (`damaged_home`) or
    cannot be written (`unwritable_home`), and on writing when the disk is full (`disk_full`).
    """

    def __init__(self, path: Path, *, clock: Clock, bus: EventBus, durable: bool = True) -> None:
        """`durable`: a commit waits until it is on disk. False is for homes that are thrown away."""
        self.path = path
        self.commits = 0
        """Number of commits since opening. An idle engine makes none."""
        self.ledger_commits = 0
        """Number of commits that wrote to the ledger. While it stays the same, consumers have nothing new to read."""
        self._clock = clock
        self._bus = bus
        with translate_errors(path):
            create_or_check(path)
            use_write_ahead_log(path)
        self._engine = open_sqlite(path, read_only=False, durable=durable)
        self._reader_engine = open_sqlite(path, read_only=True, durable=durable)
        self._writing = KeptConnection(self._engine, read_only=False)
        self._change_counts: dict[str, int] = {}
        """Number of commits that changed a table, for each table of `cached`."""
        self._changed_tables: set[str] = set()
        """Which of these tables the transaction in progress has changed."""
        self._writing.driver.create_function("note_change", 1, self._changed_tables.add)
        self._idle_readers: list[KeptConnection] = []
        self._deferred: dict[str, Callable[[Transaction], None]] = {}
        self._deferred_lock = threading.Lock()
        self._writer = ThreadPoolExecutor(1, "clawpy-writer")
        self._writer_id = self._writer.submit(threading.get_ident).result()

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in a transaction, in the writer's thread, and return its result once it is on disk.

        What `work` raises is raised here, and nothing of it is kept. `work` must be quick and must not call `write`.
        """
        if threading.get_ident() == self._writer_id:
            raise RuntimeError("write() inside write(): hand the Transaction on instead")
        return self.submit(work).result()

    def record(self, event: Event) -> None:
        """Record an event in a transaction of its own."""
        self.write(lambda tx: tx.record(event))

    def submit(self, work: Callable[[Transaction], T]) -> Future[T]:
        """Run `work` as `write` does, but do not wait for it. So a write can also cause another one."""
        return self._run_in_writer(lambda: self._commit(work))

    def defer_to_next_write(self, key: str, work: Callable[[Transaction], None]) -> None:
        """Run `work` in the transaction of the next write, or when the database is closed. This is for values that are
        not worth a commit of their own, because losing them in a crash does no harm. Of several calls with the same
        `key` only the last one counts."""
        with self._deferred_lock:
            self._deferred[key] = work

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session that reads one consistent snapshot, and cannot write. Do not keep it open across slow work."""
        with translate_errors(self.path):
            try:
                reader = self._idle_readers.pop()
            except IndexError:
                reader = KeptConnection(self._reader_engine, read_only=True)
            try:
                with reader as session:
                    yield session
            finally:
                self._idle_readers.append(reader)

    def cached(self, table: str, load: Callable[[Session], T]) -> Callable[[], T]:
        """A function that returns what `load` reads from `table`, and calls `load` again only after a commit that
        changed the table. It is for what is read many times a minute. All callers get the same object, and must not
        change it."""
        self._run_in_writer(lambda: self._watch(table)).result()
        cache: tuple[int, T] | None = None

        def current() -> T:
            nonlocal cache
            changes = self._change_counts[table]  # before reading: a commit meanwhile makes the next call read again
            known = cache
            if known is None or known[0] != changes:
                with self.read() as session:
                    cache = known = changes, load(session)
            return known[1]

        return current

    def _watch(self, table: str) -> None:
        """Make SQLite call `_changed_tables.add` for each row of `table` that the writer changes. Temporary triggers
        see all changes, whichever way the statement was made."""
        self._change_counts.setdefault(table, 0)
        for change in ("INSERT", "UPDATE", "DELETE"):
            self._writing.driver.execute(
                f"CREATE TEMP TRIGGER IF NOT EXISTS {table}_{change} AFTER {change} ON main.{table} "
                f"BEGIN SELECT note_change('{table}'); END"
            )

    def scrub(self) -> bool:
        """Remove what was erased from the file, too; see `erasing.scrub`. It waits for queued writes, and others wait
        for it: about a second for each 100 MB."""
        with translate_errors(self.path):
            return self._run_in_writer(lambda: erasing.scrub(self._writing.driver)).result()

    def close(self) -> None:
        """Finish the queued writes, then close the connections. Safe to call twice."""
        if self._deferred:
            with suppress(Refusal):  # it was closed before
                self.submit(lambda tx: None)
        self._writer.shutdown()
        while self._idle_readers:
            self._idle_readers.pop().close()
        self._writing.close()
        self._reader_engine.dispose()
        self._engine.dispose()

    def _run_in_writer(self, act: Callable[[], T]) -> Future[T]:
        try:
            return self._writer.submit(act)
        except RuntimeError:
            raise Refusal("engine_closed", "the engine is closing; nothing is written any more") from None

    def _commit(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in a transaction of the writer's thread, after the deferred writes."""
        with self._deferred_lock:
            deferred, self._deferred = self._deferred, {}
        self._changed_tables.clear()
        try:
            with translate_errors(self.path), self._writing as session:
                transaction = Transaction(session, self._clock.now())
                _write_deferred(transaction, deferred.values())  # first, so that a newer value of `work` replaces it
                result = work(transaction)
        except BaseException:
            with self._deferred_lock:
                self._deferred = deferred | self._deferred
            raise
        self._announce(transaction)
        return result

    def _announce(self, transaction: Transaction) -> None:
        """Count and publish what a transaction has committed. The caller is answered later, so that it finds the events
        on the bus."""
        self.commits += 1
        for table in self._changed_tables:
            self._change_counts[table] += 1
        self.ledger_commits += any(not event.volatile for event in transaction.events)
        for action in transaction.actions_after_commit:
            try:
                action()
            except Exception:
                log.exception("an action after commit failed")
        for event in transaction.events:
            self._bus.publish(event)


def _write_deferred(transaction: Transaction, deferred: Iterable[Callable[[Transaction], None]]) -> None:
    for write in deferred:
        try:
            write(transaction)
        except (TypeError, ValueError):  # it would fail every later write, too
            log.exception("a value for the next write was dropped")


# -- the file


def open_sqlite(path: Path, *, read_only: bool, durable: bool) -> Engine:
    """An engine for connections to the database, whose file must exist. `durable`: a commit waits until it is on
    disk."""
    arguments: dict[str, Any] = {"isolation_level": None, "check_same_thread": False, "timeout": 10}
    # A connection to a path would create an empty database there, where the home was moved or deleted meanwhile.
    url = URL.create("sqlite", database=f"file:{quote(bytes(path))}", query={"mode": "rw", "uri": "true"})
    engine = create_engine(url, connect_args=arguments, max_overflow=-1)

    @listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'OFF'}")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.create_function("casefold", 1, str.casefold, deterministic=True)  # SQLite's lower() knows only ASCII
        connection.execute(f"PRAGMA query_only={'ON' if read_only else 'OFF'}")

    return engine


class KeptConnection:
    """A connection with a session, kept for many transactions: making them costs more than most queries.

    Each use as a context is one transaction of SQLite, which is committed at the end, or rolled back when something was
    raised. For SQLAlchemy one transaction lasts as long as the connection. This is a class and no generator, because
    an engine reads thousands of times a minute.
    """

    def __init__(self, engine: Engine, *, read_only: bool) -> None:
        """`read_only`: its transactions only read."""
        self._read_only = read_only
        self._connection = engine.connect()
        self._connection.begin()
        driver = self._connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        self.driver = driver
        self._session = Session(
            self._connection,
            join_transaction_mode="rollback_only",
            expire_on_commit=False,
            info={DRIVER: self.driver, READ_ONLY: read_only},
        )

    def __enter__(self) -> Session:
        self.driver.execute("BEGIN" if self._read_only else "BEGIN IMMEDIATE")
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
        if not self._read_only:
            self._session.flush()
            self.driver.execute("COMMIT")
        if list(self._session):  # mostly it holds nothing
            self._session.expunge_all()

    def close(self) -> None:
        """Close the connection."""
        self._session.close()
        self._connection.close()


def describe_recovery(database: Path) -> str:
    """Advice, in words, on how to repair a home whose database is damaged."""
    recover = f"`sqlite3 {database.name} .recover` may restore much of it"
    return f"move {database.name} away to start afresh, but keep it: {recover}"


def create_or_check(path: Path) -> None:
    """Create the database at `path` if there is none. Raises `Refusal` for one that this program cannot read."""
    if not path.exists():
        create_file(path)
        return
    if path.stat().st_size == 0:  # what this program makes is never empty, see `create_file`
        raise Refusal("damaged_home", f"{path} is damaged: it is empty", describe_recovery(path))
    refusal = find_version_refusal(path)
    if refusal is not None:
        raise refusal


def find_version_refusal(path: Path) -> Refusal | None:
    """Why this program cannot read the database at `path`, None if it can. Raises `sqlite3.DatabaseError` if the file
    is no database."""
    version = read_stored_version(path)
    if version > SCHEMA_VERSION:
        return Refusal(
            "newer_home",
            f"{path} was written by a newer version of Clawpy Console (its format is {version}, this one knows "
            f"{SCHEMA_VERSION})",
            "upgrade Clawpy Console, or name another folder with --home DIR",
        )
    if version < SCHEMA_VERSION:
        return Refusal(
            "older_home",
            f"{path} was written by a development version of Clawpy Console, which this version cannot read",
            f"it was left as it is: move the folder {path.parent} away to start afresh, or name another home with "
            "--home DIR",
        )
    return None


def read_stored_version(path: Path) -> int:
    """The format of the database at `path`, 0 for one from before the first release. Raises `sqlite3.DatabaseError`.

    It is read from the header of the file, https://sqlite.org/fileformat2.html#the_database_header. A connection that
    changes no file beside it would not read the write-ahead log either: it calls a file damaged whose engine was killed
    while it moved pages from the log into the file.
    """
    try:
        with path.open("rb") as file:
            header = file.read(64)
    except OSError as error:
        raise sqlite3.OperationalError(f"unable to open database file: {error.strerror}") from error
    if not header.startswith(b"SQLite format 3\0") or len(header) < 64:
        raise sqlite3.DatabaseError("file is not a database")
    return int.from_bytes(header[60:])


def create_file(path: Path) -> None:
    """Create the database, whole or not at all: beside its place, from where it is moved."""
    unfinished = path.with_name(path.name + ".new")
    for leftover in (unfinished, unfinished.with_name(unfinished.name + "-journal")):  # of a start that was killed
        leftover.unlink(missing_ok=True)
    script = SCHEMA_FILE.read_text(encoding="utf-8")
    with closing(sqlite3.connect(unfinished, timeout=10, isolation_level=None)) as connection:
        connection.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
    unfinished.replace(path)


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """A context that turns SQLite's faults of the file or the disk into a `Refusal`, which says how to fix them."""
    try:
        yield
    except (DBAPIError, sqlite3.DatabaseError) as error:
        refusal = _make_refusal(str(error.orig if isinstance(error, DBAPIError) else error), path)
        if refusal is None:
            raise
        raise refusal from error


def _make_refusal(error: str, path: Path) -> Refusal | None:
    """The refusal for the text of an error of SQLite, None for one that is no fault of the file or the disk."""
    if "disk is full" in error:
        message = f"the disk that holds {path.parent} is full"
        return Refusal("disk_full", message, "free some space; nothing was half-written")
    if "readonly" in error or "unable to open" in error:
        fix = "make the folder writable, or name another with --home DIR"
        return Refusal("unwritable_home", f"{path} cannot be opened for writing: {error}", fix)
    if "malformed" in error or "not a database" in error:
        return Refusal("damaged_home", f"{path} is damaged: {error}", describe_recovery(path))
    return None


def use_write_ahead_log(path: Path) -> None:
    """Switch to write-ahead logging. It must happen before other connections exist, because it would fail."""
    with closing(sqlite3.connect(path, timeout=10)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
