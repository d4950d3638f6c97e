"""Profiles of leaders (SPEC 1.9): what `soul.md` seeds, what the operator edited, what bubbled up, how often it served.

What is stored only grows: each change is a new version of an item, an item taken out is an empty version, the newest
version counts, and a use is counted by the home it happened in. So two stores become equal by exchanging rows, in any
order and however often, and nothing that lost a conflict is lost: that is how machines share a leadership.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import sqlalchemy
from sqlalchemy import JSON, CheckConstraint, Column, Index, text
from sqlalchemy.dialects.sqlite import insert
from sqlmodel import Field, Session, col, func, select

from engine.events import ProfileEdited
from engine.hierarchy.names import opaque_key, pattern_key
from engine.hierarchy.seeds import KEYED, item_text, slug
from engine.storage import state
from engine.storage.database import Database, Transaction
from engine.storage.rows import Row
from engine.storage.types import utc
from engine.values import (
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
from engine.values.trust import may_guide

SECTIONS = ("domain", "principles", "guardrails", "patterns", "decisions")
LISTS = ("principles", "guardrails")
TRUST, APPROVED = "trust", "approved"
"""Under these keys the body of a pattern says whose words it is and, of a quote, that the operator approved it. A quote
that does not say so is no pattern, whoever wrote it into a shared leadership."""

RECENT = 5
"""So many decisions are recent ones."""

ORIGIN = "hierarchy.origin"
TICK = timedelta(microseconds=1)


class WisdomEntry(Row, table=True):
    """One version of one item. `body` has `text`, or `items` of a list; empty when the item was taken out. `unsent`:
    the shared leadership has not confirmed it yet."""

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
    at: datetime = Field(sa_column=utc())
    origin: str
    sources: list[dict[str, str]] = Field(sa_column=Column(JSON, nullable=False))
    unsent: bool = True


class WisdomUse(Row, table=True):
    """How often a pattern served in one home."""

    __tablename__ = "wisdom_uses"
    __table_args__ = (Index("ix_wisdom_uses_unsent", "leader", sqlite_where=text("unsent")),)

    leader: str = Field(primary_key=True)
    key: str = Field(primary_key=True)
    origin: str = Field(primary_key=True)
    uses: int
    last_used_at: datetime = Field(sa_column=utc())
    unsent: bool = True


@dataclass(frozen=True, slots=True)
class Entry:
    """A version of an item as stores exchange it. `known_as` is its version where it was stored before, "" for a new
    one: a version that was forgotten keeps its name when its words are gone."""

    leader: str
    section: str
    key: str
    body: Mapping[str, Any]
    at: datetime
    origin: str
    sources: tuple[PatternSource, ...] = ()
    known_as: str = ""

    @property
    def version(self) -> str:
        """The same for the same content, whoever holds it."""
        if self.known_as:
            return self.known_as
        said = [
            self.leader,
            self.section,
            self.key,
            dict(self.body),
            self.at.astimezone(UTC).isoformat(),
            self.origin,
            *_plain(self),
        ]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Use:
    """A count of uses as stores exchange it."""

    leader: str
    key: str
    origin: str
    uses: int
    last_used_at: datetime


Decided = Callable[[Sequence[str]], Mapping[str, Sequence[LeaderDecision]]]


class Seeds(Protocol):
    """Where profiles begin: the headings of `soul.md`."""

    def seed(self, leader: str, /) -> LeaderProfile: ...


def newest(entries: Iterable[Entry]) -> dict[tuple[str, str], Entry]:
    """The version that counts of each item, by section and key."""
    found: dict[tuple[str, str], Entry] = {}
    for one in entries:
        held = found.get((one.section, one.key))
        if held is None or (one.at, one.version) > (held.at, held.version):
            found[one.section, one.key] = one
    return found


def profile_of(seed: LeaderProfile, entries: Sequence[Entry], uses: Iterable[Use]) -> LeaderProfile:
    """The profile that counts: what is stored over what `soul.md` says. Pure."""
    held = newest(entries)
    learnt: dict[tuple[str, str], dict[PatternSource, None]] = {}
    for one in entries:  # two homes may have learnt the same thing from different agents
        if one.section == "patterns":
            learnt.setdefault((one.key, str(one.body.get("text", ""))), {}).update(dict.fromkeys(one.sources))
    counted: dict[str, int] = {}
    last: dict[str, datetime] = {}
    for use in uses:
        counted[use.key] = counted.get(use.key, 0) + use.uses
        last[use.key] = max(use.last_used_at, last.get(use.key, use.last_used_at))
    patterns = {one.key: one for one in seed.patterns}
    decisions = {one.id: one for one in seed.decisions}
    lists: dict[str, tuple[str, ...]] = {"principles": seed.principles, "guardrails": seed.guardrails}
    domain = seed.domain
    for (section, key), one in held.items():
        said = str(one.body.get("text", ""))
        if section == "patterns":
            patterns.pop(key, None)
            if said and may_guide(_trust(one), approved=bool(one.body.get(APPROVED))):
                patterns[key] = Pattern(key, said, at=one.at, sources=tuple(learnt[key, said]), trust=_trust(one))
        elif section == "decisions":
            decisions.pop(key, None)
            if said:
                decisions[key] = LeaderDecision(key, said, one.at)
        elif section == "domain":
            domain = said or domain
        elif one.body:
            lists[section] = tuple(str(item) for item in one.body.get("items", ()))
    weighed = [
        Pattern(one.key, one.text, counted.get(one.key, 0), one.at, last.get(one.key), one.sources, one.trust)
        for one in patterns.values()
    ]
    weighed.sort(key=lambda one: (-one.uses, -one.at.timestamp() if one.at else 0.0, one.key))
    recent = sorted(decisions.values(), key=lambda one: (one.at is None, -one.at.timestamp() if one.at else 0.0))
    return LeaderProfile(
        seed.leader, domain, lists["principles"], tuple(weighed), lists["guardrails"], tuple(recent[:RECENT])
    )


class Profiles:
    """The profiles of one home. `version` changes with every change of what a leader says, not with uses."""

    def __init__(
        self,
        database: Database,
        seeds: Seeds,
        *,
        randomness: Randomness,
        decided: Decided = lambda leaders: {},
        shared: Callable[[], bool] = lambda: False,
    ) -> None:
        """`decided` tells what leaders decided in their own words, as it was captured (SPEC 4.4). `shared()`: other
        machines have these profiles too; what is new is then named without its words, for a name stays in their
        database when the words are forgotten (SPEC 4.10)."""
        self._database = database
        self._seeds = seeds
        self._decided = decided
        self._shared = shared
        self.version = 0
        with database.read() as session:
            known = state.get(session, ORIGIN, "")
        self._origin = known or randomness.new_id("home")
        self._known = bool(known)

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
            found = [one for one in entries(session, [leader]) if one.section == "patterns" and one.key == key]
        found.sort(key=lambda one: (one.at, one.version), reverse=True)
        return [
            PatternVersion(one.key, str(one.body.get("text", "")), one.at, one.origin, number == 0, one.sources)
            for number, one in enumerate(found)
        ]

    def edit(self, leader: str, edits: Sequence[ProfileEdit]) -> LeaderProfile:
        """The operator's word, all of it or nothing. Raises `Refusal` `bad_section`, `bad_profile`."""
        changes = self._bodies(self.get(leader), edits)

        def work(tx: Transaction) -> None:
            for section, key, body in changes:
                self.write(tx, leader, section, key, body)
                tx.record(ProfileEdited(subject=leader, section=section, key=key))

        self._database.write(work)
        return self.get(leader)

    def preview(self, leader: str, edits: Sequence[ProfileEdit]) -> LeaderProfile:
        """The profile as these edits would make it; nothing is written. Raises `Refusal` as `edit`."""
        now = self.get(leader)
        last = datetime.max.replace(tzinfo=UTC)  # newer than all that is stored
        new = [Entry(leader, *change, last, self._origin) for change in self._bodies(now, edits)]
        decided = self._decided([leader])
        with self._database.read() as session:
            return self._profiles(session, [leader], decided, new)[leader]

    def _bodies(self, now: LeaderProfile, edits: Sequence[ProfileEdit]) -> list[tuple[str, str, dict[str, Any]]]:
        """Section, key and body of the version that each edit makes."""
        seed = self._seeds.seed(now.leader)
        return [self._body(now, seed, one.section, one.key, one.value) for one in edits]

    def _body(
        self, now: LeaderProfile, seed: LeaderProfile, section: str, key: str, value: str | Sequence[str]
    ) -> tuple[str, str, dict[str, Any]]:
        if section not in SECTIONS:
            raise Refusal("bad_section", f"a profile has no {section}", "one of " + ", ".join(SECTIONS))
        body: dict[str, Any]
        if section in LISTS:
            if isinstance(value, str):
                raise Refusal("bad_profile", f"{section} is a list of texts", "one text an item")
            kept = [said for said in map(item_text, value) if said]
            body = {"items": kept} if kept and kept != [*getattr(seed, section)] else {}
            key = ""
        else:
            if not isinstance(value, str):
                raise Refusal("bad_profile", f"{section} is a text", "give one text")
            said = item_text(value)
            body = {"text": said, TRUST: Trust.OPERATOR.value} if said else {}
            if section == "domain":
                key, body = "", {} if said == seed.domain else body
            elif not key and not said:
                raise Refusal("bad_profile", f"which of the {section}?", "give its key, or a new text")
            elif not key:
                named = KEYED.match(said) if section == "patterns" else None
                key = slug(named[1]) if named else self.name_of(said)
                body["text"] = named[2] if named else said
            elif section == "patterns" and key not in {one.key for one in now.patterns}:
                key = slug(key)
        return section, key, body

    def name_of(self, said: str) -> str:
        """What a new pattern or decision is called."""
        return opaque_key(said) if self._shared() else pattern_key(said)

    def write(
        self,
        tx: Transaction,
        leader: str,
        section: str,
        key: str,
        body: Mapping[str, Any],
        sources: tuple[PatternSource, ...] = (),
    ) -> Entry:
        """A new version of an item, newer than all that are known of it."""
        self._keep_origin(tx)
        last = tx.session.exec(
            select(func.max(col(WisdomEntry.at))).where(
                col(WisdomEntry.leader) == leader, col(WisdomEntry.section) == section, col(WisdomEntry.key) == key
            )
        ).one()
        at = tx.now if last is None else max(tx.now, last + TICK)
        one = Entry(leader, section, key, dict(body), at, self._origin, sources)
        self.absorb(tx, [one], unsent=True)
        return one

    def absorb(self, tx: Transaction, entries: Sequence[Entry], uses: Sequence[Use] = (), *, unsent: bool) -> int:
        """Take in rows, from here (`unsent`) or from the shared leadership. Those that are known change nothing, but
        that one which was forgotten elsewhere loses its words here. Returns how many were new."""
        new = 0
        for one in entries:
            row = {
                "leader": one.leader, "section": one.section, "key": one.key, "version": one.version,
                "body": dict(one.body), "at": one.at, "origin": one.origin, "sources": _plain(one), "unsent": unsent,
            }  # fmt: skip
            fresh = insert(WisdomEntry).values(row)
            forgotten = fresh.on_conflict_do_update(
                index_elements=["leader", "section", "key", "version"],
                set_={"body": fresh.excluded.body},
                where=text("excluded.body = '{}' AND wisdom_entries.body <> '{}'"),
            )
            done = tx.session.connection().execute(forgotten)
            new += done.rowcount
        for use in uses:
            counted = insert(WisdomUse).values(
                leader=use.leader, key=use.key, origin=use.origin, uses=use.uses, last_used_at=use.last_used_at,
                unsent=unsent,
            )  # fmt: skip
            larger = counted.on_conflict_do_update(
                index_elements=["leader", "key", "origin"],
                set_={"uses": counted.excluded.uses, "last_used_at": counted.excluded.last_used_at},
                where=counted.excluded.uses > col(WisdomUse.uses),
            )
            new += tx.session.connection().execute(larger).rowcount
        if new:
            tx.after_commit(self.changed)
        return new

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
        new: Sequence[Entry] = (),
    ) -> dict[str, LeaderProfile]:
        """`new` entries count as if they were stored."""
        stored: dict[str, list[Entry]] = {leader: [one for one in new if one.leader == leader] for leader in leaders}
        counted: dict[str, list[Use]] = {leader: [] for leader in leaders}
        for entry in entries(session, leaders):
            stored[entry.leader].append(entry)
        for use in uses(session, leaders):
            counted[use.leader].append(use)
        found = {}
        for one in leaders:
            seed = self._seeds.seed(one)
            seed = replace(seed, decisions=(*decided.get(one, ()), *seed.decisions))
            found[one] = profile_of(seed, stored[one], counted[one])
        return found

    def changed(self) -> None:
        """What leaders say is not what it was: prompts are made anew."""
        self.version += 1


