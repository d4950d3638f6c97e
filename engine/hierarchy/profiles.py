"""The profiles of leaders (SPEC 1.9): they begin as `soul.md`, the operator edits them, and findings extend them.

`profile_text` reads souls and edited texts, and `profile_rows` merges what is stored. `guidance` and `teaching` read
profiles, `bubbles` adds findings to them, and the operator's edits come from the console and from `clawpy profile`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sqlmodel import Session

from engine.events.learning import ProfileEdited
from engine.files import FileCache
from engine.frozen import group_pairs
from engine.hierarchy.agents import Agents
from engine.hierarchy.profile_rows import PatternUse, ProfileEntry, ProfileRow, merge_profile
from engine.hierarchy.profile_text import format_profile, make_inverse, normalise_edit, parse_edits, seed_profile
from engine.lessons import make_lesson_id
from engine.model import LeaderProfile, PatternSource, ProfileEdit, ProfileItem, Refusal, Trust
from engine.model.prompts import find_lowest_trust
from engine.randomness import Randomness
from engine.storage import ask, load_all, read_all, state
from engine.storage.database import Database, Transaction
from engine.storage.erasing import SearchTerms

LoadDecisions = Callable[[Sequence[str]], Mapping[str, Sequence[ProfileItem]]]
"""Reads the captured decisions of leaders, by leader."""

ORIGIN_KEY = "hierarchy.origin"
"""Key in the state table: the name of this home in shared rows."""

UNDO_KEY_PREFIX = "hierarchy.undo."
"""Prefix of a key in the state table, followed by a leader's id. Its value are the edits that undo the last one."""

_OF_LEADERS = "WHERE leader IN (SELECT value FROM json_each(:leaders))"
_SELECT_USES = f"SELECT leader, key, sum(uses) FROM pattern_uses {_OF_LEADERS} GROUP BY leader, key"
"""Selects (leader, key, uses) of the patterns of some leaders, by all homes."""

VERSION_STEP = timedelta(microseconds=1)
"""The difference between two versions that are written at the same instant."""


