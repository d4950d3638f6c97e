"""Consumers of the ledger: services that handle events after they were recorded, each with a cursor of its own.

`LedgerConsumer` handles events one by one, retries what fails, then skips and reports it. `ConsumerThread` runs several
consumers in one thread, since they read files and ask models. `StalledConsumers` reports cursors that do not advance.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from engine.background import Background
from engine.clock import Clock
from engine.events import FaultReported
from engine.storage import state
from engine.storage.database import Transaction
from engine.storage.ledger import Ledger, LedgerCursor, LedgerEntry

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 3
"""Number of failures after which an entry is reported and skipped."""

CLOSE_TIMEOUT_S = 5.0
"""Maximum time that `close` waits for the entry that is being handled; the next start handles it again."""


class NotReady(Exception):
    """An entry cannot be handled yet; it is handled later, before those after it."""


class LedgerConsumer:
    """Handles ledger entries of some `kinds`. `handle` does the work for one of them; it may be called again for the
    same entry after a crash, and then must change nothing."""

    def __init__(
        self,
        name: str,
        ledger: Ledger,
        kinds: frozenset[str],
        handle: Callable[[LedgerEntry], None],
        *,
        key: str = "memory.follow",
    ) -> None:
        """The cursor is stored under `key` and the name."""
        self.name = name
        self._cursor = LedgerCursor(ledger, f"{key}.{name}", lambda entry: entry.kind in kinds)
        self._handle = handle
        self._tries = 0
        self._lock = threading.Lock()

    def catch_up(self, should_continue: Callable[[], bool] = lambda: True) -> list[str]:
        """Handle every entry since the last time, while `should_continue()`. Returns messages of what was skipped.

        What handling raises is not raised here: the next call tries again, `MAX_ATTEMPTS` times in all.
        """
        skipped: list[str] = []
        with self._lock:
            self._cursor.each(lambda entries: self._handle_batch(entries, should_continue, skipped))
        return skipped

    def _handle_batch(
        self, entries: Sequence[LedgerEntry], should_continue: Callable[[], bool], skipped: list[str]
    ) -> int:
        """Handle entries in order; returns how many were handled."""
        for done, entry in enumerate(entries):
            words = self._try_handle(entry) if should_continue() else None
            if words is None:
                return done
            if words:
                skipped.append(words)
        return len(entries)

    def _try_handle(self, entry: LedgerEntry) -> str | None:
        """Handle one entry. Returns "" for success, a message if it is skipped, None if it must be tried again."""
        try:
            self._handle(entry)
        except NotReady:
            return None
        except Exception as error:
            self._tries += 1
            log.exception("%s: %s of %s could not be handled", self.name, entry.kind, entry.subject)
            if self._tries < MAX_ATTEMPTS:
                return None
            self._tries = 0
            return f"{entry.kind} of {entry.subject} was skipped: {error}"
        self._tries = 0
        return ""


class ConsumerThread:
    """A thread in which the consumers catch up, one after the other, whenever it is poked."""

    def __init__(
        self,
        consumers: Sequence[LedgerConsumer],
        report: Callable[[str, str], None],
        *,
        service: str = "memory",
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """`report(service, message)` is called for skipped entries; `then` after all have caught up."""
        self._service = service
        self._then = then
        self._consumers = tuple(consumers)
        self._report = report
        self._background = Background(f"clawpy-{service}-follow", self._step)
        self._started = False

    def start(self) -> None:
        """Start the thread, which first handles what was recorded while no engine ran."""
        self._started = True
        self._background.wake()

    def poke(self) -> None:
        """Let the consumers catch up, if the thread was started. Returns at once; from any thread."""
        if self._started:
            self._background.wake()

    def catch_up(self, until: float | None = None) -> None:
        """Let all consumers catch up in this thread. No entry is begun after `until`, a monotonic time; the next call
        handles the rest."""

        def should_continue() -> bool:
            return not self._background.closed and (until is None or time.monotonic() < until)

        for consumer in self._consumers:
            for words in consumer.catch_up(should_continue):
                self._report(f"{self._service} ({consumer.name})", words)
        if not self._background.closed:
            self._then()

    def close(self) -> None:
        """Stop after the entry that is being handled. Safe to call twice."""
        self._background.close(CLOSE_TIMEOUT_S)

    def _step(self) -> None:
        try:
            self.catch_up()
        except Exception:
            if not self._background.closed:
                log.exception("following the ledger failed; it continues with the next fact")


STALLED_AFTER = timedelta(days=1)
"""Age of an unhandled entry from which on its consumer is stalled; the slowest run every few hours."""

REPORTED_KEY = "readers.stuck"
"""The state under this key has, by cursor, the entry (`fact`) that it stays at and the message (`words`) reported."""

FIX = "see the log for the full error and fix its cause; nothing is lost, and older events are kept until then"


class StalledConsumers:
    """Reports consumers whose cursor does not advance (SPEC 4.2); retention keeps all entries after it. One thread at a
    time."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._database = ledger.database
        self._clock = clock
        self._last_waiting: dict[str, int] = {}

    def check(self) -> list[str]:
        """Report each newly stalled consumer, once, in a `FaultReported`; returns the messages.

        A consumer is stalled when its cursor is where it was at the last check, at an entry older than `STALLED_AFTER`.
        """
        now = self._clock.now()
        waiting = {
            key: entry
            for key, cursor in list(self._ledger.cursors.items())
            if (entry := cursor.next_unhandled()) is not None and now - entry.at >= STALLED_AFTER
        }
        last_waiting, self._last_waiting = self._last_waiting, {key: entry.id for key, entry in waiting.items()}
        with self._database.read() as session:
            reported = dict(state.get(session, REPORTED_KEY, {}))
        still_stalled = {
            key: report for key, report in reported.items() if key in waiting and waiting[key].id == report["fact"]
        }
        messages = {
            key: _message(key, entry, self._ledger.cursors[key].error)
            for key, entry in waiting.items()
            if key not in still_stalled and last_waiting.get(key) == entry.id
        }

        def record(tx: Transaction) -> None:
            new = {key: {"fact": waiting[key].id, "words": message} for key, message in messages.items()}
            state.put(tx, REPORTED_KEY, still_stalled | new)
            for message in messages.values():
                tx.record(FaultReported(where="ledger", message=f"{message}; {FIX}"))

        if messages or still_stalled != reported:
            self._database.write(record)
        return list(messages.values())


def _message(key: str, entry: LedgerEntry, error: str) -> str:
    reason = error or "it reports no error; some readers wait while everything is stopped (`clawpy status`)"
    return f"{key} has not processed {entry.kind} of {entry.subject} ({entry.at:%Y-%m-%d}, fact {entry.id}): {reason}"
