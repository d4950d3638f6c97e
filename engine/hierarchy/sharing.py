"""Shares the profiles of leaders with other machines, by a PostgreSQL (SPEC 1.9) such as Supabase.

Rows are versions of items (`ProfileEntry`), and counts of how often patterns were used (`PatternUse`).
They can be merged in any order (see `profiles`), so an exchange may send and fetch a row twice.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy
from sqlmodel import col, select

from engine.hierarchy.agents import Agents
from engine.hierarchy.organisation import is_leader
from engine.hierarchy.profile_items import PROFILE_SECTIONS, PatternUse, ProfileEntry
from engine.hierarchy.profiles import Profiles
from engine.model import Refusal
from engine.storage import state
from engine.storage.database import Database, Transaction
from engine.storage.rows import table_of
from engine.storage.shared import Exchange, SharedDatabase, SharedRow

TOPIC = "leadership"
"""The name of profiles in the shared database, in the state table and in reports. It is stored, so it stays."""

LAST_STORE = f"shared.{TOPIC}"
"""Key in the state table: the name of the shared database of the last exchange."""


class ProfileSharing(Exchange):
    """Exchanges the profiles of leaders."""

    subject = TOPIC

    def __init__(self, database: Database, profiles: Profiles, agents: Agents, shared: SharedDatabase | None) -> None:
        super().__init__(database, shared)
        self._agents = agents
        self._profiles = profiles

    def _is_shared(self, leader: str) -> bool:
        """Whether the profile of a leader is shared between machines: by its tier, or because the agent is gone (SPEC
        1.3)."""
        try:
            return is_leader(self._agents.get(leader).tier)
        except Refusal:
            return True

    def _send_and_fetch(self, shared: SharedDatabase) -> None:
        self._reset_for_new_store(shared)
        self._send(shared)
        self._fetch(shared, TOPIC, self._merge)

    def _count_unsent(self, shared: SharedDatabase) -> int:
        return len(self._read_unsent_rows())

    def _read_unsent_rows(self) -> list[ProfileEntry | PatternUse]:
        """The rows of shared leaders that the shared database has not confirmed."""
        with self._database.read() as session:
            rows: list[ProfileEntry | PatternUse] = [
                *session.exec(select(ProfileEntry).where(col(ProfileEntry.unsent))),
                *session.exec(select(PatternUse).where(col(PatternUse.unsent))),
            ]
        shared = {leader for leader in {row.leader for row in rows} if self._is_shared(leader)}
        return [row for row in rows if row.leader in shared]

    def _reset_for_new_store(self, shared: SharedDatabase) -> None:
        """Mark all rows as unsent if the shared database is another one than at the last exchange."""
        with self._database.read() as session:
            last_store = state.get(session, LAST_STORE, "")
        if last_store != shared.name:

            def mark_unsent(tx: Transaction) -> None:
                for table in (ProfileEntry, PatternUse):
                    tx.session.connection().execute(sqlalchemy.update(table).values(unsent=True))
                state.put(tx, LAST_STORE, shared.name)

            self._database.write(mark_unsent)

    def _send(self, shared: SharedDatabase) -> None:
        """Send the rows that the shared database has not confirmed."""
        rows = self._read_unsent_rows()
        if not rows:
            return
        shared.push(TOPIC, [_to_shared(row) for row in rows])

        def mark_all(tx: Transaction) -> None:
            for row in rows:
                _mark_sent(tx, row)

        self._database.write(mark_all)

    def _merge(self, rows: Sequence[SharedRow]) -> None:
        uses = [PatternUse.model_validate(row.document) for row in rows if "uses" in row.document]
        entries = [ProfileEntry.model_validate(row.document) for row in rows if "uses" not in row.document]
        entries = [
            entry for entry in entries if entry.section in PROFILE_SECTIONS
        ]  # a newer version may have other sections
        self._database.write(lambda tx: self._profiles.merge_rows(tx, entries, uses, unsent=False))


def _mark_sent(tx: Transaction, row: ProfileEntry | PatternUse) -> None:
    """Store that the shared database has a row. If further uses were counted meanwhile, the row stays unsent."""
    keys = [column.name for column in table_of(type(row)).primary_key]
    names = [*keys, "uses"] if isinstance(row, PatternUse) else keys
    conditions = [getattr(type(row), name) == getattr(row, name) for name in names]
    tx.session.connection().execute(sqlalchemy.update(type(row)).where(*conditions).values(unsent=False))


def _to_shared(row: ProfileEntry | PatternUse) -> SharedRow:
    """The shared form of a row. In the shared database an entry may lose its words, and the larger number of uses is
    kept."""
    document = row.model_dump(mode="json", exclude={"unsent"})
    if isinstance(row, PatternUse):
        return SharedRow(f"uses/{row.leader}/{row.key}/{row.origin}", document, row.uses)
    return SharedRow(row.version, document, int(not row.body))
