"""Plans how entries spread over scopes: promotion through gates (SPEC 6.2 to 6.4), compaction (6.6), and what the
operator's decisions on an entry mean for the entries that depend on it by their `Provenance` (6.5). Pure.

A plan is a list of changes: of entries that are new in a scope, reinforced, merged, retired, or valid again.

- An entry that a scope already has is reinforced there, once for each session, instead of added. So nothing is left
  to plan after a plan was carried out.
- An entry is not promoted if it is retired, needs a review, is about the operator or an agent's own tools, or is a risk
  or an assumption. An entry that the operator retired does not come back.
- Quotes (SPEC 6.8) are counted only together with quotes, and need the operator's approval in the project.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from engine.events.learning import LearningPromoted, LearningReinforced, LearningRetracted, LearningsCompacted
from engine.inference import compute_share
from engine.learning.learnings import FULL_REACH, REACH_WEIGHT, Basis, rate_confidence
from engine.learning.learnings.page import Change, make_change
from engine.learning.learnings.recurrence import DISTINCT_SESSIONS, LoadVectors, find_clusters, find_matches
from engine.learning.learnings.store import GLOBAL, Scope, place_entry
from engine.model import EntrySource, LearningEntry, LearningScope, LearningStatus, RetractReport, Trust
from engine.model.prompts import find_lowest_trust, may_guide

UNAPPROVED = "quoted from sessions, and not approved by you"
"""The reason why a quote in a project or global entry waits for the operator."""

NO_REVIEW: Mapping[str, Any] = {"review": "", "review_causes": (), "review_since": None}
"""The fields of an entry that needs no review."""

VALID_FIELDS = {"status": LearningStatus.ACTIVE, "retired_because": "", **NO_REVIEW}
"""The fields of an entry that is valid, and needs no review."""

SHARED_SCOPES = (LearningScope.PROJECT, LearningScope.GLOBAL)
"""The scopes whose entries other sessions use."""


# -- promotion and compaction


def is_about_own_tools(entry: LearningEntry) -> bool:
    """Whether an entry is about the tools of its agent and not about the project, so that other agents cannot use it.
    An entry about a program that cannot run here is about the project."""
    return entry.about.startswith(("erred/", "refused/")) and not entry.about.startswith("erred/exec/exec")


def explain_why_not_promotable(entry: LearningEntry) -> str:
    """Why an entry cannot be promoted to all projects, in words; "" if it can."""
    if entry.scope is not LearningScope.PROJECT:
        return f"is an entry of the scope {entry.scope.value}; only project entries can be promoted"
    if not entry.is_active:
        return "was retracted" if entry.status is LearningStatus.RETIRED else "was merged into another"
    if entry.review:
        return f"waits for review: {entry.review}"
    return "" if entry.can_be_promoted else "is about the human, or was only assumed"


def plan_project(
    entries: Iterable[LearningEntry],
    existing: Sequence[LearningEntry],
    scope: Scope,
    vectors: LoadVectors,
    now: datetime,
) -> list[Change]:
    """Plan the promotions to a project, whose entries are `existing`. `entries` are those of its sessions and teams.

    Entries with the same words but different types are one entry: the first is promoted, the other reinforces it. A
    quote that says the same as a trusted entry needs no approval of the operator.
    """
    by_id = {entry.id: entry for entry in entries}
    work_by_session = {entry.session_id: entry.work for entry in by_id.values()}
    promotable = [
        entry for entry in by_id.values() if entry.is_settled and entry.session_id and not is_about_own_tools(entry)
    ]
    promoted: dict[str, LearningEntry] = {}
    while new := _promote_recurring(promotable, [*existing, *promoted.values()], scope, vectors, now):
        promoted |= new
    in_project = [*existing, *promoted.values()]
    work_by_match: dict[str, set[str]] = defaultdict(set)
    """The pieces of work that found each entry of the project again. Sessions that continue each other are one."""
    for entry_id, match in find_matches(promotable, in_project, vectors).items():
        work_by_match[match.id].add(by_id[entry_id].work)
    changes = [add_promoted(entry, "recurrence") for entry in promoted.values()]
    for entry in sorted(in_project, key=lambda entry: entry.id):
        counted_work = {work_by_session.get(session, session) for session in entry.source_sessions}
        changes += _plan_reinforcement(entry, work_by_match[entry.id] - counted_work, now)
    return changes


def _promote_recurring(
    promotable: Sequence[LearningEntry],
    existing: Sequence[LearningEntry],
    scope: Scope,
    vectors: LoadVectors,
    now: datetime,
) -> dict[str, LearningEntry]:
    """The promoted entries of the clusters that no existing entry has counted, by id. Of clusters with the same words
    only the first is promoted. The rest of the others may be a cluster of its own when this is called again."""
    counted_ids = {source.entry for entry in existing for source in entry.promoted_from}
    counted_ids |= find_matches(promotable, existing, vectors).keys()
    # A quote that says the same as a trusted entry matches it only if it is compared as if it were trusted.
    as_trusted = [replace(entry, trust=Trust.OPERATOR) for entry in promotable]
    counted_ids |= find_matches(as_trusted, existing, vectors).keys()
    known_ids = {entry.id for entry in existing}
    promoted: dict[str, LearningEntry] = {}
    for cluster in find_clusters((entry for entry in promotable if entry.id not in counted_ids), vectors):
        entry = _promote_cluster(cluster, scope, now)
        if entry.id not in known_ids:
            promoted.setdefault(entry.id, entry)
    return promoted


def plan_global(
    entry: LearningEntry, existing: Sequence[LearningEntry], vectors: LoadVectors, now: datetime, by: str
) -> list[Change]:
    """Plan the promotion of an entry from its project to all projects, whose entries are `existing`."""
    sessions = sorted({*entry.source_sessions, *entry.reinforced_by} - {""})
    match = find_matches([entry], existing, vectors).get(entry.id)
    if match is not None:
        return _plan_reinforcement(match, {*sessions} - match.source_sessions, now)
    promoted = promote_entry(
        entry,
        GLOBAL,
        (EntrySource(entry.id, session) for session in sessions or ("",)),
        now,
        created_at=now,
        reasons=(*entry.reasons, f"it was valid in {entry.workspace or 'a project'}"),
    )
    return [] if any(other.id == promoted.id for other in existing) else [add_promoted(promoted, by)]


def add_promoted(entry: LearningEntry, by: str) -> Change:
    """The change that adds a promoted entry."""
    sources = tuple(dict.fromkeys(source.entry for source in entry.promoted_from))
    sessions = tuple(sorted(entry.source_sessions - {""}))
    event = LearningPromoted(
        subject=entry.id, workspace=entry.workspace, scope=entry.scope.value, sources=sources, sessions=sessions, by=by
    )
    return Change(entry, event=event)


def _plan_reinforcement(entry: LearningEntry, sessions: set[str], now: datetime) -> list[Change]:
    """The reinforcement of an entry by sessions that found it again; nothing if it is not valid, or they are
    counted."""
    new_sessions = tuple(sorted(sessions - set(entry.reinforced_by)))
    if not new_sessions or not entry.is_active or entry.review:
        return []
    sessions_so_far = (*entry.reinforced_by, *new_sessions)
    event = LearningReinforced(subject=entry.id, workspace=entry.workspace, sessions=new_sessions)
    values: dict[str, Any] = {
        "reinforcement_count": entry.reinforcement_count + len(new_sessions),  # it may have been written by hand
        "last_reinforced": now,
        "reinforced_by": sessions_so_far,
    }
    session_count = len(entry.source_sessions.union(sessions_so_far) - {""})
    score = rate_confidence(Basis.REPEATED, session_count)
    if session_count >= DISTINCT_SESSIONS and entry.confidence < score.value:
        values |= {"confidence": score.value, "reasons": (*entry.reasons, *score.reasons)}
    return [make_change(entry, event, **values)]


def promote_entry(
    entry: LearningEntry, scope: Scope, sources: Iterable[EntrySource], at: datetime | None, **changes: Any
) -> LearningEntry:
    """The entry of a higher scope that `entry` becomes when it is promoted from these sources, with these changes."""
    values = {"reinforced_by": (), "reinforcement_count": 0, "last_reinforced": None, **changes}
    return place_entry(replace(entry, promoted_from=tuple(sources), promoted_at=at, **values), scope)


def _promote_cluster(cluster: Sequence[LearningEntry], scope: Scope, now: datetime) -> LearningEntry:
    """The project entry that a cluster becomes. Its sources are the members, except those from which another member was
    promoted."""
    lower_ids = {source.entry for member in cluster for source in member.promoted_from} - {cluster[0].id}
    trust = find_lowest_trust(member.trust for member in cluster)
    waits = not may_guide(trust, approved=False)
    session_count = len({member.work for member in cluster})
    best = max(cluster, key=lambda member: (member.confidence, member.id))
    score = rate_confidence(Basis.REPEATED, session_count)
    weight = max(member.importance for member in cluster)
    return promote_entry(
        cluster[0],
        scope,
        (EntrySource(member.id, member.session_id) for member in cluster if member.id not in lower_ids),
        now,
        confidence=max(score.value, best.confidence),
        importance=round(min(1.0, weight + REACH_WEIGHT * compute_share(session_count, FULL_REACH)), 2),
        reasons=(
            *(best.reasons[:1] if best.confidence > score.value else ()),
            *score.reasons,
            f"the strongest: {weight:.2f}",
            f"it came up in {session_count} sessions",
        ),
        created_at=now,
        session_id="",
        continues="",
        agent="",
        trust=trust,
        approved_at=None,
        review=UNAPPROVED if waits else "",
        review_since=now if waits else None,
    )


def plan_compaction(entries: Iterable[LearningEntry], scope: Scope, vectors: LoadVectors) -> list[Change]:
    """Plan to merge the entries of a scope that are the same (SPEC 6.6). No source and no session is lost; a session
    that reinforced several entries is counted once."""
    plan: list[Change] = []
    for cluster in find_clusters((entry for entry in entries if entry.is_comparable), vectors, min_sessions=1):
        centre, *others = cluster
        if not others:
            continue
        sources = tuple(dict.fromkeys(source for member in cluster for source in member.promoted_from))
        reinforcing = {session for member in cluster for session in member.reinforced_by}
        sessions = tuple(sorted(reinforcing - {source.session for source in sources}))
        event = LearningsCompacted(
            subject=scope.folder,
            workspace=centre.workspace if scope.project else "",
            folded=tuple(other.id for other in others),
            into=(centre.id,) * len(others),
        )
        counted = sum(member.reinforcement_count - len(member.reinforced_by) for member in cluster) + len(sessions)
        values = {
            "promoted_from": sources,
            "reinforced_by": sessions,
            "reinforcement_count": max(len(sessions), counted),
        }
        plan.append(make_change(centre, event, **values, importance=max(member.importance for member in cluster)))
        plan += [make_change(other, status=LearningStatus.COMPACTED, merged_into=centre.id) for other in others]
    return plan


# -- decisions of the operator


class Provenance:
    """The entries of a home by their ids, with their sources and descendants."""

    def __init__(self, entries: Iterable[LearningEntry]) -> None:
        self.entries = {entry.id: entry for entry in entries}
        self._sources = {entry.id: [source.entry for source in entry.promoted_from] for entry in self.entries.values()}
        self._successors: dict[str, list[str]] = defaultdict(list)
        """For the id of each entry, the ids of the entries that were promoted from it or into which it was merged."""
        for entry in self.entries.values():
            for source in self._sources[entry.id]:
                self._successors[source].append(entry.id)
            if entry.merged_into:
                self._successors[entry.id].append(entry.merged_into)

    def find_sources(self, entry_id: str) -> list[str]:
        """The ids of the entries from which an entry was promoted, directly or in steps, nearest first. Some may be in
        no file any more."""
        return _walk(self._sources, entry_id)

    def find_descendants(self, entry_id: str) -> list[str]:
        """The ids of the entries that were promoted from an entry, directly or in steps, nearest first."""
        return _walk(self._successors, entry_id)

    def find(self, ids: Iterable[str]) -> tuple[LearningEntry, ...]:
        """The entries with these ids, without those that are in no file."""
        return tuple(self.entries[entry_id] for entry_id in ids if entry_id in self.entries)

    def find_sessions(self, entry_id: str) -> tuple[str, ...]:
        """The sessions that an entry comes from, sorted."""
        entries = self.find([entry_id, *self.find_sources(entry_id)])
        return tuple(
            sorted({entry.session_id for entry in entries}.union(*(entry.source_sessions for entry in entries)) - {""})
        )


def _walk(graph: Mapping[str, Iterable[str]], start: str) -> list[str]:
    """The ids that are reached from the id `start` by repeated steps, nearest first."""
    reached = [start]
    for entry_id in reached:  # more are added meanwhile
        reached += dict.fromkeys(next_id for next_id in graph.get(entry_id, ()) if next_id not in reached)
    return reached[1:]


def plan_retraction(
    entry: LearningEntry, provenance: Provenance, reason: str, now: datetime
) -> tuple[list[Change], RetractReport]:
    """Plan to retire an entry and its copies. The first change is its own. Entries that depend on it wait for the
    operator's review, and are in no prompt until then."""
    because = reason.strip() or "you retracted it"
    values = VALID_FIELDS | {"status": LearningStatus.RETIRED, "retired_because": because}
    retirements = [make_change(valid, **values) for valid in (entry, *_find_copies(entry, provenance))]
    retired = {change.entry.id: change.entry for change in retirements}
    dependents = _find_dependents(entry, retired, provenance)
    present = provenance.entries | retired
    reviews = [
        _make_review_change(other, [*other.review_causes, entry.id], present, now)
        for other in dependents
        if not other.review or other.review_causes  # else it waits for another reason already
    ]
    report = RetractReport(tuple(retired), tuple(other.id for other in dependents), provenance.find_sessions(entry.id))
    event = LearningRetracted(
        subject=entry.id, workspace=entry.workspace, reason=because, queued=report.queued, sessions=report.sessions
    )
    return [replace(retirements[0], event=event), *retirements[1:], *reviews], report


