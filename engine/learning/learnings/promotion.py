"""Plans how entries spread over scopes: promotion through gates (SPEC 6.2 to 6.4), provenance and retraction (6.5).

A plan says which entries are promoted to their project or to all projects, which are reinforced, and which are retired.
If a scope already has an entry, it is reinforced instead of added, once for each session. So after a plan was carried
out there is nothing left to plan. An entry is not promoted if it is retired, needs a review, is about the operator or
an agent's own tools, or is a risk or an assumption. An entry that the operator retired does not come back. Quotes (SPEC
6.8) are counted only together with quotes, and need the operator's approval in the project.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from engine.events import Event, LearningPromoted, LearningReinforced, LearningRetracted
from engine.frozen import frozen
from engine.learning.learnings.findings import (
    CONFIDENCE_BY_BASIS,
    ERRED,
    FULL_REACH,
    IN_FLIGHT,
    PROSPECTIVE,
    REACH_WEIGHT,
    REFUSED,
    Basis,
    rate_confidence,
)
from engine.learning.learnings.page import Value, format_sources, format_time
from engine.learning.learnings.recurrence import Cluster, Vectors, find_clusters, find_matches, make_comparison_key
from engine.learning.learnings.store import GLOBAL, Change, Scope, add_entry
from engine.model import EntrySource, LearningEntry, LearningKind, LearningScope, LearningStatus, RetractReport, Trust
from engine.model.base import find_lowest_trust, hex_hash, may_guide
from engine.model.learnings import normalise
from engine.statistics import share
from engine.storage import state
from engine.storage.database import Database, Transaction

_REVIEW = "its source, or an entry that says the same, was retracted"
"""Why an entry waits for review after the retraction of others, whose ids follow."""

_RETRACTED_IDS = re.compile(rf"{_REVIEW} \(([^)]+)\):")

REPEATED_CONFIDENCE = CONFIDENCE_BY_BASIS[Basis.REPEATED][0]
"""The confidence of an entry that several sessions observed."""

MIN_SESSIONS = 3
"""Minimum number of sessions before a single observation counts as repeated."""

RETRACTED = "learnings.retracted"
"""Key in the state table: the ids of the lessons that the operator retracted."""

UNAPPROVED = "quoted from sessions, and not approved by you"
"""The reason why a quote in a project or global entry waits for the operator."""


# -- plans


def is_about_own_tools(entry: LearningEntry) -> bool:
    """Whether an entry is about the tools of its agent and not about the project, so that other agents cannot use it.
    An entry about a program that cannot run here is about the project."""
    return entry.about.startswith((ERRED, REFUSED)) and not entry.about.startswith(f"{ERRED}exec/exec")


class Reinforcement(NamedTuple):
    """An entry, and the ids of the sessions that reinforce it."""

    entry: LearningEntry
    sessions: tuple[str, ...]


@frozen
class PromotionPlan:
    """The entries of a scope that are new, and those that new sessions reinforce."""

    promoted: tuple[LearningEntry, ...] = ()
    reinforced: tuple[Reinforcement, ...] = ()

    @property
    def entries(self) -> list[LearningEntry]:
        """All entries that it promotes or reinforces."""
        return [*self.promoted, *(reinforcement.entry for reinforcement in self.reinforced)]

    def changes(self, now: datetime) -> list[Change]:
        """The changes of the pages."""
        changes = [add_entry(entry) for entry in self.promoted]
        for entry, sessions in self.reinforced:
            sessions_so_far = [*entry.reinforced_by, *sessions]
            fields: dict[str, Value] = {
                "reinforcement_count": entry.reinforcement_count + len(sessions),
                "last_reinforced": format_time(now),
                "reinforced_by": sessions_so_far,
            }
            session_count = len(set(sessions_so_far) | {source.session for source in entry.promoted_from})
            if entry.confidence < REPEATED_CONFIDENCE and session_count >= MIN_SESSIONS:
                score = rate_confidence(Basis.SINGLE, session_count)
                fields |= {"confidence": score.value, "reasons": [*entry.reasons, *score.reasons]}
            changes.append(Change(entry.path, entry.id, fields))
        return changes

    def events(self, by: str) -> list[Event]:
        """The events of the promotion."""
        events: list[Event] = [
            LearningPromoted(
                subject=entry.id,
                workspace=entry.workspace,
                scope=entry.scope.value,
                sources=tuple(dict.fromkeys(source.entry for source in entry.promoted_from)),
                sessions=tuple(sorted({source.session for source in entry.promoted_from} - {""})),
                by=by,
            )
            for entry in self.promoted
        ]
        return events + [
            LearningReinforced(subject=entry.id, workspace=entry.workspace, sessions=sessions)
            for entry, sessions in self.reinforced
        ]


def is_promotable(entry: LearningEntry) -> bool:
    """Whether an entry may be promoted or used in a prompt."""
    return _is_comparable(entry) and entry.phase not in (PROSPECTIVE, IN_FLIGHT)


def _is_comparable(entry: LearningEntry) -> bool:
    """Whether an entry is valid and may be compared with others. Those about the operator are not (SPEC 6.3)."""
    return entry.active and not entry.review and entry.kind is not LearningKind.PROXY and bool(entry.text.strip())


def plan_project(
    entries: Iterable[LearningEntry],
    project_entries: Iterable[LearningEntry],
    scope: Scope,
    vectors: Vectors,
    now: datetime,
) -> PromotionPlan:
    """Plan the promotions to a project. `entries` are those of its sessions and teams."""
    entries = list(entries)
    promotable = [
        entry for entry in entries if is_promotable(entry) and entry.session_id and not is_about_own_tools(entry)
    ]
    existing = [entry for entry in project_entries if entry.kind is not LearningKind.PROXY]
    promoted = _promote_recurring(promotable, existing, scope, vectors, now)
    work_by_session = {entry.session_id: entry.work for entry in entries}
    return PromotionPlan(
        tuple(promoted), _find_reinforced(promotable, [*existing, *promoted], vectors, work_by_session)
    )


def _promote_recurring(
    promotable: Sequence[LearningEntry],
    existing: Sequence[LearningEntry],
    scope: Scope,
    vectors: Vectors,
    now: datetime,
) -> list[LearningEntry]:
    """The project entries that clusters of entries become, without those that match an existing entry. Entries with the
    same words but different types are one entry: the first is promoted, the other reinforces it."""
    source_ids = {source.entry for entry in existing for source in entry.promoted_from}
    matched = _match_entries(promotable, existing, vectors) | _match_quotes(promotable, existing, vectors)
    unmatched = [entry for entry in promotable if entry.id not in matched and entry.id not in source_ids]
    promoted = [_promote_cluster(cluster, scope, now) for cluster in find_clusters(unmatched, vectors)]
    first_by_id = {entry.id: entry for entry in reversed([*existing, *promoted])}
    return [entry for entry in promoted if first_by_id[entry.id] is entry]


def plan_global(
    entry: LearningEntry, global_entries: Sequence[LearningEntry], vectors: Vectors, now: datetime
) -> PromotionPlan:
    """Plan the promotion of an entry from its project to all projects."""
    sessions = sorted(_collect_counted_sessions(entry) - {""})
    comparable = [other for other in global_entries if other.kind is not LearningKind.PROXY]
    existing = _match_entries([entry], comparable, vectors).get(entry.id)
    if existing is not None:
        new_sessions = tuple(session for session in sessions if session not in _collect_counted_sessions(existing))
        if not new_sessions or not existing.active or existing.review:
            return PromotionPlan()
        return PromotionPlan(reinforced=(Reinforcement(existing, new_sessions),))
    above = make_promoted_entry(
        entry,
        GLOBAL,
        (EntrySource(entry.id, session) for session in sessions or ("",)),
        now,
        created_at=now,
        reasons=(*entry.reasons, f"it was valid in {entry.workspace or 'a project'}"),
    )
    return PromotionPlan(() if any(other.id == above.id for other in global_entries) else (above,))


def _collect_counted_sessions(entry: LearningEntry) -> set[str]:
    """The sessions that an entry was promoted from, and those that reinforced it."""
    return {source.session for source in entry.promoted_from} | set(entry.reinforced_by)


# -- duplicates


def find_duplicates(entries: Iterable[LearningEntry], vectors: Vectors) -> list[Cluster]:
    """Clusters of entries of one scope that are the same (SPEC 6.6)."""
    clusters = find_clusters(filter(_is_comparable, entries), vectors, min_sessions=1)
    return [cluster for cluster in clusters if len(cluster.members) > 1]


def merge_duplicates(cluster: Cluster) -> list[Change]:
    """The changes that merge a cluster into its centre. No source and no session is lost; a session that reinforced
    several members is counted once."""
    centre, other_members = cluster.members[0], cluster.members[1:]
    sources = list(dict.fromkeys(source for member in cluster.members for source in member.promoted_from))
    source_sessions = {source.session for source in sources}
    reinforcing_sessions = [session for member in cluster.members for session in member.reinforced_by]
    sessions = [session for session in dict.fromkeys(reinforcing_sessions) if session not in source_sessions]
    counted = sum(member.reinforcement_count for member in cluster.members) - (
        len(reinforcing_sessions) - len(sessions)
    )
    fields: dict[str, Value] = {
        "promoted_from": format_sources(tuple(sources)),
        "reinforced_by": sessions,
        "reinforcement_count": max(len(sessions), counted),  # a count may have been written by hand
        "importance": max(member.importance for member in cluster.members),
    }
    merged: dict[str, Value] = {"status": LearningStatus.COMPACTED.value, "merged_into": centre.id}
    return [Change(centre.path, centre.id, fields), *(Change(other.path, other.id, merged) for other in other_members)]


# -- promoted entries


def make_entry_id(scope: LearningScope, scope_id: str, kind: LearningKind, about: str, text: str, trust: Trust) -> str:
    """The id of an entry, derived from its scope and content, so that a second run writes nothing. A quote has another
    id than a trusted entry with the same text."""
    identity = f"{scope.value}\n{scope_id}\n{kind.value}\n{about or normalise(text)}"
    identity += "\nquoted" if trust is Trust.QUOTED else ""
    return "lrn_" + hex_hash(identity, 16)


def make_promoted_entry(
    entry: LearningEntry, scope: Scope, sources: Iterable[EntrySource], at: datetime, **changes: Any
) -> LearningEntry:
    """The entry of a higher scope that `entry` becomes when it is promoted from these sources, with these changes."""
    above = replace(entry, **changes)
    id = make_entry_id(scope.level, scope.id, above.kind, above.about, above.text, above.trust)
    return replace(
        above,
        id=id,
        scope=scope.level,
        scope_id=scope.id,
        path=scope.page(above.kind, id),
        promoted_from=tuple(sources),
        promoted_at=at,
        reinforced_by=(),
        reinforcement_count=0,
        last_reinforced=None,
    )


def _promote_cluster(cluster: Cluster, scope: Scope, now: datetime) -> LearningEntry:
    """The project entry that a cluster becomes. Its sources are the members, except those from which another member was
    promoted."""
    centre = cluster.centre
    lower_ids = {source.entry for member in cluster.members for source in member.promoted_from}
    sources = [member for member in cluster.members if member.id not in lower_ids or member is centre]
    trust = find_lowest_trust(member.trust for member in cluster.members)
    waits = not may_guide(trust, approved=False)
    session_count = len(cluster.sessions)
    best = max(cluster.members, key=lambda member: (member.confidence, member.id))
    repeated = rate_confidence(Basis.SINGLE, session_count)
    value, reasons = repeated.value, repeated.reasons
    if best.confidence > value:
        value, reasons = best.confidence, (*best.reasons[:1], *reasons)
    weight = max(member.importance for member in cluster.members)
    return make_promoted_entry(
        centre,
        scope,
        (EntrySource(member.id, member.session_id) for member in sources),
        now,
        confidence=value,
        importance=round(min(1.0, weight + REACH_WEIGHT * share(session_count, FULL_REACH)), 2),
        reasons=(*reasons, f"the strongest: {weight:.2f}", f"it came up in {session_count} sessions"),
        created_at=now,
        session_id="",
        continues="",
        agent="",
        trust=trust,
        approved_by="",
        approved_at=None,
        review=UNAPPROVED if waits else "",
        review_since=now if waits else None,
    )


def _match_quotes(
    entries: Sequence[LearningEntry], existing: Sequence[LearningEntry], vectors: Vectors
) -> dict[str, LearningEntry]:
    """The matches of quotes with trusted entries. Such quotes need no approval of the operator."""
    quotes = [entry for entry in entries if entry.trust is Trust.QUOTED]
    trusted = [replace(entry, trust=Trust.QUOTED) for entry in existing if entry.may_guide]
    return _match_entries(quotes, trusted, vectors)


def _match_entries(
    entries: Sequence[LearningEntry], existing: Iterable[LearningEntry], vectors: Vectors
) -> dict[str, LearningEntry]:
    """The existing entry that is the same as an entry, by the id of the latter. It has the same lesson, even if the
    operator edited its text, or the same meaning."""
    candidates = [entry for entry in existing if entry.status is not LearningStatus.COMPACTED]
    lessons = {
        (entry.lesson, entry.trust is Trust.QUOTED): entry
        for entry in reversed(candidates)
        if entry.lesson and not entry.about
    }
    by_lesson = {
        entry.id: lessons.get((entry.lesson, entry.trust is Trust.QUOTED)) for entry in entries if not entry.about
    }
    matched = {id: entry for id, entry in by_lesson.items() if entry is not None}
    return matched | find_matches([entry for entry in entries if entry.id not in matched], candidates, vectors)


def _find_reinforced(
    entries: Sequence[LearningEntry],
    existing: Sequence[LearningEntry],
    vectors: Vectors,
    work_by_session: Mapping[str, str],
) -> tuple[Reinforcement, ...]:
    """The existing entries that `entries` match, each with the sessions that are not counted yet."""
    work_by_id = {entry.id: entry.work for entry in entries}
    matching_work: dict[str, set[str]] = defaultdict(set)
    for id, match in _match_entries(entries, existing, vectors).items():
        matching_work[match.id].add(work_by_id[id])
    reinforced = []
    for entry in sorted(existing, key=lambda entry: entry.id):
        source_work = {work_by_session.get(source.session, source.session) for source in entry.promoted_from}
        new_work = matching_work[entry.id] - source_work - set(entry.reinforced_by)
        if new_work and entry.active and not entry.review:
            reinforced.append(Reinforcement(entry, tuple(sorted(new_work))))
    return tuple(reinforced)


# -- provenance and retraction


@frozen
class Provenance:
    """The entries of a home by their ids, with their sources and descendants."""

    entries: Mapping[str, LearningEntry]
    became: Mapping[str, list[str]]
    """For the id of each entry, the ids of the entries that were promoted from it or into which it was merged."""

    @classmethod
    def trace(cls, entries: Iterable[LearningEntry]) -> Provenance:
        """The provenance of all entries of a home."""
        by_id = {entry.id: entry for entry in entries}
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

    def descendants(self, entry: LearningEntry) -> list[LearningEntry]:
        """The entries promoted from an entry, directly or in steps, the nearest first."""
        return self._walk(entry.id, lambda id: self.became.get(id, ()))[0]

    def sessions(self, entry: LearningEntry) -> tuple[str, ...]:
        """The sessions that an entry comes from, sorted."""
        entries = [entry, *self.sources(entry)[0]]
        session_ids = {entry.session_id for entry in entries} | {
            source.session for entry in entries for source in entry.promoted_from
        }
        return tuple(sorted(session_ids - {""}))

    def _walk(self, start: str, step: Callable[[str], Iterable[str]]) -> tuple[list[LearningEntry], list[str]]:
        """(entries reached from `start` by repeated steps, nearest first; ids that are in no file)."""
        reached: dict[str, LearningEntry] = {}
        missing: dict[str, None] = {}
        waiting = deque([start])
        while waiting:
            for id in step(waiting.popleft()):
                if id not in self.entries:
                    missing[id] = None
                elif id not in reached and id != start:
                    reached[id] = self.entries[id]
                    waiting.append(id)
        return list(reached.values()), list(missing)


def plan_retraction(
    entry: LearningEntry, provenance: Provenance, reason: str, now: datetime
) -> tuple[list[Change], LearningRetracted, RetractReport]:
    """Plan the retraction of an entry. The entry is retired; if it is that of a session, so is the same entry of the
    team. Entries that were promoted from it, or have its lesson in another project, need the operator's review, and are
    in no prompt until then."""
    retired = [entry, *_find_same_in_teams(entry, provenance)]
    retired_ids = {entry.id for entry in retired}
    dependent = _find_dependent(entry, retired, provenance)
    queued = [entry for entry in dependent if entry.active and entry.id not in retired_ids]
    because = reason.strip() or "you retracted it"
    ended = {"status": LearningStatus.RETIRED.value, "retired_because": because, "review": "", "review_since": ""}
    changes = [Change(entry.path, entry.id, ended) for entry in retired]
    for other in queued:
        earlier = _find_retracted(other, provenance)
        if earlier or not other.review:
            review = _describe_retracted([*earlier, replace(entry, retired_because=because)])
            since = format_time(other.review_since or now)
            changes.append(Change(other.path, other.id, {"review": review, "review_since": since}))
    sessions, ids = provenance.sessions(entry), tuple(entry.id for entry in queued)
    event = LearningRetracted(
        subject=entry.id, workspace=entry.workspace, reason=because, queued=ids, sessions=sessions
    )
    return changes, event, RetractReport(tuple(entry.id for entry in retired), ids, sessions)


def plan_revival(entry: LearningEntry, provenance: Provenance) -> list[Change]:
    """Plan the end of what the retraction of `entry` did to others: entries of teams are valid again, and entries that
    wait for review only because of it no longer do. Nothing if `entry` was not retracted."""
    if entry.active:
        return []
    valid = {"status": LearningStatus.ACTIVE.value, "retired_because": ""}
    changes = [Change(other.path, other.id, valid) for other in _find_same_in_teams(entry, provenance)]
    for other in provenance.entries.values():
        retracted = _find_retracted(other, provenance)
        if entry in retracted:
            retracted.remove(entry)
            review = {"review": _describe_retracted(retracted)} if retracted else {"review": "", "review_since": ""}
            changes.append(Change(other.path, other.id, review))
    return changes


def _find_retracted(entry: LearningEntry, provenance: Provenance) -> list[LearningEntry]:
    """The retracted entries because of which an entry waits for review."""
    named = _RETRACTED_IDS.match(entry.review)
    sources = map(provenance.entries.get, named[1].split(", ") if named else ())
    return [source for source in sources if source and not source.active]


def _describe_retracted(retracted: Sequence[LearningEntry]) -> str:
    """The reason of a review, with the ids and the reasons of the retracted entries."""
    reasons = dict.fromkeys(entry.retired_because for entry in retracted)
    return f"{_REVIEW} ({', '.join(entry.id for entry in retracted)}): {'; '.join(reasons)}"


def _find_same_in_teams(entry: LearningEntry, provenance: Provenance) -> list[LearningEntry]:
    """The entries of teams that are the same as an entry of their session, and are active as it is, or were retracted
    with it. They were promoted to it."""
    if entry.scope is not LearningScope.SESSION:
        return []
    return [
        source
        for source in provenance.sources(entry)[0]
        if (source.status, source.retired_because) == (entry.status, entry.retired_because)
        and source.session_id == entry.session_id
        and make_comparison_key(source) == make_comparison_key(entry)
    ]


def _find_dependent(
    entry: LearningEntry, retired: Sequence[LearningEntry], provenance: Provenance
) -> list[LearningEntry]:
    """The entries that were promoted from a retired one, and those of projects with the lesson of `entry`."""
    dependent = {above.id: above for source in retired for above in provenance.descendants(source)}
    high = (LearningScope.PROJECT, LearningScope.GLOBAL)
    for other in provenance.entries.values():
        if other.lesson == entry.lesson and other.scope in high:
            dependent[other.id] = other
    return list(dependent.values())


def read_retracted_lessons(database: Database) -> frozenset[str]:
    """The lessons that the operator retracted."""
    with database.read() as session:
        return frozenset(state.get(session, RETRACTED, ()))


def mark_retracted(database: Database, lesson: str, *, is_valid: bool) -> None:
    """Store that a lesson is retracted, or that it `is_valid` again."""

    def update(tx: Transaction) -> None:
        other_lessons = set(state.get(tx.session, RETRACTED, ())) - {lesson}
        state.put(tx, RETRACTED, sorted(other_lessons if is_valid else {*other_lessons, lesson}))

    database.write(update)
