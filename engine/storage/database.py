"""The database of a home: one writer at a time, a pool of read-only connections (ARCHITECTURE rule 4).

A write is a function over a `Transaction`. The writer's thread runs whatever is queued in one `BEGIN IMMEDIATE`, each
function in a savepoint of its own (one that is alone needs none), commits once, and only then answers the callers and
publishes the facts they recorded. Where nothing is queued the caller takes the writer's turn and does the same in its
own thread: waking another thread and being woken costs more than most writes. So a caller that got its answer has it on
disk, a function that raises leaves nothing behind, and two functions never interleave: read-then-write inside one
`write` is safe without further locks.
"""

from __future__ import annotations

import logging
import queue
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection, Executable
from sqlmodel import Session, SQLModel

from engine.clock import Clock
from engine.events import Event, EventBus
from engine.frozen import frozen
from engine.model import Refusal
from engine.storage import connections, erasing
from engine.storage.connections import (
    ALL_TABLES,
    Reader,
    WriteTracking,
    driver_of,
    ends_transaction,
    immediate_transaction,
    open_sqlite,
    savepoint,
    translate_error,
    translated_errors,
    use_write_ahead_log,
)
from engine.storage.rows import DRIVER, Rows, execute, insert

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_GROUP = 64
"""Maximum number of queued writes that share one commit."""

IDLE_SESSION = "session"
"""Under this name the writer's connection keeps an empty session, for the next transaction that is alone."""

MAX_IDLE_READERS = 8
"""Maximum number of idle connections that are kept open for reading."""


@frozen
class _Job:
    """A queued write and the future of its result. Without `work` it is a scrub: see `Database.scrub`."""

    future: Future[Any]
    work: Callable[[Transaction], Any] | None = None


class Transaction:
    """A write in progress, and the events that it publishes when it commits.

    `session` writes objects with an ORM. The other ways cost less: `insert` for a new row that nobody changes here,
    `ask` for a prepared statement, `append` for an insert that refers to no other row, `driver` for plain SQL.
    """

    def __init__(self, connection: Connection, now: datetime, recorder: Recorder, *, is_only_job: bool) -> None:
        self.now = now
        self._connection = connection
        self._driver = driver_of(connection)
        self._recorder = recorder
        self._is_only_job = is_only_job
        self._session: Session | None = None
        self._events: list[Event] = []
        self._after_commit: list[Callable[[], None]] = []

    @property
    def session(self) -> Session:
        """The ORM's way to the database; begun when it is first asked for, since much is written without it."""
        if self._session is None:
            idle = self._connection.info.pop(IDLE_SESSION, None) if self._is_only_job else None
            self._session = idle or Session(
                self._connection,
                join_transaction_mode="rollback_only" if self._is_only_job else "create_savepoint",
                expire_on_commit=False,
                info={DRIVER: self._driver},
            )
        return self._session

    @property
    def driver(self) -> sqlite3.Connection:
        """SQLite's own connection, for plain statements; what the session has not written yet is written first. Raises
        `sqlite3.ProgrammingError` after an error rolled the transaction back: each statement would commit by itself."""
        if self._session is not None:
            self._session.flush()
        return self._open_driver()

    def _open_driver(self) -> sqlite3.Connection:
        if not self._driver.in_transaction:
            raise sqlite3.ProgrammingError("this transaction was rolled back by an error; nothing more is written")
        return self._driver

    def append(self, statement: Executable, values: Mapping[str, Any]) -> None:
        """Execute an insert that refers to no other row, so that what the session has not written yet can wait."""
        execute(self._open_driver(), statement, values)

    def ask(self, statement: Executable, values: Mapping[str, Any] | None = None) -> Rows:
        """`rows.ask` in this transaction."""
        return execute(self.driver, statement, values)

    def insert(self, row: SQLModel) -> None:
        """Write a new row now: a third of what adding it to the session costs. It is no object of the session."""
        insert(self.driver, row)

    def record(self, event: Event) -> None:
        """Write `event` to the ledger now, in this transaction; publish it once the transaction is committed."""
        if not event.volatile:
            self._recorder(self, event)
        self._events.append(event)

    def after_commit(self, action: Callable[[], None]) -> None:
        """Run `action` once this transaction is on disk, before anybody writes. It must be quick and not write."""
        self._after_commit.append(action)

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Write what the session has not written yet, unless something was raised."""
        session = self._session
        if session is None:
            return
        if self._is_only_job and kind is None:
            try:
                session.flush()
            except BaseException:
                session.close()
                raise
            session.expunge_all()
            self._connection.info[IDLE_SESSION] = session  # the next one need not begin it again
        else:
            with session:
                if kind is None:
                    session.commit()


Recorder = Callable[[Transaction, Event], None]


class _Outcome(NamedTuple):
    """The result or the error of a job, with its transaction."""

    transaction: Transaction
    result: Any = None
    error: Exception | None = None


class _Reading:
    """A read transaction as a context manager. A class, not a generator: it is the most frequent call of all."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def __enter__(self) -> Session:
        with translated_errors(self._database.path):
            self._reader = self._database._take_reader()
            try:
                return self._reader.begin()
            except BaseException:
                self._reader.close()
                raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        with translated_errors(self._database.path):
            self._database._return_reader(self._reader)
        if error is not None:
            translate_error(self._database.path, error)


