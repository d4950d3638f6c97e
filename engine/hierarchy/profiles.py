"""Profiles of leaders (SPEC 1.9): seeded by `soul.md`, edited by the operator, extended by findings, with use counts.

Rows are only added: a change is a new version of an item, a removal an empty version, and the newest version counts.
Uses are counted by home. So two homes that exchange rows in any order, any number of times, end up with the same
profiles.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy
from sqlalchemy import JSON, CheckConstraint, Column, Index, text
from sqlalchemy.dialects.sqlite import insert
from sqlmodel import Field, Session, col, func, select

from engine.events import ProfileEdited
from engine.hierarchy.profile_text import NAMED_ITEM, item_text, slug
from engine.model import (
    LeaderDecision,
    LeaderProfile,
    Pattern,
    PatternSource,
    PatternVersion,
    ProfileEdit,
    Randomness,
    Refusal,
    Trust,
)
from engine.model.lessons import lesson_id
from engine.model.trust import may_guide
from engine.storage import state
from engine.storage.database import Database, Transaction
from engine.storage.erasing import SearchTerms, json_contains
from engine.storage.rows import Row
from engine.storage.types import utc_column

SECTIONS = ("domain", "principles", "guardrails", "patterns", "decisions")
LISTS = ("principles", "guardrails")
TRUST, APPROVED = "trust", "approved"
"""Under these keys the body of a pattern says whose words it is and, of a quote, that the operator approved it. A quote
that does not say so is no pattern, whoever wrote it into a shared leadership."""

RECENT = 5
"""Maximum number of decisions that count as recent."""

ORIGIN = "hierarchy.origin"
SAVED = "hierarchy.saved."
"""Under this and a leader's id: of each item that its last edit changed the section, the key and the version before,
"" for none. Versions are names, so that nothing which is forgotten stays here."""

TICK = timedelta(microseconds=1)


class WisdomEntry(Row, table=True):
    """One version of one item. `body` has `text`, or `items` of a list; empty when the item was taken out. `version`
    is the same for the same content, whoever holds it; one that was forgotten keeps its name when its words are gone.
    `unsent`: the shared leadership has not confirmed it yet."""

    __tablename__ = "wisdom_entries"
    __table_args__ = (
        CheckConstraint("section IN ('" + "','".join(SECTIONS) + "')", name="ck_wisdom_entries_section"),
        Index("ix_wisdom_entries_unsent", "leader", sqlite_where=text("unsent")),
    )

    leader: str = Field(primary_key=True)
    section: str = Field(primary_key=True)
    key: str = Field(primary_key=True)
    version: str = Field(primary_key=True)
    body: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    at: datetime = Field(sa_column=utc_column())
    origin: str
    sources: list[dict[str, str]] = Field(sa_column=Column(JSON, nullable=False))
    unsent: bool = True

    @property
    def text(self) -> str:
        """What it says; "" for a list, and when it was taken out."""
        return str(self.body.get("text", ""))

    @property
    def learnt(self) -> tuple[PatternSource, ...]:
        """What it was learnt from."""
        return tuple(PatternSource(**source) for source in self.sources)

    @property
    def trust(self) -> Trust:
        """Whose words it is; those that do not say it are quotes."""
        stored = self.body.get(TRUST)
        return Trust(stored) if stored in list(Trust) else Trust.QUOTED


class WisdomUse(Row, table=True):
    """How often a pattern served in one home."""

    __tablename__ = "wisdom_uses"
    __table_args__ = (Index("ix_wisdom_uses_unsent", "leader", sqlite_where=text("unsent")),)

    leader: str = Field(primary_key=True)
    key: str = Field(primary_key=True)
    origin: str = Field(primary_key=True)
    uses: int
    last_used_at: datetime = Field(sa_column=utc_column())
    unsent: bool = True


Decided = Callable[[Sequence[str]], Mapping[str, Sequence[LeaderDecision]]]


def wording(
    leader: str,
    section: str,
    key: str,
    body: Mapping[str, Any],
    at: datetime,
    origin: str,
    sources: Iterable[PatternSource] = (),
) -> WisdomEntry:
    """A new version of an item."""
    source_fields = [asdict(source) for source in sources]
    identity = [leader, section, key, dict(body), at.astimezone(UTC).isoformat(), origin, *source_fields]
    version = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]
    return WisdomEntry(
        leader=leader,
        section=section,
        key=key,
        version=version,
        body=dict(body),
        at=at,
        origin=origin,
        sources=source_fields,
    )


def newest(entries: Iterable[WisdomEntry]) -> dict[tuple[str, str], WisdomEntry]:
    """The version that counts of each item, by section and key."""
    return {
        (entry.section, entry.key): entry
        for entry in sorted(entries, key=lambda version: (version.at, version.version))
    }


def profile_of(seed: LeaderProfile, entries: Sequence[WisdomEntry], uses: Iterable[WisdomUse]) -> LeaderProfile:
    """The profile that counts: what is stored over what `soul.md` says. Pure."""
    learnt: dict[tuple[str, str], dict[PatternSource, None]] = {}
    for entry in entries:  # two homes may have learnt the same thing from different agents
        learnt.setdefault((entry.key, entry.text), {}).update(dict.fromkeys(entry.learnt))
    counted: dict[str, list[WisdomUse]] = {}
    for use in uses:
        counted.setdefault(use.key, []).append(use)
    patterns = {pattern.key: pattern for pattern in seed.patterns}
    decisions = {decision.id: decision for decision in seed.decisions}
    lists: dict[str, tuple[str, ...]] = {"principles": seed.principles, "guardrails": seed.guardrails}
    domain = seed.domain
    for (section, key), entry in newest(entries).items():
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
        seed.leader, domain, lists["principles"], tuple(weighed), lists["guardrails"], tuple(recent[:RECENT])
    )


class Profiles:
    """The profiles of one home. `version` changes with every change of what a leader says, not with uses."""

    def __init__(
        self,
        database: Database,
        seed: Callable[[str], LeaderProfile],
        *,
        randomness: Randomness,
        decided: Decided = lambda leaders: {},
    ) -> None:
        """`seed` gives where a profile begins, the headings of `soul.md`; `decided` tells what leaders decided in their
        own words, as it was captured (SPEC 4.4)."""
        self._database = database
        self._seed = seed
        self._decided = decided
        self.version = 0
        with database.read() as session:
            stored = state.get(session, ORIGIN, "")
        self._origin = stored or randomness.new_id("home")
        self._known = bool(stored)

    @property
    def origin(self) -> str:
        """What this home is called in shared rows; stored with the first of them."""
        return self._origin

    def lasting_origin(self) -> str:
        """The same, stored if it was not."""
        if not self._known:
            self._database.write(self._keep_origin)
        return self._origin

    def load(self, leaders: Sequence[str]) -> dict[str, LeaderProfile]:
        """The profiles of `leaders`."""
        decided = self._decided(leaders)
        with self._database.read() as session:
            return self._profiles(session, leaders, decided)

    def get(self, leader: str) -> LeaderProfile:
        """The profile of one leader."""
        return self.load([leader])[leader]

    def history(self, leader: str, key: str) -> list[PatternVersion]:
        """Every wording that a pattern has and had, the newest first."""
        with self._database.read() as session:
            query = select(WisdomEntry).where(*_of_item(leader, "patterns", key))
            entries = sorted(session.exec(query), key=lambda entry: (entry.at, entry.version), reverse=True)
        return [
            PatternVersion(entry.key, entry.text, entry.at, entry.origin, number == 0, entry.learnt)
            for number, entry in enumerate(entries)
        ]

    def edit(self, leader: str, edits: Sequence[ProfileEdit]) -> LeaderProfile:
        """The operator's word, all of it or nothing. Raises `Refusal` `bad_section`, `bad_profile`."""
        changes = self._bodies(self.get(leader), edits)

        def work(tx: Transaction) -> None:
            current = newest(tx.session.exec(select(WisdomEntry).where(WisdomEntry.leader == leader)))
            before = {(section, key): current.get((section, key)) for section, key, _ in changes}
            versions = [[*item, entry.version if entry else ""] for item, entry in before.items()]
            state.put(tx, f"{SAVED}{leader}", versions)
            for section, key, body in changes:
                self.write(tx, leader, section, key, body)
                tx.record(ProfileEdited(subject=leader, section=section, key=key))

        self._database.write(work)
        return self.get(leader)

    def undo(self, leader: str) -> LeaderProfile:
        """Items that the last edit changed, as they were before it. Raises `Refusal` `nothing_to_undo`."""
        seed = self._seed(leader)
        seeded = {("patterns", pattern.key): pattern.text for pattern in seed.patterns}
        seeded |= {("decisions", decision.id): decision.text for decision in seed.decisions}

        def work(tx: Transaction) -> None:
            saved: list[list[str]] = state.get(tx.session, f"{SAVED}{leader}", [])
            if not saved:
                raise Refusal(
                    "nothing_to_undo",
                    f"nothing to undo: no save of the guidance from {leader}",
                    "only the last save can be undone, and only once",
                )
            stored = tx.session.exec(select(WisdomEntry).where(WisdomEntry.leader == leader))
            entries = {(entry.section, entry.key, entry.version): entry for entry in stored}
            for section, key, version in saved:
                before = entries.get((section, key, version))
                text = seeded.get((section, key), "")
                body = before.body if before else {"text": text, TRUST: Trust.OPERATOR.value} if text else {}
                self.write(tx, leader, section, key, body, before.learnt if before else ())
                tx.record(ProfileEdited(subject=leader, section=section, key=key))
            state.put(tx, f"{SAVED}{leader}", [])

        self._database.write(work)
        return self.get(leader)

    def preview(self, leader: str, edits: Sequence[ProfileEdit]) -> LeaderProfile:
        """The profile as these edits would make it; nothing is written. Raises `Refusal` as `edit`."""
        now = self.get(leader)
        last = datetime.max.replace(tzinfo=UTC)  # newer than all that is stored
        new = [wording(leader, *change, last, self._origin) for change in self._bodies(now, edits)]
        decided = self._decided([leader])
        with self._database.read() as session:
            return self._profiles(session, [leader], decided, new)[leader]

    def _bodies(self, now: LeaderProfile, edits: Sequence[ProfileEdit]) -> list[tuple[str, str, dict[str, Any]]]:
        """Section, key and body of the version that each edit makes."""
        seed = self._seed(now.leader)
        return [self._body(now, seed, edit.section, edit.key, edit.value) for edit in edits]

    def _body(
        self, now: LeaderProfile, seed: LeaderProfile, section: str, key: str, value: str | Sequence[str]
    ) -> tuple[str, str, dict[str, Any]]:
        if section not in SECTIONS:
            raise Refusal("bad_section", f"a profile has no {section}", "one of " + ", ".join(SECTIONS))
        body: dict[str, Any]
        if section in LISTS:
            if isinstance(value, str):
                raise Refusal("bad_profile", f"{section} must be a list of strings", "write one string per item")
            list_items = [line for line in map(item_text, value) if line]
            body = {"items": list_items} if list_items and list_items != [*getattr(seed, section)] else {}
            key = ""
        else:
            if not isinstance(value, str):
                raise Refusal("bad_profile", f"{section} must be a string", "write one string")
            line = item_text(value)
            body = {"text": line, TRUST: Trust.OPERATOR.value} if line else {}
            if section == "domain":
                key, body = "", {} if line == seed.domain else body
            elif not key and not line:
                raise Refusal("bad_profile", f"which of the {section}?", "give its key, or a new text")
            elif not key:
                named = NAMED_ITEM.match(line) if section == "patterns" else None
                key = slug(named[1]) if named else lesson_id(line)
                body["text"] = named[2] if named else line
            elif section == "patterns" and key not in {pattern.key for pattern in now.patterns}:
                key = slug(key)
        return section, key, body

    def drop(self, lesson: str) -> list[str]:
        """No leader says this lesson any more; who did. A pattern that was named otherwise and says the same goes,
        too."""
        with self._database.read() as session:
            leaders = session.exec(select(WisdomEntry.leader).where(WisdomEntry.section == "patterns").distinct()).all()
        patterns = [
            (leader, pattern.key)
            for leader, profile in self.load(leaders).items()
            for pattern in profile.patterns
            if lesson in (pattern.key, lesson_id(pattern.text))
        ]

        def work(tx: Transaction) -> None:
            for leader, key in patterns:
                self.write(tx, leader, "patterns", key, {})
                tx.record(ProfileEdited(subject=leader, section="patterns", key=key))

        if patterns:
            self._database.write(work)
        return sorted({leader for leader, _ in patterns})

    def write(
        self,
        tx: Transaction,
        leader: str,
        section: str,
        key: str,
        body: Mapping[str, Any],
        sources: tuple[PatternSource, ...] = (),
    ) -> None:
        """A new version of an item, newer than all that are known of it."""
        self._keep_origin(tx)
        last = _last(tx.session, leader, section, key)
        at = tx.now if last is None else max(tx.now, last + TICK)
        self.absorb(tx, [wording(leader, section, key, body, at, self._origin, sources)], unsent=True)

    def absorb(
        self, tx: Transaction, entries: Sequence[WisdomEntry], uses: Sequence[WisdomUse] = (), *, unsent: bool
    ) -> None:
        """Take in rows, from here (`unsent`) or from the shared leadership. Those that are known change nothing, but
        that one which was forgotten elsewhere loses its words here, and of counts the larger stays."""
        connection, new = tx.session.connection(), 0
        for entry in entries:
            fresh = insert(WisdomEntry).values({**entry.model_dump(), "unsent": unsent})
            forgotten = fresh.on_conflict_do_update(
                index_elements=["leader", "section", "key", "version"],
                set_={"body": fresh.excluded.body},
                where=text("excluded.body = '{}' AND wisdom_entries.body <> '{}'"),
            )
            new += connection.execute(forgotten).rowcount
        for use in uses:
            counted = insert(WisdomUse).values({**use.model_dump(), "unsent": unsent})
            larger = counted.on_conflict_do_update(
                index_elements=["leader", "key", "origin"],
                set_={"uses": counted.excluded.uses, "last_used_at": counted.excluded.last_used_at},
                where=counted.excluded.uses > col(WisdomUse.uses),
            )
            new += connection.execute(larger).rowcount
        if new:
            tx.after_commit(self.changed)

    def used(self, tx: Transaction, keys: Iterable[tuple[str, str]]) -> None:
        """Patterns (leader and key) served once more."""
        for leader, key in keys:
            fresh = insert(WisdomUse).values(
                leader=leader, key=key, origin=self._origin, uses=1, last_used_at=tx.now, unsent=True
            )
            tx.session.connection().execute(
                fresh.on_conflict_do_update(
                    index_elements=["leader", "key", "origin"],
                    set_={"uses": WisdomUse.uses + 1, "last_used_at": fresh.excluded.last_used_at, "unsent": True},
                )
            )
        self._keep_origin(tx)

    def in_transaction(self, tx: Transaction, leader: str) -> LeaderProfile:
        """The profile as the transaction sees it, without what was captured."""
        tx.session.flush()
        return self._profiles(tx.session, [leader], {})[leader]

    def _keep_origin(self, tx: Transaction) -> None:
        if not self._known:
            state.put(tx, ORIGIN, self._origin)
            tx.after_commit(lambda: setattr(self, "_known", True))

    def _profiles(
        self,
        session: Session,
        leaders: Sequence[str],
        decided: Mapping[str, Sequence[LeaderDecision]],
        new: Sequence[WisdomEntry] = (),
    ) -> dict[str, LeaderProfile]:
        """`new` entries count as if they were stored."""
        stored: dict[str, list[WisdomEntry]] = {
            leader: [entry for entry in new if entry.leader == leader] for leader in leaders
        }
        counted: dict[str, list[WisdomUse]] = {leader: [] for leader in leaders}
        for entry in session.exec(select(WisdomEntry).where(col(WisdomEntry.leader).in_(leaders))):
            stored[entry.leader].append(entry)
        for use in session.exec(select(WisdomUse).where(col(WisdomUse.leader).in_(leaders))):
            counted[use.leader].append(use)
        profiles = {}
        for leader in leaders:
            seed = self._seed(leader)
            seed = replace(seed, decisions=(*decided.get(leader, ()), *seed.decisions))
            profiles[leader] = profile_of(seed, stored[leader], counted[leader])
        return profiles

    def changed(self) -> None:
        """What leaders say is not what it was: prompts are made anew."""
        self.version += 1


