"""Following the facts of the ledger with a durable cursor: each is handled once, and after a crash once again.

The ledger grows with everything that happens, and most of it concerns no follower. So how far it was read is kept in
memory, and stored only when something was handled, or a whole batch was of no concern: an engine with nothing to do
writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.prediction.ports import Fact, Facts
from engine.storage import state
from engine.storage.database import Database

BATCH = 500


class FactsRead:
    """What was read, stored under `key`. `concerns` says which facts are handled. One thread at a time."""

    def __init__(self, database: Database, facts: Facts, key: str, concerns: Callable[[Fact], bool]) -> None:
        self._database = database
        self._facts = facts
        self._key = key
        self._concerns = concerns
        self._cursor: int | None = None

    def each(self, handle: Callable[[Sequence[Fact]], object]) -> None:
        """Hand over the facts of concern since the last time, oldest first. What `handle` raises is raised here, and
        the same facts come again; it must not mind facts that it handled before."""
        cursor = self._stored() if self._cursor is None else self._cursor
        while facts := self._facts.since(cursor, BATCH):
            cursor = facts[-1].id
            concerning = [fact for fact in facts if self._concerns(fact)]
            if concerning:
                handle(concerning)
            if concerning or len(facts) == BATCH:
                self._store(cursor)
            self._cursor = cursor
            if len(facts) < BATCH:
                return

    def _stored(self) -> int:
        with self._database.read() as session:
            return int(state.get(session, self._key, 0))

    def _store(self, cursor: int) -> None:
        self._database.write(lambda tx: state.put(tx, self._key, cursor))
