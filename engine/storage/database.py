"""The database of a home: one writer at a time, read-only connections beside it (ARCHITECTURE rule 4).

A write is a function over a `Transaction`. The writer's thread runs one after the other, each in a `BEGIN IMMEDIATE` of
its own, and only then answers the caller and publishes the facts that it recorded. So a caller that got its answer has
it on disk, a function that raises leaves nothing behind, and read-then-write inside one `write` is safe without locks.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from sqlmodel import Session, SQLModel

from engine.clock import Clock
from engine.events import Event, EventBus
from engine.model import Refusal
from engine.storage import erasing
from engine.storage.connections import Connected, make_or_check, open_sqlite, translated_errors, use_write_ahead_log
from engine.storage.rows import as_stored, driver_of, insert

log = logging.getLogger(__name__)

T = TypeVar("T")

_RECORD = "INSERT INTO memory_events (at, kind, subject, workspace, payload) VALUES (?, ?, ?, ?, ?)"


class Transaction:
    """A write in progress, and the events that it publishes when it commits.

    `session` writes objects with an ORM. The other ways cost less: `insert` for a new row that nobody changes here,
    `rows.ask` for a statement that is asked often, `driver` for plain SQL.
    """

    def __init__(self, session: Session, now: datetime) -> None:
        self.session = session
        self.now = now
        self.events: list[Event] = []
        self.after: list[Callable[[], None]] = []

    @property
    def driver(self) -> sqlite3.Connection:
        """SQLite's own connection; what the session has not written yet is written first. Raises as `driver_of`."""
        self.session.flush()
        return driver_of(self.session)

    def insert(self, row: SQLModel) -> None:
        """Write a new row now: a third of what adding it to the session costs. It is no object of the session."""
        insert(self.driver, row)

    def record(self, event: Event) -> None:
        """Write `event` to the ledger now, in this transaction; publish it once the transaction is committed."""
        if not event.volatile:
            values = (as_stored(self.now), event.kind, event.subject, event.workspace, json.dumps(event.payload()))
            driver_of(self.session).execute(_RECORD, values)
        self.events.append(event)

    def after_commit(self, action: Callable[[], None]) -> None:
        """Run `action` once this transaction is on disk, before anybody writes. It must be quick and not write."""
        self.after.append(action)


class Database:
    """The database of one home.

    Raises `Refusal` on opening when the file is from a newer version (`newer_home`), damaged (`damaged_home`) or
    cannot be written (`unwritable_home`), and on writing when the disk is full (`disk_full`).
    """

    def __init__(self, path: Path, *, clock: Clock, bus: EventBus, durable: bool = True) -> None:
        """`durable`: a commit waits until it is on the disk. False is for homes that are thrown away."""
        self.path = path
        self.commits = 0
        """Counts commits since opening: an idle engine makes none."""
        self.recorded = 0
        """Counts commits that wrote to the ledger: while it stands still there is nothing to follow."""
        self._clock = clock
        self._bus = bus
        with translated_errors(path):
            make_or_check(path)
            use_write_ahead_log(path)
        self._engine = open_sqlite(path, read_only=False, durable=durable)
        self._reader_engine = open_sqlite(path, read_only=True, durable=durable)
        self._connected = Connected(self._engine)
        self._idle_readers: list[Connected] = []
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
        """The same without waiting, for what is noticed inside a transaction and belongs into one of its own."""
        return self._in_writer(lambda: self._commit(work))

    def defer_to_next_write(self, key: str, work: Callable[[Transaction], None]) -> None:
        """Execute `work`, a statement, in the transaction of the next write, or at the end: for what is not worth
        a commit of its own, since losing it in a crash does no harm. Only the last one under a `key` is executed."""
        with self._deferring:
            self._deferred[key] = work

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session on one consistent snapshot that cannot write. Do not keep it open across slow work."""
        with translated_errors(self.path):
            try:
                reader = self._idle_readers.pop()
            except IndexError:
                reader = Connected(self._reader_engine)
            try:
                with reader.transaction(reads=True) as session:
                    yield session
            finally:
                self._idle_readers.append(reader)

    def scrub(self) -> bool:
        """Remove what was erased from the file too; see `erasing.scrub`. Waits for what is queued; nothing is written
        meanwhile, which takes about a second for each 100 MB."""
        with translated_errors(self.path):
            return self._in_writer(lambda: erasing.scrub(self._connected.driver)).result()

    def close(self) -> None:
        """Finish what is queued, then close the connections. Safe to call twice."""
        if self._deferred:
            self.submit(lambda tx: None)
        self._writer.shutdown()
        while self._idle_readers:
            self._idle_readers.pop().close()
        self._connected.close()
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
        try:
            with translated_errors(self.path), self._connected.transaction(reads=False) as session:
                transaction = Transaction(session, self._clock.now())
                for write_deferred in deferred.values():  # first, for whoever writes the same now has the last word
                    write_deferred(transaction)
                result = work(transaction)
        except BaseException:
            with self._deferring:
                self._deferred = deferred | self._deferred
            raise
        self.commits += 1
        self.recorded += any(not event.volatile for event in transaction.events)
        # Facts go out before the caller wakes up, so that who acts on an answer finds the facts already on the bus.
        for event in transaction.events:
            self._bus.publish(event)
        for action in transaction.after:
            try:
                action()
            except Exception:
                log.exception("an action after commit failed")
        return result