def unsent(
    session: Session, synced: Callable[[str], bool] = lambda leader: True, limit: int = 500
) -> tuple[Sequence[WisdomEntry], Sequence[WisdomUse]]:
    """What the shared leadership has not confirmed of those who are `synced` (SPEC 1.3), at most `limit` of each."""
    leaders = {
        leader
        for table in (WisdomEntry, WisdomUse)
        for leader in session.exec(select(table.leader).where(col(table.unsent)).distinct())
    }
    shared_leaders = [leader for leader in leaders if synced(leader)]
    entries = (
        select(WisdomEntry).where(col(WisdomEntry.unsent), col(WisdomEntry.leader).in_(shared_leaders)).limit(limit)
    )
    counted = select(WisdomUse).where(col(WisdomUse.unsent), col(WisdomUse.leader).in_(shared_leaders)).limit(limit)
    return session.exec(entries).all(), session.exec(counted).all()


def confirm(tx: Transaction, sent: Iterable[WisdomEntry | WisdomUse]) -> None:
    """The shared leadership has these rows now; a use that was counted further meanwhile stays unsent."""
    names = {WisdomEntry: ("leader", "section", "key", "version"), WisdomUse: ("leader", "key", "origin", "uses")}
    for row in sent:
        same = [getattr(type(row), name) == getattr(row, name) for name in names[type(row)]]
        tx.session.connection().execute(sqlalchemy.update(type(row)).where(*same).values(unsent=False))


