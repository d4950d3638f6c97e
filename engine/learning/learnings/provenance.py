"""From an entry to those that it came from and to those that came from it, and what retracting it does (SPEC 6.5).
Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from engine.events import LearningRetracted
from engine.learning.learnings.entries import stamp
from engine.learning.learnings.sameness import kin
from engine.learning.learnings.store import Change
from engine.model import LearningEntry, LearningScope, LearningStatus, RetractReport


@dataclass(slots=True)
class Provenance:
    """The entries of a home by their ids, and the arrows between them, in both directions."""

    entries: Mapping[str, LearningEntry]
    became: Mapping[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, entries: Iterable[LearningEntry]) -> Provenance:
        by_id = {one.id: one for one in entries}
        became: dict[str, list[str]] = defaultdict(list)
        for one in by_id.values():
            for source in one.promoted_from:
                became[source.entry].append(one.id)
            if one.merged_into:
                became[one.id].append(one.merged_into)
        return cls(by_id, became)

    def sources(self, entry: LearningEntry) -> tuple[list[LearningEntry], list[str]]:
        """What an entry was promoted from, directly or in steps, the nearest first; and the ids that are in no file."""
        return self._walk(entry.id, lambda one: [source.entry for source in self.entries[one].promoted_from])

    def descendants(self, entry: str) -> list[LearningEntry]:
        """What was promoted from an entry, directly or in steps, the nearest first."""
        return self._walk(entry, lambda one: self.became.get(one, ()))[0]

    def sessions(self, entry: LearningEntry) -> tuple[str, ...]:
        """The sessions that an entry is owed to, sorted."""
        every = [entry, *self.sources(entry)[0]]
        named = {one.session_id for one in every} | {source.session for one in every for source in one.promoted_from}
        return tuple(sorted(named - {""}))

    def _walk(self, start: str, step: Callable[[str], Iterable[str]]) -> tuple[list[LearningEntry], list[str]]:
        found: dict[str, LearningEntry] = {}
        gone: dict[str, None] = {}
        reach = [start]
        while reach:
            names = dict.fromkeys(name for one in reach for name in step(one))
            reach = [name for name in names if name in self.entries and name not in found and name != start]
            gone |= dict.fromkeys(name for name in names if name not in self.entries)
            found |= {name: self.entries[name] for name in reach}
        return list(found.values()), list(gone)


def retraction(
    entry: LearningEntry, known: Provenance, reason: str, now: datetime
) -> tuple[list[Change], LearningRetracted, RetractReport]:
    """What retracting an entry changes: it is retired, and with the entry of a session the same words of its team;
    whatever was promoted from it, or says the same in another project, waits for the operator's word, and guides nobody
    meanwhile."""
    same = [
        one
        for one in known.sources(entry)[0]
        if entry.scope is LearningScope.SESSION
        and one.active
        and one.session_id == entry.session_id
        and kin(one) == kin(entry)
    ]
    retired = [entry, *same]
    names = {one.id for one in retired}
    after = {one.id: one for gone in retired for one in known.descendants(gone.id)}
    high = (LearningScope.PROJECT, LearningScope.GLOBAL)
    after |= {one.id: one for one in known.entries.values() if one.lesson == entry.lesson and one.scope in high}
    queued = [one for one in after.values() if one.active and one.id not in names]
    because = reason.strip() or "you retracted it"
    ended = {"status": LearningStatus.RETIRED.value, "retired_because": because, "review": "", "review_since": ""}
    waits = f"its source, or an entry that says the same, was retracted ({entry.id}): {because}"
    changes = [Change(one.path, one.id, ended) for one in retired]
    changes += [
        Change(one.path, one.id, {"review": waits, "review_since": stamp(now)}) for one in queued if not one.review
    ]
    sessions, ids = known.sessions(entry), tuple(one.id for one in queued)
    told = LearningRetracted(subject=entry.id, workspace=entry.workspace, reason=because, queued=ids, sessions=sessions)
    return changes, told, RetractReport(tuple(one.id for one in retired), ids, sessions)
