"""The PostgreSQL database that machines share (SPEC 1.9, 4.5): one table of documents, and the exchange with it.

`SharedDatabase` is the table. `Exchange` is what `hierarchy.profile_rows` and `memory.summaries` are made of: it sends
what is new on this machine, and fetches what is new on others. A job of the schedule calls it, and so does a flush of
findings. Work never waits for the database, and an interrupted exchange is simply repeated.

A row gets the next number whenever it changes, and a writer holds one lock until its commit. So numbers become visible
in order, and a reader that has read up to a number has missed nothing below it.
"""

from __future__ import annotations

import json
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from engine.events.engine import CloudSyncFailed
from engine.frozen import frozen
from engine.installed import POSTGRES, make_not_installed_refusal
from engine.model import Refusal
from engine.storage import state
from engine.storage.database import Database
from engine.text import hex_hash, sanitise

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger(__name__)

SHARED_URL = "CLAWPY_SHARED_DATABASE_URL"
"""The variable that names the PostgreSQL; it may hold a password."""

CONNECT_TIMEOUT_S = 5
"""Seconds until a connection is made."""

STATEMENT_TIMEOUT_MS = 10_000
"""Milliseconds of one statement."""

LOCK_ID = 0x636C6177
"""The advisory lock of writers."""

ROWS_PER_FETCH = 1_000
"""Rows that are fetched at once."""

_LOCK = "SELECT pg_advisory_xact_lock(%s)"
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS clawpy_shared (seq bigint NOT NULL UNIQUE, topic text NOT NULL, key text PRIMARY KEY, "
    "version bigint NOT NULL, document text NOT NULL)",
    "CREATE INDEX IF NOT EXISTS clawpy_shared_topic ON clawpy_shared (topic, seq)",
)
_PUSH = (
    "INSERT INTO clawpy_shared AS stored (seq, topic, key, version, document) "
    "VALUES ((SELECT coalesce(max(seq), 0) + 1 FROM clawpy_shared), %s, %s, %s, %s) ON CONFLICT (key) DO UPDATE "
    "SET seq = excluded.seq, version = excluded.version, document = excluded.document "
    "WHERE excluded.version > stored.version"
)
_FETCH = "SELECT seq, key, version, document FROM clawpy_shared WHERE topic = %s AND seq > %s ORDER BY seq LIMIT %s"


@frozen
class SharedRow:
    """A document that machines share. Of two documents with the same key the one with the higher version stays."""

    key: str
    document: Mapping[str, Any]
    version: int = 0


class SharedDatabase:
    """The shared table behind one database URL. Each `connect` makes a new connection, so that none goes stale."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.name = hex_hash(url, 12)
        """Identifies the database, without its secrets."""
        self._has_table = False
        """Whether the table is known to exist."""

    def push(self, topic: str, rows: Sequence[SharedRow]) -> None:
        """Add or replace rows, all or none. Raises what `connect` raises, as `fetch` does."""
        values = [(topic, row.key, row.version, json.dumps(row.document)) for row in rows]
        with self._open_table() as connection:
            connection.execute(_LOCK, (LOCK_ID,))
            connection.cursor().executemany(_PUSH, values)

    def fetch(self, topic: str, cursor: int) -> tuple[list[SharedRow], int]:
        """The next rows of a topic after `cursor`, at most `ROWS_PER_FETCH`, and the cursor for the next time."""
        with self._open_table() as connection:
            stored = connection.execute(_FETCH, (topic, cursor, ROWS_PER_FETCH)).fetchall()
        rows = [SharedRow(key, json.loads(document), version) for _, key, version, document in stored]
        return rows, stored[-1][0] if stored else cursor

    @contextmanager
    def _open_table(self) -> Iterator[psycopg.Connection[Any]]:
        """A connection as from `connect`, with the table, which is made if there is none yet."""
        with self.connect() as connection:
            if not self._has_table:
                connection.execute(_LOCK, (LOCK_ID,))  # machines that make it at the same time would get an error
                for statement in _SCHEMA:
                    connection.execute(statement)
            yield connection
        self._has_table = True

    def connect(self) -> psycopg.Connection[Any]:
        """A connection; used as a context it commits, or rolls back after an error. Raises what psycopg raises, and
        `Refusal` `not_installed` without psycopg."""
        try:
            import psycopg
        except ImportError as error:
            raise make_not_installed_refusal(POSTGRES) from error
        try:
            return psycopg.connect(
                self._url,
                connect_timeout=CONNECT_TIMEOUT_S,
                options=f"-c statement_timeout={STATEMENT_TIMEOUT_MS}",
                keepalives_idle=CONNECT_TIMEOUT_S,  # a network that went silent is noticed, not waited for
                keepalives_interval=2,
                keepalives_count=3,
                tcp_user_timeout=STATEMENT_TIMEOUT_MS,
            )
        except psycopg.ProgrammingError:  # it would quote the URL, and the password in it
            raise Refusal(
                "bad_shared_url",
                f"{SHARED_URL} is not a database URL",
                "write postgresql://USER:PASSWORD@HOST/DATABASE, with special characters as %XX",
            ) from None


class Exchange(ABC):
    """Base class of what is shared. One exchange runs at a time. A failure is recorded as `CloudSyncFailed`, once until
    an exchange succeeds."""

    subject: str
    """The name of what is shared, in reports."""

    def __init__(self, database: Database, shared: SharedDatabase | None) -> None:
        """`shared` is None if the operator named no database. Then nothing is exchanged."""
        self._database = database
        self._shared = shared
        self._exchange_lock = threading.Lock()
        self._is_failing = False

    def is_enabled(self) -> bool:
        """Whether a shared database is configured."""
        return self._shared is not None

    def exchange(self) -> str:
        """Send new rows of this machine, and fetch those of others. Returns what failed, in words, "" for nothing.
        Raises nothing that a connection raises."""
        with self._exchange_lock:
            try:
                if self._shared is not None:
                    self._send_and_fetch(self._shared)
            except Exception as error:  # whatever a connection raises: work goes on, and it is reported
                return self._report_failure(error)
            self._is_failing = False
            return ""

    @abstractmethod
    def _send_and_fetch(self, shared: SharedDatabase) -> None:
        """Push the new rows of this machine, and `_fetch` those of others. Raises what a connection raises."""

    @abstractmethod
    def _count_unsent(self, shared: SharedDatabase) -> int:
        """How many rows were not sent yet."""

    def _fetch(self, shared: SharedDatabase, topic: str, store: Callable[[Sequence[SharedRow]], None]) -> None:
        """Fetch the new rows of a topic, page by page, and call `store` with each page; after a crash perhaps again."""
        key = f"shared.{shared.name}.{topic}"
        while True:
            with self._database.read() as session:
                cursor = int(state.get(session, key, 0))
            rows, next_cursor = shared.fetch(topic, cursor)
            if not rows:
                return
            store(rows)
            self._database.write(partial(state.put, key=key, value=next_cursor))

    def _report_failure(self, error: Exception) -> str:
        """Log a failed exchange, and record it if the one before had succeeded. Returns the error in words."""
        message = sanitise(str(error).strip() or type(error).__name__)[:400]
        log.warning("%s could not be shared: %s", self.subject, message)
        if not self._is_failing and self._shared is not None:
            self._is_failing = True
            failure = CloudSyncFailed(subject=self.subject, message=message, unsent=self._count_unsent(self._shared))
            try:
                self._database.record(failure)
            except Refusal as refusal:
                if refusal.code != "engine_closed":
                    raise
        return message