def forget_sent(tx: Transaction) -> None:
    """Everything is unsent again."""
    for table in (WisdomEntry, WisdomUse):
        tx.session.connection().execute(sqlalchemy.update(table).values(unsent=True))


class WisdomTexts:
    """Items of profiles in all their wordings; see `engine.memory.forget.ErasableStore`."""

    name = "wisdom"

    def __init__(self, database: Database, profiles: Profiles) -> None:
        self._database = database
        self._profiles = profiles

    def find(self, query: SearchTerms, /) -> Iterator[tuple[str, str]]:
        """The wordings that hold it: leader, section and key, and what they say."""
        with self._database.read() as session:
            for row in _holding(session, query):
                name = "/".join(part for part in (row.leader, row.section, row.key) if part)
                yield name, row.text or " · ".join(map(str, row.body.get("items", ())))

    def erase(self, query: SearchTerms, /) -> int:
        """Take it out; how many wordings. Where a wording held that is in force a newer one follows, without the words:
        so that machines which share the leadership hear of it. Prompts are made anew."""

        def work(tx: Transaction) -> int:
            rows = _holding(tx.session, query)
            items = {(row.leader, row.section, row.key): row for row in sorted(rows, key=lambda row: row.at)}
            for row in rows:
                where = *_of_item(row.leader, row.section, row.key), col(WisdomEntry.version) == row.version
                emptied = sqlalchemy.update(WisdomEntry).where(*where)
                tx.session.connection().execute(emptied.values(body={}, unsent=True))
            for (leader, section, key), row in items.items():
                if row.at == _last(tx.session, leader, section, key):
                    self._profiles.write(tx, leader, section, key, _without(row.body, query))
            tx.after_commit(self._profiles.changed)  # also where only what was captured is gone
            return len(rows)

        return self._database.write(work)


def _holding(session: Session, query: SearchTerms) -> list[WisdomEntry]:
    return [row for row in session.exec(select(WisdomEntry)) if json_contains(json.dumps(row.body), query)]


def _of_item(leader: str, section: str, key: str) -> tuple[Any, Any, Any]:
    return col(WisdomEntry.leader) == leader, col(WisdomEntry.section) == section, col(WisdomEntry.key) == key


def _last(session: Session, leader: str, section: str, key: str) -> datetime | None:
    """When the newest version of an item was written."""
    return session.exec(select(func.max(col(WisdomEntry.at))).where(*_of_item(leader, section, key))).one()


def _without(body: Mapping[str, Any], query: SearchTerms) -> dict[str, Any]:
    """A list without the items that hold it; nothing of a text."""
    remaining = [item for item in body.get("items", ()) if not query.match(str(item))]
    return {"items": remaining} if remaining else {}
