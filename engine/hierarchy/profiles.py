"""The profiles of leaders (SPEC 1.9): they begin as `soul.md`, the operator edits them, and findings extend them.

Rows are only added. A change of an item is a new version, a removal is an empty version, and the newest version counts.
The uses of patterns are counted separately for each home. So two homes that exchange rows in any order, any number of
times, get the same profiles.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy
from sqlalchemy import ColumnElement
from sqlalchemy.dialects.sqlite import insert
from sqlmodel import Session, col, func, select

from engine.events import ProfileEdited
from engine.files import FileCache
from engine.frozen import frozen
from engine.hierarchy.agents import Agents
from engine.hierarchy.profile_items import (
    LIST_SECTIONS,
    NAMED_ITEM,
    PROFILE_SECTIONS,
    TRUST_KEY,
    PatternUse,
    ProfileEntry,
    clean_item,
    find_newest_time,
    format_profile,
    make_entry,
    make_slug,
    match_item,
    merge_profile,
    parse_edits,
    seed_profile,
    select_newest,
)
from engine.model import (
    LeaderDecision,
    LeaderProfile,
    PatternSource,
    PatternVersion,
    ProfileEdit,
    Randomness,
    Refusal,
    Trust,
)
from engine.model.learnings import make_lesson_id
from engine.storage import state
from engine.storage.database import Database, Transaction
from engine.storage.erasing import SearchTerms, json_contains
from engine.storage.rows import table_of

LoadDecisions = Callable[[Sequence[str]], Mapping[str, Sequence[LeaderDecision]]]
"""Reads the captured decisions of leaders, by leader."""

ORIGIN = "hierarchy.origin"
"""Key in the state table: the name of this home in shared rows."""

LAST_EDIT = "hierarchy.saved."
"""Prefix of a key in the state table, followed by a leader's id. Its value is (section, key, version before) of each
item that the last edit changed. It has no texts, so that forgotten words do not stay in it."""

MICROSECOND = timedelta(microseconds=1)
"""The difference between two versions that are written at the same instant."""


class Profiles:
    """The profiles of one home. `generation` grows with each change of a profile, not with uses. Thread-safe."""

    def __init__(
        self,
        database: Database,
        agents: Agents,
        *,
        randomness: Randomness,
        load_decisions: LoadDecisions,
    ) -> None:
        """`load_decisions` reads the captured decisions of leaders (SPEC 4.4)."""
        self._database = database
        self._agents = agents
        self._souls: FileCache[LeaderProfile] = FileCache()
        self._load_decisions = load_decisions
        self.generation = 0
        with database.read() as session:
            self.origin: str = state.get(session, ORIGIN, "")
            """The name of this home in shared rows."""
        if not self.origin:
            self.origin = randomness.new_id("home")
            database.write(lambda tx: state.put(tx, ORIGIN, self.origin))

    def load(self, leaders: Sequence[str]) -> dict[str, LeaderProfile]:
        """The profiles of `leaders`."""
        decisions = self._load_decisions(leaders)
        with self._database.read() as session:
            return self._read_profiles(session, leaders, decisions)

    def get(self, leader: str) -> LeaderProfile:
        """The profile of one leader. Raises `Refusal`: `unknown_agent`, `unreadable_file` for its soul."""
        self._agents.soul(leader)
        return self.load([leader])[leader]

    def format(self, profile: LeaderProfile) -> str:
        """A profile as a text to edit, under the headings of `soul.md`. This method and `parse_edits` are here for the
        console, which uses services alone and imports nothing of this package."""
        return format_profile(profile)

    def parse_edits(self, before: LeaderProfile, text: str) -> tuple[ProfileEdit, ...]:
        """The edits that turn a profile into an edited text of it. Raises `Refusal` `bad_profile` for an unknown
        heading, and for text below no heading."""
        return parse_edits(before, text)

    def history(self, leader: str, key: str) -> list[PatternVersion]:
        """All versions of a pattern, newest first."""
        with self._database.read() as session:
            query = select(ProfileEntry).where(*match_item(leader, "patterns", key))
            entries = sorted(session.exec(query), key=lambda entry: (entry.at, entry.version), reverse=True)
        return [
            PatternVersion(entry.key, entry.text, entry.at, entry.origin, number == 0, entry.findings)
            for number, entry in enumerate(entries)
        ]

    def edit(self, leader: str, edits: Sequence[ProfileEdit]) -> LeaderProfile:
        """Make the operator's edits, all or none. Raises `Refusal`: `unknown_agent`, `bad_section`, `bad_profile`."""
        changes = self._make_changes(self.get(leader), edits)

        def store_edits(tx: Transaction) -> None:
            current = select_newest(tx.session.exec(select(ProfileEntry).where(ProfileEntry.leader == leader)))
            before = {(change.section, change.key): current.get((change.section, change.key)) for change in changes}
            versions = [[*item, entry.version if entry else ""] for item, entry in before.items()]
            state.put(tx, f"{LAST_EDIT}{leader}", versions)
            for change in changes:
                self.write(tx, leader, change.section, change.key, change.body, is_edit=True)

        self._database.write(store_edits)
        return self.get(leader)

    def undo(self, leader: str) -> LeaderProfile:
        """Undo the last edit. Raises `Refusal`: `unknown_agent`, `nothing_to_undo`."""
        self._agents.get(leader)
        seed = self._seed(leader)

        def restore(tx: Transaction) -> None:
            last_edit: list[list[str]] = state.get(tx.session, f"{LAST_EDIT}{leader}", [])
            if not last_edit:
                raise Refusal(
                    "nothing_to_undo",
                    f"nothing to undo: no save of the guidance from {leader}",
                    "only the last save can be undone, and only once",
                )
            stored = tx.session.exec(select(ProfileEntry).where(ProfileEntry.leader == leader))
            entries = {(entry.section, entry.key, entry.version): entry for entry in stored}
            for section, key, version in last_edit:
                before = entries.get((section, key, version))
                body = before.body if before else _make_text_body(_find_text(seed, section, key))
                self.write(tx, leader, section, key, body, before.findings if before else (), is_edit=True)
            state.put(tx, f"{LAST_EDIT}{leader}", [])

        self._database.write(restore)
        return self.get(leader)

    def preview(self, leader: str, edits: Sequence[ProfileEdit]) -> LeaderProfile:
        """The profile after these edits, without storing them. Raises `Refusal` as `edit`."""
        profile = self.get(leader)
        at = datetime.max.replace(tzinfo=UTC)  # newer than all stored versions
        new_entries = [
            make_entry(leader, change.section, change.key, change.body, at, self.origin)
            for change in self._make_changes(profile, edits)
        ]
        decisions = self._load_decisions([leader])
        with self._database.read() as session:
            return self._read_profiles(session, [leader], decisions, new_entries)[leader]

    def _seed(self, leader: str) -> LeaderProfile:
        """The profile in a leader's `soul.md`, cached until the file changes; empty if it cannot be read."""
        try:
            file = self._agents.locate_soul(leader)
            return self._souls.get(leader, (file,), lambda: seed_profile(leader, self._agents.soul(leader)))
        except Refusal:
            return LeaderProfile(leader)

    def _make_changes(self, profile: LeaderProfile, edits: Sequence[ProfileEdit]) -> list[_ItemChange]:
        """The changes that edits make to a profile. Raises as `_change_of`."""
        seed = self._seed(profile.leader)
        return [_change_of(profile, seed, edit) for edit in edits]

    def drop(self, lesson: str) -> list[str]:
        """Remove the patterns with this lesson from all profiles; returns the leaders that had one."""
        with self._database.read() as session:
            leaders = session.exec(
                select(ProfileEntry.leader).where(ProfileEntry.section == "patterns").distinct()
            ).all()
        patterns = [
            (leader, pattern.key)
            for leader, profile in self.load(leaders).items()
            for pattern in profile.patterns
            if lesson in (pattern.key, make_lesson_id(pattern.text))
        ]

        def remove(tx: Transaction) -> None:
            for leader, key in patterns:
                self.write(tx, leader, "patterns", key, {}, is_edit=True)

        if patterns:
            self._database.write(remove)
        return sorted({leader for leader, _ in patterns})

    def write(
        self,
        tx: Transaction,
        leader: str,
        section: str,
        key: str,
        body: Mapping[str, Any],
        sources: tuple[PatternSource, ...] = (),
        *,
        is_edit: bool = False,
    ) -> None:
        """Write a new version of an item, newer than all stored ones. An edit of the operator is also recorded."""
        newest_at = find_newest_time(tx.session, leader, section, key)
        at = tx.now if newest_at is None else max(tx.now, newest_at + MICROSECOND)
        self.merge_rows(tx, [make_entry(leader, section, key, body, at, self.origin, sources)], unsent=True)
        if is_edit:
            tx.record(ProfileEdited(subject=leader, section=section, key=key))

    def merge_rows(
        self, tx: Transaction, entries: Sequence[ProfileEntry], uses: Sequence[PatternUse] = (), *, unsent: bool
    ) -> None:
        """Add rows from this home (`unsent`) or from the shared database. A row that exists already changes only in two
        cases: an entry that was forgotten elsewhere loses its words here, and the larger number of uses is kept."""
        new_entry, new_use = insert(ProfileEntry).excluded, insert(PatternUse).excluded
        is_forgotten = (new_entry.body == {}) & (col(ProfileEntry.body) != {})
        has_more_uses = new_use.uses > PatternUse.uses
        changed_rows = sum(_merge_row(tx, entry, ["body"], is_forgotten, unsent) for entry in entries)
        changed_rows += sum(_merge_row(tx, use, ["uses", "last_used_at"], has_more_uses, unsent) for use in uses)
        if changed_rows:
            tx.after_commit(self.bump_generation)

    def record_uses(self, tx: Transaction, keys: Iterable[tuple[str, str]]) -> None:
        """Count a use of patterns (leader, key)."""
        for leader, key in keys:
            fresh = insert(PatternUse).values(
                leader=leader, key=key, origin=self.origin, uses=1, last_used_at=tx.now, unsent=True
            )
            tx.session.connection().execute(
                fresh.on_conflict_do_update(
                    index_elements=["leader", "key", "origin"],
                    set_={"uses": PatternUse.uses + 1, "last_used_at": fresh.excluded.last_used_at, "unsent": True},
                )
            )

    def load_in_transaction(self, tx: Transaction, leader: str) -> LeaderProfile:
        """The profile as the transaction sees it, without captured decisions."""
        tx.session.flush()
        return self._read_profiles(tx.session, [leader], {})[leader]

    def _read_profiles(
        self,
        session: Session,
        leaders: Sequence[str],
        decisions: Mapping[str, Sequence[LeaderDecision]],
        new: Sequence[ProfileEntry] = (),
    ) -> dict[str, LeaderProfile]:
        """The profiles of leaders, with these captured decisions. `new` entries count as if they were stored."""
        entries = [*new, *session.exec(select(ProfileEntry).where(col(ProfileEntry.leader).in_(leaders)))]
        counts = select(PatternUse.leader, PatternUse.key, func.sum(PatternUse.uses), func.max(PatternUse.last_used_at))
        counts = counts.where(col(PatternUse.leader).in_(leaders)).group_by(PatternUse.leader, PatternUse.key)
        uses = {(leader, key): (number, last_used) for leader, key, number, last_used in session.exec(counts)}
        profiles = {}
        for leader in leaders:
            seed = self._seed(leader)
            seed = replace(seed, decisions=(*decisions.get(leader, ()), *seed.decisions))
            profiles[leader] = merge_profile(seed, [entry for entry in entries if entry.leader == leader], uses)
        return profiles

    def bump_generation(self) -> None:
        """Count a change of profiles, so that cached guidance is rendered again."""
        self.generation += 1


