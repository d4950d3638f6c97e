"""The stored versions of the items of leaders' profiles (SPEC 1.9), and how they are merged into one profile.

A profile begins as the lists of `soul.md`, which `profile_items` reads. Each later change of an item is a row here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from sqlmodel import Field, Session, col, func, select

from engine.model import LeaderDecision, LeaderProfile, Pattern, PatternSource, Trust
from engine.model.base import may_guide
from engine.storage.rows import Row, json_field, utc_field

SECTIONS = ("domain", "principles", "guardrails", "patterns", "decisions")
LISTS = ("principles", "guardrails")
TRUST, APPROVED = "trust", "approved"
"""Keys in the body of a pattern: its trust, and whether the operator approved it if it is a quote. A quote without
approval is ignored, even if it comes from the shared database."""

MAX_DECISIONS = 5
"""Maximum number of decisions that count as recent."""


class ProfileEntry(Row, table=True):
    """One version of one item.

    `body` has `text`, or the `items` of a list. It is empty if the item was removed. `version` is derived from the
    content, so it is the same on every machine. It stays the same when the words are forgotten. `unsent` is True until
    the shared database has confirmed the row.
    """

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
        """The text of the item; "" for a list and for a removed item."""
        return str(self.body.get("text", ""))

    @property
    def findings(self) -> tuple[PatternSource, ...]:
        """The findings from which the item was made."""
        return tuple(PatternSource(**source) for source in self.sources)

    @property
    def trust(self) -> Trust:
        """The trust of the item; it is a quote by default."""
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


def select_newest(entries: Iterable[ProfileEntry]) -> dict[tuple[str, str], ProfileEntry]:
    """The newest version of each item, by section and key."""
    return {
        (entry.section, entry.key): entry
        for entry in sorted(entries, key=lambda version: (version.at, version.version))
    }


def merge_profile(
    seed: LeaderProfile, entries: Sequence[ProfileEntry], uses: Mapping[tuple[str, str], tuple[int, datetime]]
) -> LeaderProfile:
    """Merge the profile of `soul.md` (`seed`) with the stored entries. `uses` is, by leader and key, how often prompts
    of all homes contained a pattern, and when they last did. Pure."""
    newest = select_newest(entries)
    patterns = []
    for pattern in _merge_patterns(seed, entries, newest).values():
        number, last_used = uses.get((seed.leader, pattern.key), (0, None))
        patterns.append(replace(pattern, uses=number, last_used=last_used))
    decisions = {decision.id: decision for decision in seed.decisions}
    other_sections: dict[str, Any] = {}
    for (section, key), entry in newest.items():
        if section == "decisions":
            decisions.pop(key, None)
            if entry.text:
                decisions[key] = LeaderDecision(key, entry.text, entry.at)
        elif section != "patterns" and entry.body:
            other_sections[section] = entry.text or tuple(map(str, entry.body.get("items", ())))
    return replace(
        seed,
        patterns=tuple(sorted(patterns, key=lambda item: (-item.uses, *_newest_first(item.at), item.key))),
        decisions=tuple(sorted(decisions.values(), key=lambda item: _newest_first(item.at))[:MAX_DECISIONS]),
        **other_sections,
    )


def _merge_patterns(
    seed: LeaderProfile, entries: Sequence[ProfileEntry], newest: Mapping[tuple[str, str], ProfileEntry]
) -> dict[str, Pattern]:
    """The patterns of `soul.md`, replaced by their newest entries. A pattern has the findings of all entries with its
    key and text, because two homes may have it from different agents."""
    findings: dict[tuple[str, str], dict[PatternSource, None]] = {}
    for entry in entries:
        findings.setdefault((entry.key, entry.text), {}).update(dict.fromkeys(entry.findings))
    patterns = {pattern.key: pattern for pattern in seed.patterns}
    for (section, key), entry in newest.items():
        if section != "patterns":
            continue
        patterns.pop(key, None)
        if entry.text and may_guide(entry.trust, approved=bool(entry.body.get(APPROVED))):
            sources = tuple(findings[key, entry.text])
            patterns[key] = Pattern(key, entry.text, at=entry.at, sources=sources, trust=entry.trust)
    return patterns


def _newest_first(at: datetime | None) -> tuple[bool, float]:
    """Sort key: newest first, items without a date last."""
    return at is None, -at.timestamp() if at else 0.0


def match_item(leader: str, section: str, key: str) -> tuple[Any, Any, Any]:
    return col(ProfileEntry.leader) == leader, col(ProfileEntry.section) == section, col(ProfileEntry.key) == key


def find_newest_time(session: Session, leader: str, section: str, key: str) -> datetime | None:
    """The time of the newest version of an item."""
    return session.exec(select(func.max(col(ProfileEntry.at))).where(*match_item(leader, section, key))).one()