class Database:
    """The database of one home.

    Raises `Refusal` on opening when the file is from a newer version (`newer_home`), damaged (`damaged_home`) or
    cannot be written (`unwritable_home`), and on writing when the disk is full (`disk_full`).
    """

    def __init__(self, path: Path, *, clock: Clock, bus: EventBus, recorder: Recorder, durable: bool = True) -> None:
        """`durable`: a commit waits until it is on the disk. False is for homes that are thrown away."""
        self.path = path
        self.commits = 0
        """Counts commits since opening: an idle engine makes none."""
        self.recorded = 0
        """Counts commits that wrote to the ledger: while it stands still there is nothing to follow."""
        self._stamps: dict[str, int] = defaultdict(int)
        self._clock = clock
        self._bus = bus
        self._recorder = recorder
        with translated_errors(path):
            connections.make_or_check(path)
            use_write_ahead_log(path)
        self._writer_engine = open_sqlite(path, read_only=False, durable=durable)
        self._reader_engine = open_sqlite(path, read_only=True, durable=durable)
        self._connection = self._writer_engine.connect()
        self._connection.begin()  # for as long as it lives: its transactions are begun and ended below, at the driver
        self._write_lock = threading.Lock()
        self._writing_thread_id = 0
        """The thread that holds the write lock, 0 for none."""
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._queued = self._taken = 0
        """Counts the jobs that were ever queued, and those that the writer's thread has begun: while they are equal,
        no job waits."""
        self._deferred: dict[str, Callable[[Transaction], None]] = {}
        self._idle_readers: list[Reader] = []
        self._closed = False
        self._state_lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="clawpy-writer", daemon=True)
        self._thread.start()

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in a transaction and return its result once it is on disk.

        What `work` raises is raised here, and nothing of it is kept. `work` must be quick and must not call `write`;
        it runs in this thread or in the writer's. The main thread always leaves it to the writer's: there Ctrl-C could
        come between what is on disk and what is told of it.
        """
        if self._writing_thread_id == threading.get_ident():
            raise RuntimeError("write() inside write(): hand the Transaction on instead")
        future: Future[T] = Future()
        with self._state_lock:
            self._must_be_open()
            has_lock = (
                self._queued == self._taken  # nobody is overtaken
                and threading.current_thread() is not threading.main_thread()
                and self._write_lock.acquire(blocking=False)
            )
            if not has_lock:
                self._enqueue(_Job(future, work))
        if has_lock:
            try:
                self._run_jobs([_Job(future, work)])
            finally:
                self._write_lock.release()
        return future.result()

    def submit(self, work: Callable[[Transaction], T]) -> Future[T]:
        """The same without waiting, for what is noticed inside a transaction and belongs into one of its own."""
        return self._submit(work)

    def _submit(self, work: Callable[[Transaction], Any] | None) -> Future[Any]:
        future: Future[Any] = Future()
        with self._state_lock:
            self._must_be_open()
            self._enqueue(_Job(future, work))
        return future

    def defer_to_next_write(self, key: str, work: Callable[[Transaction], None]) -> None:
        """Execute `work`, a statement, in the transaction of the next write, or at the end: for what is not worth
        a commit of its own, since losing it in a crash does no harm. Only the last one under a `key` is executed."""
        with self._state_lock:
            self._must_be_open()
            self._deferred[key] = work

    def _must_be_open(self) -> None:
        if self._closed:
            raise Refusal("engine_closed", "the engine is closing; nothing is written any more")

    def _enqueue(self, job: _Job) -> None:
        self._queued += 1
        self._queue.put(job)

    def read(self) -> AbstractContextManager[Session]:
        """A session on one consistent snapshot that cannot write. Do not keep it open across slow work."""
        return _Reading(self)

    def _take_reader(self) -> Reader:
        try:
            return self._idle_readers.pop()
        except IndexError:
            return Reader(self._reader_engine)

    def _return_reader(self, reader: Reader) -> None:
        if reader.end() and not self._closed and len(self._idle_readers) < MAX_IDLE_READERS:
            self._idle_readers.append(reader)
        else:
            reader.close()

    def stamp(self, *tables: str) -> int:
        """A number that grows with each transaction that wrote to one of them, once it is on disk. Tables are meant
        that statements name, not those that triggers and foreign keys reach."""
        return self._stamps[ALL_TABLES] + sum(self._stamps[table] for table in tables)

    def scrub(self) -> bool:
        """Remove what was erased from the file too; see `erasing.scrub`. Waits for what is queued; nothing is written
        meanwhile, which takes about a second for each 100 MB."""
        if self._writing_thread_id == threading.get_ident():
            raise RuntimeError("scrub() inside write()")
        return bool(self._submit(None).result())

    def close(self) -> None:
        """Finish what is queued, close readers, then the writer. Safe to call twice."""
        with self._state_lock:
            if self._closed:
                return
            self._closed = True
            if self._deferred:
                self._enqueue(_Job(Future(), lambda tx: None))
            self._queue.put(None)
        self._thread.join()
        while self._idle_readers:
            self._idle_readers.pop().close()
        with self._write_lock:
            self._connection.close()
        self._reader_engine.dispose()
        self._writer_engine.dispose()

    def _run(self) -> None:
        """Run what is queued until the queue has None: writes in groups that share a commit, each scrub by itself."""
        is_last = False
        while not is_last and (job := self._queue.get()) is not None:
            with self._write_lock:
                jobs = [job]
                while len(jobs) < MAX_GROUP and jobs[-1].work is not None and not self._queue.empty():
                    following = self._queue.get()
                    if following is None:
                        is_last = True
                        break
                    jobs.append(following)
                self._taken += len(jobs)
                scrubs = [jobs.pop().future] if jobs[-1].work is None else []
                if jobs:
                    self._run_jobs(jobs)
                for scrub in scrubs:
                    self._answer(scrubs, partial(self._scrub_now, scrub))

    def _run_jobs(self, jobs: Sequence[_Job]) -> None:
        """Run writes and answer them. The caller holds the write lock."""
        self._answer([job.future for job in jobs], partial(self._commit_jobs, jobs))

    def _answer(self, futures: Sequence[Future[Any]], act: Callable[[], None]) -> None:
        """Run `act`; whatever it raises, the writer goes on and every future gets an answer."""
        self._writing_thread_id = threading.get_ident()
        try:
            act()
        except BaseException as error:
            log.exception("an unexpected error in the writer")
            for future in futures:
                if not future.done():
                    future.set_exception(error)
        finally:
            self._writing_thread_id = 0

    def _scrub_now(self, future: Future[Any]) -> None:
        with translated_errors(self.path):
            future.set_result(erasing.scrub(driver_of(self._connection)))

    def _commit_jobs(self, jobs: Sequence[_Job]) -> None:
        """Run writes in one transaction, publish their events, and answer them."""
        with self._state_lock:
            deferred, self._deferred = self._deferred, {}
        try:
            with translated_errors(self.path), immediate_transaction(self._connection) as driver:
                if deferred:  # first, for whoever writes the same now has the last word
                    self._write_deferred(deferred, is_only_job=len(jobs) == 1)
                outcomes = [self._run_job(job, driver, is_only_job=len(jobs) == 1) for job in jobs]
        except Exception as error:
            with self._state_lock:
                self._deferred = deferred | self._deferred
            for job in jobs:
                job.future.set_exception(error)
            return
        self.commits += 1
        self._restamp()
        # Facts go out before the callers wake up, so that who acts on an answer finds the facts already on the bus.
        self._publish([outcome.transaction for outcome in outcomes if outcome.error is None])
        for job, outcome in zip(jobs, outcomes, strict=True):
            if outcome.error is None:
                job.future.set_result(outcome.result)
            else:
                job.future.set_exception(outcome.error)

    def _run_job(self, job: _Job, driver: sqlite3.Connection, *, is_only_job: bool) -> _Outcome:
        """Run one write; an error that leaves the transaction intact is part of the outcome."""
        assert job.work is not None
        transaction = self._transaction(is_only_job=is_only_job)
        try:
            with nullcontext() if is_only_job else savepoint(driver), transaction:
                return _Outcome(transaction, job.work(transaction))
        except Exception as error:
            if is_only_job or ends_transaction(error):
                raise  # and the whole transaction is rolled back
            return _Outcome(transaction, error=error)

    def _transaction(self, *, is_only_job: bool) -> Transaction:
        return Transaction(self._connection, self._clock.now(), self._recorder, is_only_job=is_only_job)

    def _write_deferred(self, deferred: Mapping[str, Callable[[Transaction], None]], *, is_only_job: bool) -> None:
        transaction = self._transaction(is_only_job=is_only_job)
        for key, work in deferred.items():
            try:
                work(transaction)
            except Exception as error:
                if ends_transaction(error):
                    raise
                log.exception("a statement for the next write failed: %s", key)

    def _publish(self, transactions: Sequence[Transaction]) -> None:
        events = [event for transaction in transactions for event in transaction._events]
        self.recorded += any(not event.volatile for event in events)
        for event in events:
            self._bus.publish(event)
        for action in [action for transaction in transactions for action in transaction._after_commit]:
            try:
                action()
            except Exception:
                log.exception("an action after commit failed")

    def _restamp(self) -> None:
        """Count a write for each table that was written to."""
        driver = driver_of(self._connection)
        assert isinstance(driver, WriteTracking)
        for table in driver.written:
            self._stamps[table] += 1
        driver.written.clear()