class ProfileTexts:
    """Finds and erases words in all versions of profile items (SPEC 4.10); see `engine.memory.forget.ErasableStore`."""

    name = "profiles"

    def __init__(self, database: Database, profiles: Profiles) -> None:
        self._database = database
        self._profiles = profiles

    def find(self, query: SearchTerms, /) -> Iterator[tuple[str, str]]:
        """(name, text) of each version that matches."""
        with self._database.read() as session:
            for row in _select_matching_entries(session, query):
                name = "/".join(part for part in (row.leader, row.section, row.key) if part)
                yield name, row.text or " · ".join(map(str, row.body.get("items", ())))

    def erase(self, query: SearchTerms, /) -> int:
        """Remove the matching texts; returns the number of versions. If the newest version of an item matches, a newer
        version without the text is added, so that other machines remove it too."""

        def empty_entries(tx: Transaction) -> int:
            rows = _select_matching_entries(tx.session, query)
            newest_by_item = {(row.leader, row.section, row.key): row for row in sorted(rows, key=lambda row: row.at)}
            for row in rows:
                condition = *match_item(row.leader, row.section, row.key), col(ProfileEntry.version) == row.version
                emptied = sqlalchemy.update(ProfileEntry).where(*condition)
                tx.session.connection().execute(emptied.values(body={}, unsent=True))
            for (leader, section, key), row in newest_by_item.items():
                if row.at == find_newest_time(tx.session, leader, section, key):
                    self._profiles.write(tx, leader, section, key, _make_remaining_body(row.body, query))
            tx.after_commit(self._profiles.bump_generation)  # even without rows: captured decisions may be erased
            return len(rows)

        return self._database.write(empty_entries)


