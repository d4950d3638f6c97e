"""Local first: profiles are exchanged with a leadership that several machines share (SPEC 1.9), when there is one.

Rows only grow and merge the same in any order (see `profiles`): so an exchange that broke off anywhere is simply done
again. A failure never blocks work; it is told of once, as `CloudSyncFailed`, until an exchange succeeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.hierarchy.profiles import Profiles, WisdomEntry, WisdomUse, confirm, forget_sent, unsent
from engine.storage import state
from engine.storage.database import Database, Transaction
from engine.storage.shared import Outage

CURSOR = "hierarchy.shared_cursor"
STORE = "hierarchy.shared_store"
MOST_ROUNDS = 1_000


@dataclass(frozen=True, slots=True)
class Fetched:
    """Rows that came after a cursor, and the cursor for the next time."""

    entries: Sequence[WisdomEntry]
    uses: Sequence[WisdomUse]
    cursor: int


class ProfileStore(Protocol):
    """A leadership that machines share. Methods raise whatever their connection raises."""

    name: str
    """Tells one from another, without secrets: who changes it begins anew."""

    def push(self, entries: Sequence[WisdomEntry], uses: Sequence[WisdomUse]) -> None:
        """Add rows; those that are there change nothing, of counts the larger stays."""

    def fetch(self, cursor: int) -> Fetched:
        """Rows that became visible after `cursor`; 0 for all."""


class Sharing:
    """Exchanges with the shared leadership that `store()` gives, None for none. One exchange at a time."""

    def __init__(
        self,
        database: Database,
        profiles: Profiles,
        store: Callable[[], ProfileStore | None],
        *,
        synced: Callable[[str], bool],
    ) -> None:
        """`synced` says whether what an agent says is shared at all (SPEC 1.3)."""
        self._synced = synced
        self._database = database
        self._profiles = profiles
        self._store = store
        self._outage = Outage(database, "leadership", self._waiting)

    def exchange(self) -> str:
        """Send what is unsent and fetch what is new. Returns in words what failed, "" for nothing; never raises."""
        return self._outage.guard(self._exchange)

    def _exchange(self) -> None:
        store = self._store()
        if store is not None:
            self._meet(store)
            self._send(store)
            self._fetch(store)

    def _waiting(self) -> int:
        with self._database.read() as session:
            entries, uses = unsent(session, self._synced)
        return len(entries) + len(uses)

    def _meet(self, store: ProfileStore) -> None:
        """A store that is not the one of the last time has nothing of ours yet."""
        with self._database.read() as session:
            known = state.get(session, STORE, "")
        if known != store.name:

            def anew(tx: Transaction) -> None:
                forget_sent(tx)
                state.put(tx, STORE, store.name)

            self._database.write(anew)

    def _send(self, store: ProfileStore) -> None:
        for _ in range(MOST_ROUNDS):
            with self._database.read() as session:
                entries, uses = unsent(session, self._synced)
            if not entries and not uses:
                return
            store.push(entries, uses)
            self._database.write(lambda tx, sent=(*entries, *uses): confirm(tx, sent))  # type: ignore[misc]

    def _fetch(self, store: ProfileStore) -> None:
        key = f"{CURSOR}.{store.name}"
        for _ in range(MOST_ROUNDS):
            with self._database.read() as session:
                cursor = int(state.get(session, key, 0))
            found = store.fetch(cursor)
            if found.cursor == cursor:
                return

            def take(tx: Transaction, found: Fetched = found) -> None:
                self._profiles.absorb(tx, found.entries, found.uses, unsent=False)
                state.put(tx, key, found.cursor)

            self._database.write(take)
