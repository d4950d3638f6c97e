"""The stored rows of leaders' profiles (SPEC 1.9): how they make a profile, and their exchange with other machines.

Rows are versions of items (`ProfileEntry`), and counts of how often patterns were used (`PatternUse`). Rows are only
added. A change of an item is a new version, a removal is an empty version, and the newest version counts. Uses are
counted separately for each home. So two homes that exchange rows in any order, any number of times, by a PostgreSQL
such as Supabase, get the same profiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import sqlalchemy
from sqlmodel import Field

from engine.hierarchy import is_leader
from engine.hierarchy.agents import Agents
from engine.hierarchy.profile_text import ITEM_SECTIONS, LIST_SECTIONS, PROFILE_SECTIONS
from engine.model import LeaderProfile, PatternSource, ProfileItem, Refusal, Trust
from engine.storage import Row, read_all
from engine.storage.database import Database, Transaction
from engine.storage.shared import Exchange, SharedDatabase, SharedRow

MAX_DECISIONS = 5
"""Maximum number of decisions that count as recent."""

_NO_DATE = datetime.min.replace(tzinfo=UTC)
"""Stands for the date of an item of a soul, which counts as the oldest."""

SHARED_TOPIC = "profiles"
"""The name of profiles in the shared database. It is stored, so it stays."""


class ProfileRow(Row):
    """What machines share of a profile. `origin` is the home that made the row, and `sent_to` the name of the shared
    database that has it as it is."""

    leader: str = Field(primary_key=True)
    key: str = Field(primary_key=True)
    origin: str = Field(primary_key=True)
    sent_to: str = ""

    @property
    def identity(self) -> Sequence[Any]:
        """The values of the primary key."""
        return tuple(sqlalchemy.inspect(type(self)).primary_key_from_instance(self))

    @property
    def rank(self) -> int:
        """Of two copies of the same row the one of the higher rank counts."""
        raise NotImplementedError


class ProfileEntry(ProfileRow, table=True):
    """One version of one item. `texts` has its text, or the items of a list. It is empty if the item was removed,
    restored from the soul, or forgotten. `forgotten`: words of the item were forgotten then, so older versions are
    emptied wherever they are."""

    __tablename__ = "profile_entries"

    section: str = Field(primary_key=True)
    at: datetime = Field(primary_key=True)
    texts: tuple[str, ...]
    trust: Trust = Trust.OPERATOR
    sources: tuple[PatternSource, ...] = ()
    forgotten: bool = False

    @property
    def text(self) -> str:
        """The text of the item; "" for one that was removed."""
        return "".join(self.texts)

    @property
    def rank(self) -> int:
        """The copy counts whose texts were forgotten, or else from which others are."""
        return 2 * (not self.texts) + self.forgotten


class PatternUse(ProfileRow, table=True):
    """How often prompts of one home contained a pattern."""

    __tablename__ = "pattern_uses"

    uses: int = 0

    @property
    def rank(self) -> int:
        """The copy counts that has more uses."""
        return self.uses


def select_newest(entries: Iterable[ProfileEntry]) -> dict[tuple[str, str], ProfileEntry]:
    """The newest version of each item, by section and key."""
    by_time = sorted(entries, key=lambda entry: (entry.at, entry.origin))
    return {(entry.section, entry.key): entry for entry in by_time}


def merge_profile(
    seed: LeaderProfile, entries: Iterable[ProfileEntry], uses: Mapping[tuple[str, str], int]
) -> LeaderProfile:
    """Merge the profile of `soul.md` (`seed`) with the stored entries. `uses` is, by leader and key, how often prompts
    of all homes contained a pattern. An item has the findings of all entries with its key and text, because two homes
    may have it from different agents. Pure."""
    sources: dict[tuple[str, str], dict[PatternSource, None]] = {}
    for entry in entries:
        sources.setdefault((entry.key, entry.text), {}).update(dict.fromkeys(entry.sources))
    items = {section: {item.key: item for item in getattr(seed, section)} for section in ITEM_SECTIONS}
    whole: dict[str, str | tuple[str, ...]] = {}
    for (section, key), entry in select_newest(entries).items():
        if section in ITEM_SECTIONS:
            found_by = tuple(sources[key, entry.text])
            items[section][key] = ProfileItem(key, entry.text, at=entry.at, sources=found_by, trust=entry.trust)
        elif entry.texts:
            whole[section] = entry.texts if section in LIST_SECTIONS else entry.text
    patterns = (replace(item, uses=uses.get((seed.leader, key), 0)) for key, item in sorted(items["patterns"].items()))
    decisions = _sort_items(items["decisions"].values())[:MAX_DECISIONS]
    return replace(seed, patterns=_sort_items(patterns), decisions=decisions, **whole)  # type: ignore[arg-type]


def _sort_items(items: Iterable[ProfileItem]) -> tuple[ProfileItem, ...]:
    """The items that were not removed: the most used first, then the newest."""
    ranked = sorted(items, key=lambda item: (item.uses, item.at or _NO_DATE), reverse=True)
    return tuple(item for item in ranked if item.text)


class ProfileSharing(Exchange):
    """Exchanges the profiles of leaders."""

    subject = "leadership"

    def __init__(
        self,
        database: Database,
        agents: Agents,
        shared: SharedDatabase | None,
        *,
        merge_rows: Callable[[Transaction, Iterable[ProfileRow]], None],
    ) -> None:
        """`merge_rows` stores fetched rows: `Profiles.merge_rows`."""
        super().__init__(database, shared)
        self._agents = agents
        self._merge_rows = merge_rows

    def _send_and_fetch(self, shared: SharedDatabase) -> None:
        if rows := self._read_unsent(shared):
            shared.push(SHARED_TOPIC, list(map(_to_shared, rows)))
            self._database.write(lambda tx: _mark_sent(tx, rows, shared.name))
        self._fetch(shared, SHARED_TOPIC, partial(self._store_fetched, shared.name))

    def _count_unsent(self, shared: SharedDatabase) -> int:
        return len(self._read_unsent(shared))

    def _read_unsent(self, shared: SharedDatabase) -> list[ProfileRow]:
        """The rows of shared leaders that the shared database has not confirmed."""
        with self._database.read() as session:
            unsent, values = "WHERE sent_to <> :name", {"name": shared.name}
            rows: list[ProfileRow] = [
                *read_all(session, ProfileEntry, unsent, values),
                *read_all(session, PatternUse, unsent, values),
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

    def _store_fetched(self, database: str, rows: Sequence[SharedRow]) -> None:
        """Store rows that a shared database has. A version without a known trust label is left out, and so is one
        of a section that only a newer engine knows."""
        fetched: list[ProfileRow] = []
        for document in ({**row.document, "sent_to": database} for row in rows):
            if "uses" in document:
                fetched.append(PatternUse.model_validate(document))
            elif document.get("section") in PROFILE_SECTIONS and document.get("trust") in list(Trust):
                fetched.append(ProfileEntry.model_validate(document))
        self._database.write(lambda tx: self._merge_rows(tx, fetched))


def _mark_sent(tx: Transaction, rows: Sequence[ProfileRow], database: str) -> None:
    """Store that a shared database has these rows, except those that have changed meanwhile."""
    for row in rows:
        stored = tx.session.get_one(type(row), row.identity)
        if stored.rank == row.rank:
            stored.sent_to = database


def _to_shared(row: ProfileRow) -> SharedRow:
    key = "/".join(map(str, (row.__tablename__, *row.identity)))
    return SharedRow(key, row.model_dump(mode="json", exclude={"sent_to"}), row.rank)