def _select_matching_entries(session: Session, query: SearchTerms) -> list[ProfileEntry]:
    """All versions of items with matching words."""
    return [row for row in session.exec(select(ProfileEntry)) if json_contains(json.dumps(row.body), query)]


def _make_remaining_body(body: Mapping[str, Any], query: SearchTerms) -> dict[str, Any]:
    """The body without matching words: the items of a list that do not match, or an empty body for a text."""
    remaining = [item for item in body.get("items", ()) if not query.match(str(item))]
    return {"items": remaining} if remaining else {}


def _merge_row(
    tx: Transaction,
    row: ProfileEntry | PatternUse,
    changed: Sequence[str],
    condition: ColumnElement[bool],
    unsent: bool,
) -> int:
    """Add a row, or replace the `changed` columns of the stored one if the condition holds. Returns the number of rows
    that were written."""
    table = type(row)
    statement = insert(table).values({**row.model_dump(), "unsent": unsent})
    keys = [column.name for column in table_of(table).primary_key]
    update = {name: statement.excluded[name] for name in changed}
    merged = statement.on_conflict_do_update(index_elements=keys, set_=update, where=condition)
    return tx.session.connection().execute(merged).rowcount


@frozen
class _ItemChange:
    """The section, key and body of the version that an edit makes."""

    section: str
    key: str
    body: dict[str, Any]