def plan_reinstatement(entry: LearningEntry, provenance: Provenance, now: datetime, **approval: Any) -> list[Change]:
    """Plan to make an entry valid again, and its copies. The first change is its own, with the fields of the
    operator's approval, which is of its words alone. Entries that waited for review because it was retired do so no
    longer, unless another one on which they depend is still retired."""
    plan = [make_change(entry, **VALID_FIELDS, **approval)]
    plan += [make_change(copy, **VALID_FIELDS) for copy in _find_copies(entry, provenance)]
    present = provenance.entries | {change.entry.id: change.entry for change in plan}
    waiting = (other for other in provenance.entries.values() if entry.id in other.review_causes)
    return plan + [_make_review_change(other, other.review_causes, present, now) for other in waiting]


def _find_copies(entry: LearningEntry, provenance: Provenance) -> list[LearningEntry]:
    """The entries of teams from which an entry of the same session was promoted, and which are as valid as it is."""
    return [
        source
        for source in provenance.find(provenance.find_sources(entry.id))
        if source.session_id == entry.session_id != ""
        and (source.status, source.retired_because) == (entry.status, entry.retired_because)
    ]


def _find_dependents(entry: LearningEntry, retired_ids: Collection[str], provenance: Provenance) -> list[LearningEntry]:
    """The other valid entries that were promoted from a retired one, or have the lesson of `entry` in another
    project or in all projects."""
    promoted_ids = {entry_id for retired_id in retired_ids for entry_id in provenance.find_descendants(retired_id)}
    return [
        other
        for other in provenance.entries.values()
        if (other.id in promoted_ids or (other.lesson == entry.lesson and other.scope in SHARED_SCOPES))
        and other.is_active
        and other.id not in retired_ids
    ]


def _make_review_change(
    other: LearningEntry, cause_ids: Iterable[str], present: Mapping[str, LearningEntry], now: datetime
) -> Change:
    """Let an entry wait for review as long as one of its causes, among the `present` entries, is retired."""
    found = [present[cause_id] for cause_id in dict.fromkeys(cause_ids) if cause_id in present]
    causes = [cause for cause in found if not cause.is_active]
    if not causes:
        return make_change(other, **NO_REVIEW)
    reasons = "; ".join(dict.fromkeys(cause.retired_because for cause in causes))
    return make_change(
        other,
        review=f"its source, or an entry that says the same, was retracted: {reasons}",
        review_causes=tuple(cause.id for cause in causes),
        review_since=other.review_since or now,
    )
