"""Following the ledger with a durable cursor (ARCHITECTURE rule 3): each fact handled once, and once again harmlessly.

A `Follower` is one reader with a cursor of its own. `Following` has a thread for all of them, for what they do reads
files and asks models.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Protocol

from engine.storage import state
from engine.storage.database import Database

log = logging.getLogger(__name__)

PAGE = 500
"""Rows of the ledger that are read at once."""

TRIES = 3
"""So often a fact is tried whose handling raises; then it is told of and passed over, so that others are handled."""

CLOSE_WAIT = 5.0
"""Seconds that `close` waits for a fact that is being handled; its cursor has not moved, so it comes again."""


class Fact(Protocol):
    """A row of the event ledger."""

    @property
    def id(self) -> int: ...
    @property
    def at(self) -> datetime: ...
    @property
    def kind(self) -> str: ...
    @property
    def subject(self) -> str: ...
    @property
    def workspace(self) -> str: ...
    @property
    def payload(self) -> dict[str, Any]: ...


class Facts(Protocol):
    """The event ledger."""

    def since(self, cursor: int, limit: int = 500) -> Sequence[Fact]: ...


class NotYet(Exception):
    """What a fact needs is not there yet: it is asked again later, and nothing after it before."""


class Follower:
    """One reader of facts of some `kinds`. `handle` does the work for one of them; it may be called again for the same
    fact after a crash, and then must change nothing."""

    def __init__(
        self, name: str, database: Database, facts: Facts, kinds: frozenset[str], handle: Callable[[Fact], None]
    ) -> None:
        self.name = name
        self._database = database
        self._facts = facts
        self._kinds = kinds
        self._handle = handle
        self._tries = 0
        self._lock = threading.Lock()

    @property
    def cursor(self) -> int:
        """The last fact that was handled."""
        with self._database.read() as session:
            return int(state.get(session, self._key, 0))

    def catch_up(self, going_on: Callable[[], bool] = lambda: True) -> list[str]:
        """Handle every fact since the last time, while `going_on()`. Returns in words what was passed over.

        Raises nothing: what fails is tried again by the next call, `TRIES` times in all.
        """
        with self._lock:
            return self._catch_up(going_on)

    def _catch_up(self, going_on: Callable[[], bool]) -> list[str]:
        passed: list[str] = []
        cursor = self.cursor
        while page := self._facts.since(cursor, PAGE):
            done = cursor
            for fact in page:
                if not going_on():
                    self._keep(cursor, done)
                    return passed
                if fact.kind in self._kinds:
                    words = self._try(fact)
                    if words is None:
                        self._keep(cursor, done)
                        return passed
                    if words:
                        passed.append(words)
                done = fact.id
            self._keep(cursor, done)
            cursor = done
        return passed

    def _try(self, fact: Fact) -> str | None:
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
            return f"{fact.kind} of {fact.subject} was passed over: {error}"
        self._tries = 0
        return ""

    def _keep(self, before: int, after: int) -> None:
        if after != before:
            self._database.write(lambda tx: state.put(tx, self._key, after))

    @property
    def _key(self) -> str:
        return f"memory.follow.{self.name}"


class Following:
    """One thread that has each follower catch up whenever it is poked, in their order."""

    def __init__(self, followers: Sequence[Follower], report: Callable[[str, str], None]) -> None:
        """`report(where, words)` tells of what was passed over."""
        self._followers = tuple(followers)
        self._report = report
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, with what happened while nobody followed."""
        self._wake.set()
        self._thread = threading.Thread(target=self._run, name="clawpy-memory-follow", daemon=True)
        self._thread.start()

    def poke(self) -> None:
        """There may be something new. Quick, from any thread."""
        self._wake.set()

    def catch_up(self) -> None:
        """Have all catch up now, in this thread."""
        for follower in self._followers:
            for words in follower.catch_up(lambda: not self._closing.is_set()):
                self._report(f"memory ({follower.name})", words)

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
                    log.exception("following the ledger failed; it goes on at the next fact")
