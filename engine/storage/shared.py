"""The PostgreSQL database that several machines share (SPEC 1.9, 4.5), and the report of a failure to reach it.

Every row has a number of its table's sequence, and whoever writes holds one lock until its commit: so numbers become
visible in order, and a reader that has read up to one of them has missed nothing below it.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from engine.events import CloudSyncFailed
from engine.model import Refusal, extras, sanitise
from engine.storage.database import Database

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger(__name__)

SHARED_URL = "CLAWPY_SHARED_DATABASE_URL"
"""The variable that names the PostgreSQL; it may hold a password."""

CONNECT_TIMEOUT_S = 5
STATEMENT_TIMEOUT_MS = 10_000
LOCK_ID = 0x636C6177
"""The advisory lock of writers."""


class SharedDatabase:
    """One database URL. Each `connect` is a connection of its own, so that none goes stale; the `schema` (statements
    that may be repeated) is made with the first."""

    def __init__(self, url: str, schema: Sequence[str]) -> None:
        self._url = url
        self._schema = tuple(schema)
        self.name = hashlib.sha256(url.encode()).hexdigest()[:12]
        """Identifies the database, without its secrets."""
        self._schema_is_made = False

    def connect(self) -> psycopg.Connection[Any]:
        """Used as a context it commits, or rolls back what failed. Raises what psycopg raises, and `Refusal`
        `not_installed` where psycopg is not there."""
        try:
            import psycopg
        except ImportError as error:
            raise extras.not_installed(extras.POSTGRES) from error
        try:
            connection = psycopg.connect(
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
        if not self._schema_is_made:
            try:
                with connection.transaction():
                    lock(connection)
                    for statement in self._schema:
                        connection.execute(statement)
            except BaseException:
                connection.close()
                raise
            self._schema_is_made = True
        return connection


def lock(connection: psycopg.Connection[Any]) -> None:
    """Take the lock of writers until this transaction ends."""
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK_ID,))


class Outage:
    """Runs exchanges one after the other, and reports a failure once, as `CloudSyncFailed`, until one succeeds."""

    def __init__(self, database: Database, subject: str, waiting: Callable[[], int]) -> None:
        """`subject` is what is shared, in words; `waiting()` returns how many rows have not been sent."""
        self._database = database
        self._subject = subject
        self._waiting = waiting
        self._exchange_lock = threading.Lock()
        self._failing = False

    def guard(self, exchange: Callable[[], object]) -> str:
        """Run the exchange. Returns a message of what failed, "" for nothing; never raises what a connection raises."""
        with self._exchange_lock:
            try:
                exchange()
            except Exception as error:  # whatever a connection raises: work goes on, and it is reported
                return self._report_failure(error)
            self._failing = False
            return ""

    def _report_failure(self, error: Exception) -> str:
        message = sanitise(str(error).strip() or type(error).__name__)[:400]
        log.warning("%s could not be shared: %s", self._subject, message)
        if not self._failing:
            self._failing = True
            waiting = self._waiting()
            try:
                self._database.write(
                    lambda tx: tx.record(CloudSyncFailed(subject=self._subject, message=message, unsent=waiting))
                )
            except Refusal as refusal:
                if refusal.code != "engine_closed":
                    raise
        return message