class Profiles:
    """The profiles of one home. A profile has three layers, of which a later one replaces items of an earlier one:

    1. the lists of the leader's `soul.md`,
    2. the decisions that were captured in sessions,
    3. the newest stored version of each item: from the operator, from a finding, or from another machine.

    `read`, `read_all`, `read_within` and `preview` return profiles. All that is written are versions of items: by
    `edit` and `undo` for the operator, `add_version` for a finding, `merge_rows` for other machines, and
    `remove_lesson` and `erase` for what must no longer be there. The profiles are also a store of texts that can be
    forgotten (see `engine.memory.forget.ErasableStore`). `generation` grows with each change of a profile, not with
    uses. Thread-safe.
    """

    name = "profiles"

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
            self.origin: str = state.get(session, ORIGIN_KEY, "")
            """The name of this home in shared rows."""
        if not self.origin:
            self.origin = randomness.new_id("home")
            database.write(lambda tx: state.put(tx, ORIGIN_KEY, self.origin))

    def read(self, leader: str) -> LeaderProfile:
        """The profile of one leader. Raises `Refusal`: `unknown_agent`, `unreadable_file` for its soul."""
        self._agents.read_soul(leader)
        return self.read_all([leader])[leader]

    def read_all(self, leaders: Sequence[str]) -> dict[str, LeaderProfile]:
        """The profiles of `leaders`, by leader. A soul that cannot be read counts as empty."""
        with self._database.read() as session:
            return self.read_within(session, leaders)

    def read_within(
        self, session: Session, leaders: Sequence[str], new: Sequence[ProfileEntry] = ()
    ) -> dict[str, LeaderProfile]:
        """The profiles of leaders as a session sees them. `new` entries count as if they were stored."""
        values = {"leaders": leaders}
        stored = read_all(session, ProfileEntry, _OF_LEADERS, values)
        entries = group_pairs((entry.leader, entry) for entry in (*stored, *new))
        uses = {(leader, key): number for leader, key, number in ask(session, _SELECT_USES, values)}
        decisions = self._load_decisions(leaders)
        profiles = {}
        for leader in leaders:
            seed = self._read_seed(leader)
            seed = replace(seed, decisions=(*decisions.get(leader, ()), *seed.decisions))
            profiles[leader] = merge_profile(seed, entries.get(leader, ()), uses)
        return profiles

    def preview(self, leader: str, edits: Sequence[ProfileEdit]) -> LeaderProfile:
        """The profile after these edits, without storing them. Raises `Refusal` as `edit`."""
        self._agents.read_soul(leader)
        at = datetime.max.replace(tzinfo=UTC)  # newer than all stored versions
        changes = self._normalise(leader, edits)
        new_entries = [self._make_entry(leader, change, at) for change in changes]
        with self._database.read() as session:
            return self.read_within(session, [leader], new_entries)[leader]

    def format_text(self, profile: LeaderProfile) -> str:
        """A profile as a text to edit, under the headings of `soul.md`. This method and `parse_edits` are here for the
        console, which uses services alone and imports nothing of this package."""
        return format_profile(profile)

    def parse_edits(self, before: LeaderProfile, text: str) -> tuple[ProfileEdit, ...]:
        """The edits that turn a profile into an edited text of it. Raises `Refusal` as `profile_text.parse_edits`."""
        return parse_edits(before, text)

    def edit(self, leader: str, edits: Sequence[ProfileEdit]) -> LeaderProfile:
        """Make the operator's edits, all or none. Raises `Refusal`: `unknown_agent`, `bad_section`, `bad_profile`."""
        return self._make_edits(leader, edits, can_be_undone=True)

    def undo(self, leader: str) -> LeaderProfile:
        """Undo the last edit. Raises `Refusal`: `unknown_agent`, `nothing_to_undo`."""
        self._agents.get(leader)
        with self._database.read() as session:
            last_edit: Sequence[Sequence[str]] = state.get(session, f"{UNDO_KEY_PREFIX}{leader}")
        if not last_edit:
            raise Refusal(
                "nothing_to_undo",
                f"nothing to undo: no save of the guidance from {leader}",
                "only the last save can be undone, and only once",
            )
        return self._make_edits(leader, [ProfileEdit(*edit) for edit in last_edit], can_be_undone=False)

    def remove_lesson(self, lesson: str) -> bool:
        """Remove the patterns with this lesson from all profiles. Returns whether there were any."""

        def remove(tx: Transaction) -> bool:
            leaders = [leader for (leader,) in ask(tx.session, "SELECT DISTINCT leader FROM profile_entries")]
            patterns = [
                (leader, pattern.key)
                for leader, profile in self.read_within(tx.session, leaders).items()
                for pattern in profile.patterns
                if lesson in (pattern.key, make_lesson_id(pattern.text))
            ]
            for leader, key in patterns:
                self._add_edit(tx, leader, ProfileEdit("patterns", (), key))
            return bool(patterns)

        return self._database.write(remove)

    def add_version(
        self,
        tx: Transaction,
        leader: str,
        change: ProfileEdit,
        *,
        trust: Trust = Trust.OPERATOR,
        sources: tuple[PatternSource, ...] = (),
    ) -> None:
        """Store a normalised change of an item as a version that is newer than all stored ones. If it has the texts of
        an older version, it has the lower trust of both, because words are no more certain when they come again."""
        entry = self._make_entry(leader, change, tx.now)
        entry.trust, entry.sources = trust, sources
        for version in _load_versions(tx, leader, change.section, change.key):
            entry.at = max(entry.at, version.at + VERSION_STEP)
            if version.texts == entry.texts:
                entry.trust = find_lowest_trust((entry.trust, version.trust))
        self.merge_rows(tx, [entry])

    def merge_rows(self, tx: Transaction, rows: Iterable[ProfileRow]) -> None:
        """Add rows from this home or from the shared database. A row that exists already is replaced by one of a higher
        rank. Versions that are older than one with which words were forgotten are emptied."""
        items: set[tuple[str, str, str]] = set()
        for row in rows:
            stored = tx.session.get(type(row), row.identity)
            if stored is None or row.rank > stored.rank:
                tx.session.merge(row)
                if isinstance(row, ProfileEntry):
                    items.add((row.leader, row.section, row.key))
        for item in items:
            since_forgotten = itertools.dropwhile(lambda version: not version.forgotten, _load_versions(tx, *item))
            for version in itertools.islice(since_forgotten, 1, None):
                if version.texts:
                    version.texts, version.sent_to = (), ""
        tx.after_commit(self.bump_generation)

    def record_uses(self, tx: Transaction, keys: Iterable[tuple[str, str]]) -> None:
        """Count a use of patterns (leader, key)."""
        for leader, key in keys:
            fresh = PatternUse(leader=leader, key=key, origin=self.origin)
            use = tx.session.get(PatternUse, fresh.identity) or fresh
            use.uses, use.sent_to = use.uses + 1, ""
            tx.session.add(use)

    # -- what is forgotten (SPEC 4.10)

    def find(self, terms: SearchTerms, /) -> Iterator[tuple[str, str]]:
        """The name and the text of each version of an item with one of the terms."""
        with self._database.read() as session:
            for row in _select_matching_entries(session, terms):
                yield "/".join(filter(None, (row.leader, row.section, row.key))), " · ".join(row.texts)

    def erase(self, terms: SearchTerms, /) -> int:
        """Empty the versions with these terms here and, with the next exchange, on other machines; returns their
        number. If the version that counts is among them, a newer one has the other texts of a list, or removes the
        item. Older versions that another machine made meanwhile are emptied when they come."""

        def empty_versions(tx: Transaction) -> int:
            rows = _select_matching_entries(tx.session, terms)
            for row in rows:
                is_newest = _load_versions(tx, row.leader, row.section, row.key)[0] is row
                remaining = tuple(text for text in row.texts if not terms.match(text))
                row.texts, row.sent_to = (), ""
                if is_newest:
                    self.add_version(tx, row.leader, ProfileEdit(row.section, remaining, row.key))
                newest = _load_versions(tx, row.leader, row.section, row.key)[0]
                newest.forgotten, newest.sent_to = True, ""
            for leader, edits in state.get_all(tx.session, UNDO_KEY_PREFIX).items():
                kept = [edit for edit in edits if not any(map(terms.match, _list_texts(edit[1])))]
                if kept != edits:
                    state.put(tx, f"{UNDO_KEY_PREFIX}{leader}", kept)
            tx.after_commit(self.bump_generation)  # even without rows: captured decisions may be erased
            return len(rows)

        return self._database.write(empty_versions)

    def bump_generation(self) -> None:
        """Count a change of profiles, so that cached guidance is rendered again."""
        self.generation += 1

    def _read_seed(self, leader: str) -> LeaderProfile:
        """The profile in a leader's `soul.md`, cached until the file changes; empty if it cannot be read."""
        try:
            file = self._agents.locate_soul(leader)
            return self._souls.get(leader, (file,), lambda: seed_profile(leader, self._agents.read_soul(leader)))
        except Refusal:
            return LeaderProfile(leader)

    def _normalise(self, leader: str, edits: Iterable[ProfileEdit]) -> list[ProfileEdit]:
        """Edits as they are stored. Raises as `normalise_edit`."""
        seed = self._read_seed(leader)
        return [normalise_edit(seed, edit) for edit in edits]

    def _make_edits(self, leader: str, edits: Sequence[ProfileEdit], *, can_be_undone: bool) -> LeaderProfile:
        """Store edits, and the edits that undo them."""
        self._agents.read_soul(leader)
        changes = self._normalise(leader, edits)
        decisions = self._load_decisions([leader]).get(leader, ())
        captured: dict[tuple[str, tuple[str, ...]], Trust] = {
            (item.key, (item.text,)): item.trust for item in decisions
        }

        def store(tx: Transaction) -> None:
            before = self.read_within(tx.session, [leader])[leader]
            undo = [make_inverse(before, change) for change in changes if can_be_undone]
            for change in changes:
                # The words of a captured decision that an undo brings back have the trust that they had.
                trust = captured.get((change.key, tuple(change.value)), Trust.OPERATOR)
                self._add_edit(tx, leader, change, trust)
            state.put(tx, f"{UNDO_KEY_PREFIX}{leader}", [[edit.section, edit.value, edit.key] for edit in undo])

        self._database.write(store)
        return self.read(leader)

    def _add_edit(self, tx: Transaction, leader: str, change: ProfileEdit, trust: Trust = Trust.OPERATOR) -> None:
        """Store what a normalised edit of the operator changes, and record the event."""
        self.add_version(tx, leader, change, trust=trust)
        tx.record(ProfileEdited(subject=leader, section=change.section, key=change.key))

    def _make_entry(self, leader: str, change: ProfileEdit, at: datetime) -> ProfileEntry:
        key, texts = change.key, tuple(change.value)
        return ProfileEntry(leader=leader, section=change.section, key=key, at=at, origin=self.origin, texts=texts)


def _load_versions(tx: Transaction, leader: str, section: str, key: str) -> list[ProfileEntry]:
    """All versions of an item, newest first."""
    clauses = "WHERE leader = :leader AND section = :section AND key = :key ORDER BY at DESC, origin DESC"
    return load_all(tx.session, ProfileEntry, clauses, {"leader": leader, "section": section, "key": key})


def _list_texts(value: str | Sequence[str]) -> Sequence[str]:
    return (value,) if isinstance(value, str) else value


def _select_matching_entries(session: Session, terms: SearchTerms) -> list[ProfileEntry]:
    """All versions of items with matching words."""
    return [row for row in load_all(session, ProfileEntry, "") if any(map(terms.match, row.texts))]
