"""Readers of the ledger that do not come on are told to the operator: what they wait at is let go by no retention, and
what they would do is not done (SPEC 4.2)."""

from __future__ import annotations

from datetime import timedelta

from engine.clock import Clock
from engine.events import FaultReported
from engine.storage import state
from engine.storage.database import Database, Transaction
from engine.storage.facts_read import Fact

PATIENCE = timedelta(days=1)
"""So long a fact may wait for its reader; the slowest look at theirs every few hours."""

TOLD = "readers.stuck"
"""Under this key: by the reader's own key, the `fact` that it waits at and the `words` that were said of it."""

FIX = "see the log for the full error and fix its cause; nothing is lost, and older events are kept until then"


class StuckReaders:
    """Looks at every reader that keeps a cursor. One thread at a time."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._seen: dict[str, int] = {}

    def look(self) -> list[str]:
        """What is new is told, once, in a `FaultReported`, and returned. A reader is stuck that waits at the same fact
        as the last time though that is older than `PATIENCE`."""
        now = self._clock.now()
        waiting = {
            key: fact
            for key, reader in list(self._database.followers.items())
            if (fact := reader.next_of_concern()) is not None and now - fact.at >= PATIENCE
        }
        seen, self._seen = self._seen, {key: fact.id for key, fact in waiting.items()}
        with self._database.read() as session:
            told = dict(state.get(session, TOLD, {}))
        known = {key: one for key, one in told.items() if key in waiting and waiting[key].id == one["fact"]}
        new = {
            key: _words(key, fact, self._database.followers[key].fault)
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


def _words(key: str, fact: Fact, fault: str) -> str:
    why = fault or "it reports no error; some readers wait while everything is stopped (`clawpy status`)"
    return f"{key} has not processed {fact.kind} of {fact.subject} ({fact.at:%Y-%m-%d}, fact {fact.id}): {why}"
