"""The database of a home: one writer at a time, and read-only connections beside it (ARCHITECTURE rule 4).

A write is a function over a `Transaction`. The writer's thread runs one write after the other, each in a `BEGIN
IMMEDIATE` of its own. After the commit it publishes the events that were recorded, and answers the caller. So what a
caller was answered is on disk, a function that raises leaves nothing behind, and a read followed by a write in one
`write` is safe without locks.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from sqlmodel import Session, SQLModel

from engine.clock import Clock
from engine.events import Event, EventBus
from engine.model import Refusal
from engine.storage import erasing
from engine.storage.connections import KeptConnection, open_sqlite
from engine.storage.database_file import TranslatedErrors, make_or_check, use_write_ahead_log
from engine.storage.rows import as_stored, driver_of, insert

log = logging.getLogger(__name__)

T = TypeVar("T")

_RECORD = "INSERT INTO memory_events (at, kind, subject, workspace, payload) VALUES (?, ?, ?, ?, ?)"


class Transaction:
    """A write in progress, and the events that it publishes when it commits.

    `session` writes objects with the ORM. Other ways cost less: `insert` for a new row that is not changed here,
    `rows.ask` for a statement, `driver` for plain SQL.
    """

    def __init__(self, session: Session, now: datetime) -> None:
        self.session = session
        self.now = now
        self.events: list[Event] = []
        self.after: list[Callable[[], None]] = []

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
            driver_of(self.session).execute(_RECORD, values)
        self.events.append(event)

    def after_commit(self, action: Callable[[], None]) -> None:
        """Run `action` once this transaction is on disk, before the next write. It must be quick, and must not
        write."""
        self.after.append(action)


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
        self.recorded = 0
        """Number of commits that wrote to the ledger. While it stays the same, consumers have nothing new to read."""
        self._clock = clock
        self._bus = bus
        with TranslatedErrors(path):
            make_or_check(path)
            use_write_ahead_log(path)
        self._engine = open_sqlite(path, read_only=False, durable=durable)
        self._reader_engine = open_sqlite(path, read_only=True, durable=durable)
        self._writing = KeptConnection(self._engine, reads=False)
        self._changes: dict[str, int] = {}
        """Number of commits that changed a table, for each table of `cached`."""
        self._changed_tables: set[str] = set()
        """Which of these tables the transaction in progress has changed."""
        self._writing.driver.create_function("note_change", 1, self._changed_tables.add)
        self._idle_readers: list[KeptConnection] = []
        self._deferred: dict[str, Callable[[Transaction], None]] = {}
        self._deferring = threading.Lock()
        self._writer = ThreadPoolExecutor(1, "clawpy-writer")
        self._writer_id = self._writer.submit(threading.get_ident).result()

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in a transaction, in the writer's thread, and return its result once it is on disk.

        What `work` raises is raised here, and nothing of it is kept. `work` must be quick and must not call `write`.
        """
        if threading.get_ident() == self._writer_id:
            raise RuntimeError("write() inside write(): hand the Transaction on instead")
        return self.submit(work).result()

    def submit(self, work: Callable[[Transaction], T]) -> Future[T]:
        """Run `work` as `write` does, but do not wait for it. So a write can also cause another one."""
        return self._in_writer(lambda: self._commit(work))

    def defer_to_next_write(self, key: str, work: Callable[[Transaction], None]) -> None:
        """Run `work` in the transaction of the next write, or when the database is closed. This is for values that are
        not worth a commit of their own, because losing them in a crash does no harm. Of several calls with the same
        `key` only the last one counts."""
        with self._deferring:
            self._deferred[key] = work

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session that reads one consistent snapshot, and cannot write. Do not keep it open across slow work."""
        with TranslatedErrors(self.path):
            try:
                reader = self._idle_readers.pop()
            except IndexError:
                reader = KeptConnection(self._reader_engine, reads=True)
            try:
                with reader as session:
                    yield session
            finally:
                self._idle_readers.append(reader)

    def cached(self, table: str, load: Callable[[], T]) -> Callable[[], T]:
        """A function that returns what `load` reads from `table`, and calls `load` again only after a commit that
        changed the table. It is for what is read many times a minute. All callers get the same object, and must not
        change it."""
        self._in_writer(lambda: self._watch(table)).result()
        cache: tuple[int, T] | None = None

        def current() -> T:
            nonlocal cache
            changes = self._changes[table]  # before reading: a commit meanwhile makes the next call read again
            known = cache
            if known is None or known[0] != changes:
                known = cache = changes, load()
            return known[1]

        return current

    def _watch(self, table: str) -> None:
        """Make SQLite call `_changed_tables.add` for each row of `table` that the writer changes. Temporary triggers
        see all changes, whichever way the statement was made."""
        self._changes.setdefault(table, 0)
        for change in ("INSERT", "UPDATE", "DELETE"):
            self._writing.driver.execute(
                f"CREATE TEMP TRIGGER IF NOT EXISTS {table}_{change} AFTER {change} ON main.{table} "
                f"BEGIN SELECT note_change('{table}'); END"
            )

    def scrub(self) -> bool:
        """Remove what was erased from the file, too; see `erasing.scrub`. It waits for queued writes, and others wait
        for it: about a second for each 100 MB."""
        with TranslatedErrors(self.path):
            return self._in_writer(lambda: erasing.scrub(self._writing.driver)).result()

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

    def _in_writer(self, act: Callable[[], T]) -> Future[T]:
        try:
            return self._writer.submit(act)
        except RuntimeError:
            raise Refusal("engine_closed", "the engine is closing; nothing is written any more") from None

    def _commit(self, work: Callable[[Transaction], T]) -> T:
        with self._deferring:
            deferred, self._deferred = self._deferred, {}
        self._changed_tables.clear()
        try:
            with TranslatedErrors(self.path), self._writing as session:
                transaction = Transaction(session, self._clock.now())
                _write_deferred(transaction, deferred.values())  # first, so that a newer value of `work` replaces it
                result = work(transaction)
        except BaseException:
            with self._deferring:
                self._deferred = deferred | self._deferred
            raise
        self._announce(transaction)
        return result

    def _announce(self, transaction: Transaction) -> None:
        """Count and publish what a transaction has committed. The caller is answered later, so that it finds the events
        on the bus."""
        self.commits += 1
        for table in self._changed_tables:
            self._changes[table] += 1
        self.recorded += any(not event.volatile for event in transaction.events)
        for event in transaction.events:
            self._bus.publish(event)
        for action in transaction.after:
            try:
                action()
            except Exception:
                log.exception("an action after commit failed")


def _write_deferred(transaction: Transaction, works: Iterable[Callable[[Transaction], None]]) -> None:
    for write in works:
        try:
            write(transaction)
        except (TypeError, ValueError):  # it would fail every later write, too
            log.exception("a value for the next write was dropped")
