"""The only place that opens SQLite: one writer thread, a pool of read-only connections (ARCHITECTURE rule 4).

A write is a function over a `Transaction`. The writer runs whatever is queued in one `BEGIN IMMEDIATE`, each
function in a savepoint of its own (one that is alone needs none), commits once, and only then answers the callers and
publishes the facts they recorded. So a caller that got its answer has it on disk, a function that raises leaves
nothing behind, and two functions never interleave: read-then-write inside one `write` is safe without further locks.
"""

from __future__ import annotations

import logging
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager, nullcontext
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, Executable, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlmodel import Session

from engine.clock import Clock
from engine.events import Event, EventBus
from engine.storage import erasing, migrations
from engine.storage.files import damaged_fix
from engine.storage.quick import DRIVER, READS, Rows, ask, driver_of, run
from engine.values import Refusal

log = logging.getLogger(__name__)

T = TypeVar("T")

GROUP_COMMIT = 64
"""At most so many queued writes share one commit."""

MOST_RESTING = 8
"""So many connections that nobody reads with are kept open."""


def _SCRUB(_: Any) -> None:  # noqa: N802 (a mark, only ever compared)
    """Queued in the place of a write: see `Database.scrub`."""


class Transaction:
    """What a write works with, and the facts that become true when it commits."""

    def __init__(self, connection: Connection, now: datetime, recorder: Recorder, *, alone: bool) -> None:
        self.now = now
        self._connection = connection
        self._driver = driver_of(connection)
        self._recorder = recorder
        self._alone = alone
        self._session: Session | None = None
        self._events: list[Event] = []
        self._after: list[Callable[[], None]] = []

    @property
    def session(self) -> Session:
        """The ORM's way to the database; begun when it is first asked for, since much is written without it."""
        if self._session is None:
            self._session = Session(
                self._connection,
                join_transaction_mode="rollback_only" if self._alone else "create_savepoint",
                expire_on_commit=False,
                info={DRIVER: self._driver},
            )
        return self._session

    def ask(self, statement: Executable, values: Mapping[str, Any] | None = None) -> Rows:
        """`quick.ask` in this transaction."""
        if self._session is not None:
            return ask(self._session, statement, values)
        return run(self._driver, statement, values)

    def record(self, event: Event) -> None:
        """Write `event` to the ledger now, in this transaction; publish it once the transaction is committed."""
        if not event.volatile:
            self._recorder(self, event)
        self._events.append(event)

    def after_commit(self, action: Callable[[], None]) -> None:
        """Run `action` on the writer thread once this transaction is on disk. It must be quick and not write."""
        self._after.append(action)

    def __enter__(self) -> None:
        """The work begins."""

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """It is over: what its session has not written yet is, unless something was raised."""
        if self._session is not None:
            with self._session:
                if kind is None:
                    self._session.commit()


Recorder = Callable[[Transaction, Event], None]


