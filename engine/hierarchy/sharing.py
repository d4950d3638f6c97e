"""Shares the profiles of leaders with other machines, by a PostgreSQL (SPEC 1.9) such as Supabase.

Rows are versions of items (`ProfileEntry`), and counts of how often patterns were used (`PatternUse`).
They can be merged in any order (see `profiles`), so an exchange may send and fetch a row twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from sqlmodel import col, select

from engine.hierarchy.agents import Agents
from engine.hierarchy.organisation import is_leader
from engine.hierarchy.profile_items import PROFILE_SECTIONS, PatternUse, ProfileEntry, ProfileRow
from engine.hierarchy.profiles import Profiles
from engine.model import Refusal, Trust
from engine.storage.database import Database, Transaction
from engine.storage.shared import Exchange, SharedDatabase, SharedRow

TOPIC = "profiles"
"""The name of profiles in the shared database. It is stored, so it stays."""


class ProfileSharing(Exchange):
    """Exchanges the profiles of leaders."""

    subject = "leadership"

    def __init__(self, database: Database, profiles: Profiles, agents: Agents, shared: SharedDatabase | None) -> None:
        super().__init__(database, shared)
        self._agents = agents
        self._profiles = profiles

    def _send_and_fetch(self, shared: SharedDatabase) -> None:
        if rows := self._read_unsent(shared):
            shared.push(TOPIC, list(map(_to_shared, rows)))
            self._database.write(lambda tx: _mark_sent(tx, rows, shared.name))
        self._fetch(shared, TOPIC, partial(self._merge, shared.name))

    def _count_unsent(self, shared: SharedDatabase) -> int:
        return len(self._read_unsent(shared))

    def _read_unsent(self, shared: SharedDatabase) -> list[ProfileRow]:
        """The rows of shared leaders that the shared database has not confirmed."""
        with self._database.read() as session:
            rows: list[ProfileRow] = [
                *session.exec(select(ProfileEntry).where(col(ProfileEntry.sent_to) != shared.name)),
                *session.exec(select(PatternUse).where(col(PatternUse.sent_to) != shared.name)),
            ]
        leaders = {leader for leader in {row.leader for row in rows} if self._is_shared(leader)}
        return [row for row in rows if row.leader in leaders]

    def _is_shared(self, leader: str) -> bool:
        """Whether the profile of a leader is shared between machines: by its tier, or because the agent is gone (SPEC
        1.3)."""
        try:
            return is_leader(self._agents.get(leader).tier)
        except Refusal:
            return True

    def _merge(self, database: str, rows: Sequence[SharedRow]) -> None:
        """Store rows that a shared database has. A version without a known trust label is left out, and so is one
        of a section that only a newer engine knows."""
        fetched: list[ProfileRow] = []
        for document in ({**row.document, "sent_to": database} for row in rows):
            if "uses" in document:
                fetched.append(PatternUse.model_validate(document))
            elif document.get("section") in PROFILE_SECTIONS and document.get("trust") in list(Trust):
                fetched.append(ProfileEntry.model_validate(document))
        self._database.write(lambda tx: self._profiles.merge_rows(tx, fetched))


def _mark_sent(tx: Transaction, rows: Sequence[ProfileRow], database: str) -> None:
    """Store that a shared database has these rows, except those that have changed meanwhile."""
    for row in rows:
        stored = tx.session.get_one(type(row), row.identity)
        if stored.rank == row.rank:
            stored.sent_to = database


def _to_shared(row: ProfileRow) -> SharedRow:
    key = "/".join(map(str, (row.__tablename__, *row.identity)))
    return SharedRow(key, row.model_dump(mode="json", exclude={"sent_to"}), row.rank)
