"""From an entry to those that it came from and to those that came from it (SPEC 6.5). Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from engine.values import LearningEntry


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
        found: dict[str, LearningEntry] = {}
        gone: dict[str, None] = {}
        reach = [entry]
        while reach:
            names = [source.entry for one in reach for source in one.promoted_from]
            reach = []
            for name in dict.fromkeys(names):
                source = self.entries.get(name)
                if source is None:
                    gone[name] = None
                elif name not in found and name != entry.id:
                    found[name] = source
                    reach.append(source)
        return list(found.values()), list(gone)

    def descendants(self, entry: str) -> list[LearningEntry]:
        """What was promoted from an entry, directly or in steps, the nearest first."""
        found: dict[str, LearningEntry] = {}
        reach = [entry]
        while reach:
            names = [name for one in reach for name in self.became.get(one, ())]
            reach = [name for name in dict.fromkeys(names) if name not in found and name != entry]
            found |= {name: self.entries[name] for name in reach if name in self.entries}
            reach = [name for name in reach if name in self.entries]
        return list(found.values())

    def sessions(self, entry: LearningEntry) -> tuple[str, ...]:
        """The sessions that an entry is owed to, sorted."""
        sources, _ = self.sources(entry)
        every = [entry, *sources]
        named = {one.session_id for one in every} | {source.session for one in every for source in one.promoted_from}
        return tuple(sorted(named - {""}))