_ENTRIES = sqlalchemy.select(
    col(WisdomEntry.leader), col(WisdomEntry.section), col(WisdomEntry.key), col(WisdomEntry.body),
    col(WisdomEntry.at), col(WisdomEntry.origin), col(WisdomEntry.sources), col(WisdomEntry.version),
)  # fmt: skip
_USES = sqlalchemy.select(
    col(WisdomUse.leader), col(WisdomUse.key), col(WisdomUse.origin), col(WisdomUse.uses), col(WisdomUse.last_used_at)
)


def entries(session: Session, leaders: Sequence[str]) -> list[Entry]:
    """Every version of every item of these leaders."""
    return [_entry(row) for row in session.connection().execute(_ENTRIES.where(col(WisdomEntry.leader).in_(leaders)))]


def uses(session: Session, leaders: Sequence[str]) -> list[Use]:
    """How often patterns of these leaders served, by home."""
    return [Use(*row) for row in session.connection().execute(_USES.where(col(WisdomUse.leader).in_(leaders)))]


def unsent(
    session: Session, synced: Callable[[str], bool] = lambda leader: True, limit: int = 500
) -> tuple[list[Entry], list[Use]]:
    """What the shared leadership has not confirmed of those who are `synced` (SPEC 1.3), at most `limit` of each."""
    connection = session.connection()
    leaders = {
        row[0]
        for table in (WisdomEntry, WisdomUse)
        for row in connection.execute(sqlalchemy.select(col(table.leader)).where(col(table.unsent)).distinct())
    }
    known = [leader for leader in leaders if synced(leader)]
    found = connection.execute(_ENTRIES.where(col(WisdomEntry.unsent), col(WisdomEntry.leader).in_(known)).limit(limit))
    counted = connection.execute(_USES.where(col(WisdomUse.unsent), col(WisdomUse.leader).in_(known)).limit(limit))
    return [_entry(row) for row in found], [Use(*row) for row in counted]


