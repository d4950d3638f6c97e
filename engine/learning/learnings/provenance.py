"""Where entries come from and what became of them (SPEC 6.5), and how an entry is retracted with its lesson."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from engine.events import LearningRetracted
from engine.learning.learnings.entries import format_time
from engine.learning.learnings.recurrence import comparison_key
from engine.learning.learnings.store import Change
from engine.model import LearningEntry, LearningScope, LearningStatus, RetractReport
from engine.storage import state
from engine.storage.database import Database, Transaction

RETRACTED = "learnings.retracted"
"""Key in the state table: the ids of the lessons that the operator retracted."""


@dataclass(slots=True)
class Provenance:
    """The entries of a home by their ids, with their sources and descendants."""

    entries: Mapping[str, LearningEntry]
    became: Mapping[str, list[str]]
    """For the id of each entry, the ids of the entries that were promoted from it or into which it was merged."""

    @classmethod
    def trace(cls, entries: Iterable[LearningEntry]) -> Provenance:
        """The provenance of all entries of a home."""
        by_id = {item.id: item for item in entries}
        became: dict[str, list[str]] = defaultdict(list)
        for entry in by_id.values():
            for source in entry.promoted_from:
                became[source.entry].append(entry.id)
            if entry.merged_into:
                became[entry.id].append(entry.merged_into)
        return cls(by_id, became)

    def sources(self, entry: LearningEntry) -> tuple[list[LearningEntry], list[str]]:
        """(entries from which an entry was promoted, directly or in steps, nearest first; ids of those that are in no
        file)."""
        return self._walk(entry.id, lambda id: [source.entry for source in self.entries[id].promoted_from])

    def descendants(self, entry: str) -> list[LearningEntry]:
        """The entries promoted from an entry, directly or in steps, the nearest first."""
        return self._walk(entry, lambda id: self.became.get(id, ()))[0]

    def sessions(self, entry: LearningEntry) -> tuple[str, ...]:
        """The sessions that an entry comes from, sorted."""
        entries = [entry, *self.sources(entry)[0]]
        named = {entry.session_id for entry in entries} | {
            source.session for entry in entries for source in entry.promoted_from
        }
        return tuple(sorted(named - {""}))

    def _walk(self, start: str, step: Callable[[str], Iterable[str]]) -> tuple[list[LearningEntry], list[str]]:
        reached: dict[str, LearningEntry] = {}
        missing: dict[str, None] = {}
        frontier = [start]
        while frontier:
            names = dict.fromkeys(name for id in frontier for name in step(id))
            frontier = [name for name in names if name in self.entries and name not in reached and name != start]
            missing |= dict.fromkeys(name for name in names if name not in self.entries)
            reached |= {name: self.entries[name] for name in frontier}
        return list(reached.values()), list(missing)


def plan_retraction(
    entry: LearningEntry, provenance: Provenance, reason: str, now: datetime
) -> tuple[list[Change], LearningRetracted, RetractReport]:
    """Plan the retraction of an entry. The entry is retired; if it is that of a session, so is the same entry of the
    team. Entries that were promoted from it, or have its lesson in another project, need the operator's review, and are
    in no prompt until then."""
    same = [
        source
        for source in provenance.sources(entry)[0]
        if entry.scope is LearningScope.SESSION
        and source.active
        and source.session_id == entry.session_id
        and comparison_key(source) == comparison_key(entry)
    ]
    retired = [entry, *same]
    retired_ids = {entry.id for entry in retired}
    above = {entry.id: entry for retired_entry in retired for entry in provenance.descendants(retired_entry.id)}
    high = (LearningScope.PROJECT, LearningScope.GLOBAL)
    above |= {
        other.id: other for other in provenance.entries.values() if other.lesson == entry.lesson and other.scope in high
    }
    queued = [entry for entry in above.values() if entry.active and entry.id not in retired_ids]
    because = reason.strip() or "you retracted it"
    ended = {"status": LearningStatus.RETIRED.value, "retired_because": because, "review": "", "review_since": ""}
    review = f"its source, or an entry that says the same, was retracted ({entry.id}): {because}"
    changes = [Change(entry.path, entry.id, ended) for entry in retired]
    changes += [
        Change(entry.path, entry.id, {"review": review, "review_since": format_time(now)})
        for entry in queued
        if not entry.review
    ]
    sessions, ids = provenance.sessions(entry), tuple(entry.id for entry in queued)
    event = LearningRetracted(
        subject=entry.id, workspace=entry.workspace, reason=because, queued=ids, sessions=sessions
    )
    return changes, event, RetractReport(tuple(entry.id for entry in retired), ids, sessions)


def retracted_lessons(database: Database) -> frozenset[str]:
    """The lessons that the operator retracted."""
    with database.read() as session:
        return frozenset(state.get(session, RETRACTED, ()))


def mark_retracted(database: Database, lesson: str, *, is_valid: bool) -> None:
    """Store that a lesson is retracted, or that it `is_valid` again."""

    def update(tx: Transaction) -> None:
        others = set(state.get(tx.session, RETRACTED, ())) - {lesson}
        state.put(tx, RETRACTED, sorted(others if is_valid else {*others, lesson}))

    database.write(update)
