"""The tables of leaders' profiles, versions of their items, and their merge into one profile (SPEC 1.9)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import sqlalchemy
from sqlmodel import Field, Session, col, func, select

from engine.model import (
    LeaderDecision,
    LeaderProfile,
    Pattern,
    PatternSource,
    Trust,
)
from engine.model.base import may_guide
from engine.storage.database import Transaction
from engine.storage.rows import Row, json_field, utc_field

SECTIONS = ("domain", "principles", "guardrails", "patterns", "decisions")
LISTS = ("principles", "guardrails")
TRUST, APPROVED = "trust", "approved"
"""Keys of the body of a pattern: its trust, and whether the operator approved a quote. A quote without approval is
ignored, also one from a shared leadership."""

MAX_DECISIONS = 5
"""Maximum number of decisions that count as recent."""


class ProfileEntry(Row, table=True):
    """One version of one item. `body` has `text`, or `items` of a list; empty when the item was taken out.
    `version` is the same for the same content, whoever holds it; one that was forgotten keeps its name when its words
    are gone. `unsent`: the shared leadership has not confirmed it yet."""

    __tablename__ = "profile_entries"

    leader: str = Field(primary_key=True)
    section: str = Field(primary_key=True)
    key: str = Field(primary_key=True)
    version: str = Field(primary_key=True)
    body: dict[str, Any] = json_field()
    at: datetime = utc_field()
    origin: str
    sources: list[dict[str, str]] = json_field()
    unsent: bool = True

    @property
    def text(self) -> str:
        """Its text; "" for a list and for a removed item."""
        return str(self.body.get("text", ""))

    @property
    def learnt(self) -> tuple[PatternSource, ...]:
        """The findings it was learnt from."""
        return tuple(PatternSource(**source) for source in self.sources)

    @property
    def trust(self) -> Trust:
        """Its trust; a quote by default."""
        stored = self.body.get(TRUST)
        return Trust(stored) if stored in list(Trust) else Trust.QUOTED


class PatternUse(Row, table=True):
    """How often prompts of one home contained a pattern."""

    __tablename__ = "pattern_uses"

    leader: str = Field(primary_key=True)
    key: str = Field(primary_key=True)
    origin: str = Field(primary_key=True)
    uses: int
    last_used_at: datetime = utc_field()
    unsent: bool = True


def make_entry(
    leader: str,
    section: str,
    key: str,
    body: Mapping[str, Any],
    at: datetime,
    origin: str,
    sources: Iterable[PatternSource] = (),
) -> ProfileEntry:
    """A new version of an item."""
    source_fields = [asdict(source) for source in sources]
    identity = [leader, section, key, dict(body), at.astimezone(UTC).isoformat(), origin, *source_fields]
    version = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]
    return ProfileEntry(
        leader=leader,
        section=section,
        key=key,
        version=version,
        body=dict(body),
        at=at,
        origin=origin,
        sources=source_fields,
    )


def newest_versions(entries: Iterable[ProfileEntry]) -> dict[tuple[str, str], ProfileEntry]:
    """The newest version of each item, by section and key."""
    return {
        (entry.section, entry.key): entry
        for entry in sorted(entries, key=lambda version: (version.at, version.version))
    }


def merge_profile(seed: LeaderProfile, entries: Sequence[ProfileEntry], uses: Iterable[PatternUse]) -> LeaderProfile:
    """The profile of `soul.md` (`seed`), changed by the stored entries. Pure."""
    learnt: dict[tuple[str, str], dict[PatternSource, None]] = {}
    for entry in entries:  # two homes may have learnt the same thing from different agents
        learnt.setdefault((entry.key, entry.text), {}).update(dict.fromkeys(entry.learnt))
    counted: dict[str, list[PatternUse]] = {}
    for use in uses:
        counted.setdefault(use.key, []).append(use)
    patterns = {pattern.key: pattern for pattern in seed.patterns}
    decisions = {decision.id: decision for decision in seed.decisions}
    lists: dict[str, tuple[str, ...]] = {"principles": seed.principles, "guardrails": seed.guardrails}
    domain = seed.domain
    for (section, key), entry in newest_versions(entries).items():
        text = entry.text
        if section == "patterns":
            patterns.pop(key, None)
            if text and may_guide(entry.trust, approved=bool(entry.body.get(APPROVED))):
                patterns[key] = Pattern(key, text, at=entry.at, sources=tuple(learnt[key, text]), trust=entry.trust)
        elif section == "decisions":
            decisions.pop(key, None)
            if text:
                decisions[key] = LeaderDecision(key, text, entry.at)
        elif section == "domain":
            domain = text or domain
        elif entry.body:
            lists[section] = tuple(str(item) for item in entry.body.get("items", ()))
    weighed = [
        replace(
            pattern,
            uses=sum(use.uses for use in counted.get(pattern.key, ())),
            last_used=max((use.last_used_at for use in counted.get(pattern.key, ())), default=None),
        )
        for pattern in patterns.values()
    ]
    weighed.sort(key=lambda pattern: (-pattern.uses, -pattern.at.timestamp() if pattern.at else 0.0, pattern.key))
    recent = sorted(
        decisions.values(), key=lambda decision: (decision.at is None, -decision.at.timestamp() if decision.at else 0.0)
    )
    return LeaderProfile(
        seed.leader, domain, lists["principles"], tuple(weighed), lists["guardrails"], tuple(recent[:MAX_DECISIONS])
    )


def unsent_rows(
    session: Session, synced: Callable[[str], bool] = lambda leader: True, limit: int = 500
) -> tuple[Sequence[ProfileEntry], Sequence[PatternUse]]:
    """The rows of `synced` leaders (SPEC 1.3) that the shared leadership has not confirmed, at most `limit` of each
    table."""
    leaders = {
        leader
        for table in (ProfileEntry, PatternUse)
        for leader in session.exec(select(table.leader).where(col(table.unsent)).distinct())
    }
    shared_leaders = [leader for leader in leaders if synced(leader)]
    entries = (
        select(ProfileEntry).where(col(ProfileEntry.unsent), col(ProfileEntry.leader).in_(shared_leaders)).limit(limit)
    )
    counted = select(PatternUse).where(col(PatternUse.unsent), col(PatternUse.leader).in_(shared_leaders)).limit(limit)
    return session.exec(entries).all(), session.exec(counted).all()


def mark_sent(tx: Transaction, sent: Iterable[ProfileEntry | PatternUse]) -> None:
    """Mark rows as sent; a use that was counted further meanwhile stays unsent."""
    names = {ProfileEntry: ("leader", "section", "key", "version"), PatternUse: ("leader", "key", "origin", "uses")}
    for row in sent:
        same = [getattr(type(row), name) == getattr(row, name) for name in names[type(row)]]
        tx.session.connection().execute(sqlalchemy.update(type(row)).where(*same).values(unsent=False))


def mark_all_unsent(tx: Transaction) -> None:
    """Mark all rows as unsent."""
    for table in (ProfileEntry, PatternUse):
        tx.session.connection().execute(sqlalchemy.update(table).values(unsent=True))


def is_item(leader: str, section: str, key: str) -> tuple[Any, Any, Any]:
    return col(ProfileEntry.leader) == leader, col(ProfileEntry.section) == section, col(ProfileEntry.key) == key


def newest_time(session: Session, leader: str, section: str, key: str) -> datetime | None:
    """The time of the newest version of an item."""
    return session.exec(select(func.max(col(ProfileEntry.at))).where(*is_item(leader, section, key))).one()