class Database:
    """The database of one home.

    Raises `Refusal` on opening when the file is from a newer version (`newer_home`), damaged (`damaged_home`) or
    cannot be written (`unwritable_home`), and on writing when the disk is full (`disk_full`).
    """

    def __init__(self, path: Path, *, clock: Clock, bus: EventBus, recorder: Recorder, durable: bool = True) -> None:
        """`durable`: a commit waits until it is on the disk. False is for homes that are thrown away."""
        self.path = path
        self.commits = 0
        """Counts commits since opening: while it stands still nothing was written, and what was read holds."""
        self._clock = clock
        self._bus = bus
        self._recorder = recorder
        with explained(path):
            migrations.bring_up_to_date(path)
            _use_write_ahead_log(path)
        self._writer_engine = _sqlite(path, read_only=False, durable=durable)
        self._reader_engine = _sqlite(path, read_only=True, durable=durable)
        self._queue: queue.SimpleQueue[tuple[Callable[[Transaction], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._resting: list[_Reader] = []
        self._closed = False
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="clawpy-writer", daemon=True)
        self._thread.start()

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in a transaction on the writer thread and return its result once it is on disk.

        What `work` raises is raised here, and nothing of it is kept. `work` must be quick and must not call `write`.
        """
        if threading.current_thread() is self._thread:
            raise RuntimeError("write() inside write(): hand the Transaction on instead")
        return self.submit(work).result()

    def submit(self, work: Callable[[Transaction], T]) -> Future[T]:
        """The same without waiting, for what is noticed inside a transaction and belongs into one of its own."""
        future: Future[T] = Future()
        with self._closing:
            if self._closed:
                raise Refusal("engine_closed", "the engine is closing; nothing is written any more")
            self._queue.put((work, future))
        return future

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session on one consistent snapshot that cannot write. Do not keep it open across slow work."""
        with explained(self.path):
            reader = self._resting.pop() if self._resting else _Reader(self._reader_engine)
            try:
                yield reader.begin()
            finally:
                if reader.end() and not self._closed and len(self._resting) < MOST_RESTING:
                    self._resting.append(reader)
                else:
                    reader.close()

    def scrub(self) -> bool:
        """Have what was erased leave the file too; see `erasing.scrub`. Waits for what is queued; nobody writes
        meanwhile, which takes about a second for each 100 MB."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("scrub() inside write()")
        future: Future[Any] = Future()
        with self._closing:
            if self._closed:
                raise Refusal("engine_closed", "the engine is closing; nothing is written any more")
            self._queue.put((_SCRUB, future))
        return bool(future.result())

    def close(self) -> None:
        """Finish what is queued, close readers, then the writer. Safe to call twice."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._queue.put(None)
        self._thread.join()
        while self._resting:
            self._resting.pop().close()
        self._reader_engine.dispose()
        self._writer_engine.dispose()

    def _run(self) -> None:
        with self._writer_engine.connect() as connection:
            connection.begin()  # for as long as it lives: its transactions are begun and ended below, at the driver
            while (job := self._queue.get()) is not None:
                if job[0] is _SCRUB:
                    self._answered([job[1]], partial(self._scrub_now, connection, job[1]))
                    continue
                jobs = [job]
                last = False
                scrub: Future[Any] | None = None
                while len(jobs) < GROUP_COMMIT and not self._queue.empty():
                    following = self._queue.get()
                    if following is None:
                        last = True
                        break
                    if following[0] is _SCRUB:
                        scrub = following[1]
                        break
                    jobs.append(following)
                self._answered([future for _, future in jobs], partial(self._commit_together, connection, jobs))
                if scrub is not None:
                    self._answered([scrub], partial(self._scrub_now, connection, scrub))
                if last:
                    return

    def _answered(self, futures: Sequence[Future[Any]], act: Callable[[], None]) -> None:
        """Whatever happens, the writer lives on and nobody waits for ever."""
        try:
            act()
        except BaseException as error:
            log.exception("the writer met what it does not expect")
            for future in futures:
                if not future.done():
                    future.set_exception(error)

    def _scrub_now(self, connection: Connection, future: Future[Any]) -> None:
        try:
            with explained(self.path):
                future.set_result(erasing.scrub(driver_of(connection)))
        except Exception as error:
            future.set_exception(error)

    def _commit_together(
        self, connection: Connection, jobs: list[tuple[Callable[[Transaction], Any], Future[Any]]]
    ) -> None:
        done: list[tuple[Future[Any], Any, Transaction]] = []
        failed: list[tuple[Future[Any], BaseException]] = []
        alone = len(jobs) == 1
        try:
            with explained(self.path), _begun(connection) as driver:
                for work, future in jobs:
                    try:
                        with nullcontext() if alone else _savepoint(driver):
                            transaction = Transaction(connection, self._clock.now(), self._recorder, alone=alone)
                            with transaction:
                                result = work(transaction)
                        done.append((future, result, transaction))
                    except Exception as error:
                        if alone or _ends_transaction(error):
                            raise  # and the whole transaction is rolled back
                        failed.append((future, error))
        except Exception as error:
            for _, future in jobs:
                future.set_exception(error)
            return
        self.commits += 1
        # Facts go out before the callers wake up, so that who acts on an answer finds the facts already on the bus.
        for _, _, transaction in done:
            for fact in transaction._events:
                self._bus.publish(fact)
            for action in transaction._after:
                try:
                    action()
                except Exception:
                    log.exception("an action after commit failed")
        for future, result, _ in done:
            future.set_result(result)
        for future, reason in failed:
            future.set_exception(reason)


class _Reader:
    """A connection for reading with its session, kept for who reads next: making either anew costs more than asking.

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
        """Let the snapshot go. False when something went wrong in it, so that the connection is of no more use."""
        if self._session.in_transaction():
            self._session.close()
        if self._driver.in_transaction:
            self._driver.execute("ROLLBACK")
        return self._transaction.is_active

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


@contextmanager
def _begun(connection: Connection) -> Iterator[sqlite3.Connection]:
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
def _savepoint(driver: sqlite3.Connection) -> Iterator[None]:
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


def _ends_transaction(error: Exception) -> bool:
    """True for faults of the file itself: SQLite has then rolled back everything, not just one savepoint."""
    text = str(error.orig) if isinstance(error, DBAPIError) else str(error) if isinstance(error, sqlite3.Error) else ""
    return any(word in text for word in ("disk is full", "disk I/O error", "malformed", "readonly"))


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn SQLite's faults of the file or the disk into a `Refusal` that says how to mend it."""
    try:
        yield
    except (DBAPIError, sqlite3.DatabaseError) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        text = str(cause)
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
            raise Refusal(
                "damaged_home",
                f"{path} is damaged: {text}",
                damaged_fix(path),
            ) from error
        raise


def _use_write_ahead_log(path: Path) -> None:
    """Switch once, alone: the switch does not wait for other connections, it fails."""
    with closing(sqlite3.connect(path, timeout=10)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")


def _sqlite(path: Path, *, read_only: bool, durable: bool) -> Engine:
    engine = create_engine(
        f"sqlite:///{path}", connect_args={"isolation_level": None, "check_same_thread": False, "timeout": 10}
    )

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _record: object) -> None:
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA synchronous={'FULL' if durable else 'OFF'}")
        cursor.execute("PRAGMA foreign_keys=ON")
        if read_only:
            cursor.execute("PRAGMA query_only=ON")
        cursor.close()

    return engine
