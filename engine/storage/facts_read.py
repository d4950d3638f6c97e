"""Following the facts of the ledger with a durable cursor: each is handled once, and after a crash once again.

The ledger grows with everything that happens, and most of it concerns no follower. So how far it was read is kept in
memory, and stored only when something was handled, or a whole batch was of no concern, and then along with what is
written next: an engine with nothing to do writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Protocol

from engine.model import sanitise
from engine.model.secrets import redact
from engine.storage import state
from engine.storage.database import Database

BATCH = 500
"""Facts that are read at once."""

LONGEST_FAULT = 500
"""Characters."""


class Fact(Protocol):
    """A row of the event ledger (SPEC 4.2); see `engine.events`."""

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
    """The event ledger, read with a cursor."""

    def since(self, cursor: int, limit: int = BATCH) -> Sequence[Fact]:
        """At most `limit` facts with an id above `cursor`, oldest first."""


class FactsRead:
    """What was read, stored under `key`. `concerns` says which facts are handled. One thread at a time."""

    def __init__(self, database: Database, facts: Facts, key: str, concerns: Callable[[Fact], bool]) -> None:
        self._database = database
        self._facts = facts
        self._key = key
        self._concerns = concerns
        self._cursor: int | None = None
        self._recorded = -1
        """As of so many writes to the ledger there is nothing to hand over."""
        self.fault = ""
        """What handling raised the last time, in words; "" when it went well."""
        database.followers[key] = self

    def each(self, handle: Callable[[Sequence[Fact]], int | None]) -> None:
        """Hand over the facts of concern since the last time, oldest first, in batches.

        `handle` returns how many it took, None for all. What it left comes the next time, with what is after it.
        What it raises is raised here, and its whole batch comes again; it must not mind facts that it handled before.
        """
        recorded = self._database.recorded  # before the look: what is written during it is looked for again
        if recorded == self._recorded:
            return
        cursor = self._stored() if self._cursor is None else self._cursor
        while facts := self._facts.since(cursor, BATCH):
            concerning = [fact for fact in facts if self._concerns(fact)]
            taken = self._handled(handle, concerning) if concerning else 0
            left = concerning[len(concerning) if taken is None else taken :]
            cursor = left[0].id - 1 if left else facts[-1].id
            if len(left) < len(concerning) or (len(facts) == BATCH and not left):
                self._store(cursor)
            self._cursor = cursor
            if left:
                return
            if len(facts) < BATCH:
                break
        self._recorded = recorded

    def next_of_concern(self) -> Fact | None:
        """The first fact that it has not handled yet, of the next `BATCH`."""
        cursor = self._stored() if self._cursor is None else self._cursor
        return next((fact for fact in self._facts.since(cursor, BATCH) if self._concerns(fact)), None)

    def _handled(self, handle: Callable[[Sequence[Fact]], int | None], facts: Sequence[Fact]) -> int | None:
        try:
            taken = handle(facts)
        except Exception as error:
            self.fault = redact(sanitise(f"{type(error).__name__}: {error}"))[:LONGEST_FAULT]
            raise
        self.fault = ""
        return taken

    def _stored(self) -> int:
        with self._database.read() as session:
            return int(state.get(session, self._key, 0))

    def _store(self, cursor: int) -> None:
        state.put_along(self._database, self._key, cursor)