def confirm(tx: Transaction, sent: Sequence[Entry], counted: Sequence[Use]) -> None:
    """The shared leadership has these rows now; a use that was counted further meanwhile stays unsent."""
    connection = tx.session.connection()
    for one in sent:
        connection.execute(
            sqlalchemy.update(WisdomEntry)
            .where(
                col(WisdomEntry.leader) == one.leader, col(WisdomEntry.section) == one.section,
                col(WisdomEntry.key) == one.key, col(WisdomEntry.version) == one.version,
            )
            .values(unsent=False)
        )  # fmt: skip
    for use in counted:
        connection.execute(
            sqlalchemy.update(WisdomUse)
            .where(
                col(WisdomUse.leader) == use.leader, col(WisdomUse.key) == use.key,
                col(WisdomUse.origin) == use.origin, col(WisdomUse.uses) == use.uses,
            )
            .values(unsent=False)
        )  # fmt: skip


def forget_sent(tx: Transaction) -> None:
    """Everything is unsent again."""
    for table in (WisdomEntry, WisdomUse):
        tx.session.connection().execute(sqlalchemy.update(table).values(unsent=True))


def _entry(row: Any) -> Entry:
    leader, section, key, body, at, origin, sources, version = row
    told = tuple(PatternSource(one["learning"], one["agent"], one.get("session", "")) for one in sources)
    return Entry(leader, section, key, body, at, origin, told, version)


def _trust(one: Entry) -> Trust:
    """Whose words a pattern is; those that do not say it are quotes."""
    said = one.body.get(TRUST)
    return Trust(said) if said in list(Trust) else Trust.QUOTED


def _plain(one: Entry) -> list[dict[str, str]]:
    return [{"learning": source.learning, "agent": source.agent, "session": source.session} for source in one.sources]
