"""What services do about facts of the ledger: each consumer on its own, what fails tried again, then reported.

A `Follower` is one consumer with a cursor of its own. `Following` has a thread for all of them, for what they do reads
files and asks models. `StalledConsumers` reports those that do not move on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from engine.clock import Clock
from engine.events import FaultReported
from engine.storage import state
from engine.storage.database import Transaction
from engine.storage.ledger import Ledger, LedgerCursor, LedgerEntry

log = logging.getLogger(__name__)

TRIES = 3
"""So often a fact is tried whose handling raises; then it is told of and passed over, so that others are handled."""

CLOSE_WAIT = 5.0
"""Seconds that `close` waits for a fact that is being handled; its cursor has not moved, so it comes again."""


class NotYet(Exception):
    """What a fact needs is not there yet: it is asked again later, and nothing after it before."""


class Follower:
    """One consumer of facts of some `kinds`. `handle` does the work for one of them; it may be called again for the
    same fact after a crash, and then must change nothing."""

    def __init__(
        self,
        name: str,
        ledger: Ledger,
        kinds: frozenset[str],
        handle: Callable[[LedgerEntry], None],
        *,
        key: str = "memory.follow",
    ) -> None:
        """`key` and the name are what its cursor is kept under."""
        self.name = name
        self._facts = LedgerCursor(ledger, f"{key}.{name}", lambda fact: fact.kind in kinds)
        self._handle = handle
        self._tries = 0
        self._lock = threading.Lock()

    def catch_up(self, going_on: Callable[[], bool] = lambda: True) -> list[str]:
        """Handle every fact since the last time, while `going_on()`. Returns in words what was passed over.

        What handling raises is not raised here: it is tried again by the next call, `TRIES` times in all.
        """
        passed: list[str] = []
        with self._lock:
            self._facts.each(lambda facts: self._take(facts, going_on, passed))
        return passed

    def _take(self, facts: Sequence[LedgerEntry], going_on: Callable[[], bool], passed: list[str]) -> int:
        """Handle them in order; returns how many are done."""
        for done, fact in enumerate(facts):
            words = self._try(fact) if going_on() else None
            if words is None:
                return done
            if words:
                passed.append(words)
        return len(facts)

    def _try(self, fact: LedgerEntry) -> str | None:
        """Handle one. "" when it is done, words when it is given up, None when it is to come again later."""
        try:
            self._handle(fact)
        except NotYet:
            return None
        except Exception as error:
            self._tries += 1
            log.exception("%s: %s of %s could not be handled", self.name, fact.kind, fact.subject)
            if self._tries < TRIES:
                return None
            self._tries = 0
            return f"{fact.kind} of {fact.subject} was skipped: {error}"
        self._tries = 0
        return ""


class Following:
    """One thread that has each follower catch up whenever it is poked, in their order."""

    def __init__(
        self,
        followers: Sequence[Follower],
        report: Callable[[str, str], None],
        *,
        service: str = "memory",
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """`report(where, words)` tells of what was passed over; `then` is done each time when all have caught up."""
        self._service = service
        self._then = then
        self._followers = tuple(followers)
        self._report = report
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, with what happened while nobody followed."""
        self._wake.set()
        self._thread = threading.Thread(target=self._run, name=f"clawpy-{self._service}-follow", daemon=True)
        self._thread.start()

    def poke(self) -> None:
        """There may be something new. Quick, from any thread."""
        self._wake.set()

    def catch_up(self, until: float | None = None) -> None:
        """Have all catch up now, in this thread. No fact is begun after `until`, a monotonic time: what is left comes
        with the next call."""

        def going_on() -> bool:
            return not self._closing.is_set() and (until is None or time.monotonic() < until)

        for follower in self._followers:
            for words in follower.catch_up(going_on):
                self._report(f"{self._service} ({follower.name})", words)
        if not self._closing.is_set():
            self._then()

    def close(self) -> None:
        """Stop after the fact that is being handled. Safe to call twice."""
        self._closing.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(CLOSE_WAIT)
            self._thread = None

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wake.wait()
            self._wake.clear()
            if self._closing.is_set():
                return
            try:
                self.catch_up()
            except Exception:
                if not self._closing.is_set():
                    log.exception("following the ledger failed; it continues with the next fact")


PATIENCE = timedelta(days=1)
"""So long a fact may wait for its reader; the slowest look at theirs every few hours."""

TOLD = "readers.stuck"
"""Under this key: by the reader's own key, the `fact` that it waits at and the `words` that were said of it."""

FIX = "see the log for the full error and fix its cause; nothing is lost, and older events are kept until then"


class StalledConsumers:
    """Reports consumers of the ledger that do not move on: what they wait at is let go by no retention, and what they
    would do is not done (SPEC 4.2). One thread at a time."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._database = ledger.database
        self._clock = clock
        self._seen: dict[str, int] = {}

    def look(self) -> list[str]:
        """What is new is told, once, in a `FaultReported`, and returned. A reader is stuck that waits at the same fact
        as the last time though that is older than `PATIENCE`."""
        now = self._clock.now()
        waiting = {
            key: fact
            for key, reader in list(self._ledger.cursors.items())
            if (fact := reader.next_of_concern()) is not None and now - fact.at >= PATIENCE
        }
        seen, self._seen = self._seen, {key: fact.id for key, fact in waiting.items()}
        with self._database.read() as session:
            told = dict(state.get(session, TOLD, {}))
        known = {key: fault for key, fault in told.items() if key in waiting and waiting[key].id == fault["fact"]}
        new = {
            key: _words(key, fact, self._ledger.cursors[key].fault)
            for key, fact in waiting.items()
            if key not in known and seen.get(key) == fact.id
        }

        def tell(tx: Transaction) -> None:
            found = {key: {"fact": waiting[key].id, "words": words} for key, words in new.items()}
            state.put(tx, TOLD, known | found)
            for words in new.values():
                tx.record(FaultReported(where="ledger", message=f"{words}; {FIX}"))

        if new or known != told:
            self._database.write(tell)
        return list(new.values())


def _words(key: str, fact: LedgerEntry, fault: str) -> str:
    why = fault or "it reports no error; some readers wait while everything is stopped (`clawpy status`)"
    return f"{key} has not processed {fact.kind} of {fact.subject} ({fact.at:%Y-%m-%d}, fact {fact.id}): {why}"