def _change_of(profile: LeaderProfile, seed: LeaderProfile, edit: ProfileEdit) -> _ItemChange:
    """The change that an edit makes to a profile, which began as `seed`. Raises `Refusal`: `bad_section`,
    `bad_profile`."""
    section, key = edit.section, edit.key
    if section not in PROFILE_SECTIONS:
        raise Refusal("bad_section", f"a profile has no {section}", "one of " + ", ".join(PROFILE_SECTIONS))
    if section in LIST_SECTIONS:
        return _ItemChange(section, "", _list_body(section, edit.value, getattr(seed, section)))
    if not isinstance(edit.value, str):
        raise Refusal("bad_profile", f"{section} must be a string", "write one string")
    line = clean_item(edit.value)
    if section == "domain":
        return _ItemChange(section, "", _make_text_body(line if line != seed.domain else ""))
    if key:
        is_new_pattern = section == "patterns" and key not in {pattern.key for pattern in profile.patterns}
        return _ItemChange(section, make_slug(key) if is_new_pattern else key, _make_text_body(line))
    if not line:
        raise Refusal("bad_profile", f"which of the {section}?", "give its key, or a new text")
    named_pattern = NAMED_ITEM.match(line) if section == "patterns" else None
    if named_pattern:
        return _ItemChange(section, make_slug(named_pattern[1]), _make_text_body(named_pattern[2]))
    return _ItemChange(section, make_lesson_id(line), _make_text_body(line))


def _find_text(profile: LeaderProfile, section: str, key: str) -> str:
    """The text of a pattern or decision of a profile, "" for none."""
    if section == "patterns":
        return next((pattern.text for pattern in profile.patterns if pattern.key == key), "")
    if section == "decisions":
        return next((decision.text for decision in profile.decisions if decision.id == key), "")
    return ""


def _list_body(section: str, value: str | tuple[str, ...], seed: tuple[str, ...]) -> dict[str, Any]:
    """The body of a list; empty if it is that of `soul.md`, or has no items."""
    if isinstance(value, str):
        raise Refusal("bad_profile", f"{section} must be a list of strings", "write one string per item")
    items = tuple(line for line in map(clean_item, value) if line)
    return {"items": [*items]} if items and items != seed else {}


def _make_text_body(text: str) -> dict[str, Any]:
    """The body of a text in the operator's words; empty for "", which removes the item."""
    return {"text": text, TRUST_KEY: Trust.OPERATOR.value} if text else {}
