"""Makes entries of findings (SPEC 6.6) and plans how entries spread over scopes: promotion through gates (6.2 to 6.4),
provenance and retraction (6.5).

Findings are written into the team scope, the most specific one. Findings that tests, the operator or repetition confirm
are promoted to the session scope. Risks, assumptions and findings about the operator are written into the session scope
at once. Ids are derived from the text, so a second run makes the same entries.

A plan is a list of changes: entries that are new in a scope, reinforced, merged, or retired. If a scope already has an
entry, it is reinforced instead of added, once for each session. So after a plan was carried out there is nothing left
to plan. An entry is not promoted if it is retired, needs a review, is about the operator or an agent's own tools, or is
a risk or an assumption. An entry that the operator retired does not come back. Quotes (SPEC 6.8) are counted only
together with quotes, and need the operator's approval in the project.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from engine.events import LearningPromoted, LearningReinforced, LearningRetracted, LearningsCompacted
from engine.inference import share
from engine.learning.learnings.findings import (
    FULL_REACH,
    REACH_WEIGHT,
    Basis,
    Finding,
    SessionRecord,
    rate_confidence,
    rate_importance,
)
from engine.learning.learnings.page import Change, get_domain, make_change, make_title
from engine.learning.learnings.recurrence import DISTINCT_SESSIONS, Vectors, find_clusters, find_matches
from engine.learning.learnings.store import GLOBAL, Scope, make_project_key
from engine.model import (
    ChainReport,
    EntrySource,
    LearningEntry,
    LearningKind,
    LearningScope,
    LearningStatus,
    RetractReport,
    Trust,
)
from engine.model.base import find_lowest_trust, hex_hash, may_guide
from engine.model.learnings import UNPROVEN_PHASES, make_lesson_id, normalise
from engine.model.secrets import redact

_REVIEW = "its source, or an entry that says the same, was retracted"
"""Why an entry waits for review after the retraction of others, whose ids follow."""

_RETRACTED_IDS = re.compile(rf"{_REVIEW} \(([^)]+)\):")

UNAPPROVED = "quoted from sessions, and not approved by you"
"""The reason why a quote in a project or global entry waits for the operator."""

VALID = {"status": LearningStatus.ACTIVE, "retired_because": "", "review": "", "review_since": None}
"""The fields of an entry that is valid, and needs no review."""

HIGH_SCOPES = (LearningScope.PROJECT, LearningScope.GLOBAL)


# -- entries of findings

MAX_TEXT_CHARS = 2_000
"""Maximum number of characters of an entry that the engine writes."""

ABOUT_ONE = "about one thing; three tasks must confirm it"
"""The reason why an order of the operator is not general yet (SPEC 6.8)."""


def make_entry(finding: Finding, record: SessionRecord, at: datetime, secrets: Iterable[str]) -> LearningEntry:
    """A finding as an entry of its scope, without secrets and texts that look like one (SPEC 11.1). A risk, an
    assumption and what is about the operator are of the session, others of the team."""
    view = record.view
    session = Scope(make_project_key(view.workspace), view.id)
    stays = finding.phase in UNPROVEN_PHASES or finding.kind is LearningKind.PROXY
    text, about, title = (redact(part, secrets) for part in (finding.text, finding.about, finding.title))
    text = text[:MAX_TEXT_CHARS]
    confidence, importance = rate_confidence(finding.basis), rate_importance(finding.impact)
    validity = () if about or finding.trust is not Trust.OPERATOR else (finding.general or ABOUT_ONE,)
    entry = LearningEntry(
        id="",
        scope=LearningScope.SESSION,
        scope_id="",
        kind=finding.kind,
        type=finding.type,
        domain=get_domain(finding.kind),
        text=text,
        title=title or make_title(text),
        importance=importance.value,
        confidence=confidence.value,
        reasons=(*confidence.reasons, *importance.reasons, *validity),
        phase=finding.phase,
        status=LearningStatus.ACTIVE,
        created_at=at,
        session_id=view.id,
        session_task=record.task_title,
        workspace=view.workspace,
        agent=view.agent,
        about=about,
        continues=record.continues,
        trust=finding.trust,
        lesson=make_lesson_id(text),
    )
    return place_entry(entry, session if stays else replace(session, team=record.leader))


# -- promotion


def is_about_own_tools(entry: LearningEntry) -> bool:
    """Whether an entry is about the tools of its agent and not about the project, so that other agents cannot use it.
    An entry about a program that cannot run here is about the project."""
    return entry.about.startswith(("erred/", "refused/")) and not entry.about.startswith("erred/exec/exec")


def find_obstacle(entry: LearningEntry) -> str:
    """Why an entry cannot be promoted to all projects, in words; "" if it can."""
    if entry.scope is not LearningScope.PROJECT:
        return f"is an entry of the scope {entry.scope.value}; only project entries can be promoted"
    if not entry.active:
        return "was retracted" if entry.status is LearningStatus.RETIRED else "was merged into another"
    if entry.review:
        return f"waits for review: {entry.review}"
    return "" if entry.can_be_promoted else "is about the human, or was only assumed"


def plan_project(
    entries: Iterable[LearningEntry],
    existing: Sequence[LearningEntry],
    scope: Scope,
    vectors: Vectors,
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
    found_work: dict[str, set[str]] = defaultdict(set)
    for id, match in find_matches(promotable, [*existing, *promoted.values()], vectors).items():
        found_work[match.id].add(by_id[id].work)
    changes = [add_promoted(entry, "recurrence") for entry in promoted.values()]
    for entry in sorted([*existing, *promoted.values()], key=lambda entry: entry.id):
        sources = {work_by_session.get(session, session) for session in entry.source_sessions}
        changes += _plan_reinforcement(entry, found_work[entry.id] - sources, now)
    return changes


def _promote_recurring(
    promotable: Sequence[LearningEntry],
    existing: Sequence[LearningEntry],
    scope: Scope,
    vectors: Vectors,
    now: datetime,
) -> dict[str, LearningEntry]:
    """The promoted entries of the clusters that no existing entry has counted, by id. Of clusters with the same words
    only the first is promoted. The rest of the others may be a cluster of its own when this is called again."""
    as_trusted = [replace(entry, trust=Trust.OPERATOR) for entry in promotable]
    counted_ids = {source.entry for entry in existing for source in entry.promoted_from}
    counted_ids |= (
        find_matches(promotable, existing, vectors).keys() | find_matches(as_trusted, existing, vectors).keys()
    )
    known_ids = {entry.id for entry in existing}
    promoted: dict[str, LearningEntry] = {}
    for cluster in find_clusters((entry for entry in promotable if entry.id not in counted_ids), vectors):
        entry = _promote_cluster(cluster, scope, now)
        if entry.id not in known_ids:
            promoted.setdefault(entry.id, entry)
    return promoted


def plan_global(
    entry: LearningEntry, existing: Sequence[LearningEntry], vectors: Vectors, now: datetime, by: str
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
    if not new_sessions or not entry.active or entry.review:
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


def place_entry(entry: LearningEntry, scope: Scope) -> LearningEntry:
    """An entry in a scope. Its id is derived from the scope and its content, so that a second run writes nothing. A
    quote has another id than a trusted entry with the same text; an entry of a team that of its session."""
    within = f"{scope.session}/{scope.team}" if scope.team else scope.id
    identity = f"{scope.level.value}\n{within}\n{entry.kind.value}\n{entry.about or normalise(entry.text)}"
    id = "lrn_" + hex_hash(identity + ("\nquoted" if entry.trust is Trust.QUOTED else ""), 16)
    return replace(entry, id=id, scope=scope.level, scope_id=scope.id, path=scope.page(entry.kind, id))


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
        importance=round(min(1.0, weight + REACH_WEIGHT * share(session_count, FULL_REACH)), 2),
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
        approved_by="",
        approved_at=None,
        review=UNAPPROVED if waits else "",
        review_since=now if waits else None,
    )


def plan_compaction(entries: Iterable[LearningEntry], scope: Scope, vectors: Vectors) -> list[Change]:
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


# -- provenance, and what a run of the chain changed


class Provenance:
    """The entries of a home by their ids, with their sources and descendants."""

    def __init__(self, entries: Iterable[LearningEntry]) -> None:
        self.entries = {entry.id: entry for entry in entries}
        self._sources = {entry.id: [source.entry for source in entry.promoted_from] for entry in self.entries.values()}
        self._became: dict[str, list[str]] = defaultdict(list)
        """For the id of each entry, the ids of the entries that were promoted from it or into which it was merged."""
        for entry in self.entries.values():
            for source in self._sources[entry.id]:
                self._became[source].append(entry.id)
            if entry.merged_into:
                self._became[entry.id].append(entry.merged_into)

    def find_sources(self, id: str) -> list[str]:
        """The ids of the entries from which an entry was promoted, directly or in steps, nearest first. Some may be in
        no file any more."""
        return _walk(self._sources, id)

    def find_descendants(self, id: str) -> list[str]:
        """The ids of the entries that were promoted from an entry, directly or in steps, nearest first."""
        return _walk(self._became, id)

    def find(self, ids: Iterable[str]) -> tuple[LearningEntry, ...]:
        """The entries with these ids, without those that are in no file."""
        return tuple(self.entries[id] for id in ids if id in self.entries)

    def find_sessions(self, id: str) -> tuple[str, ...]:
        """The sessions that an entry comes from, sorted."""
        entries = self.find([id, *self.find_sources(id)])
        return tuple(
            sorted({entry.session_id for entry in entries}.union(*(entry.source_sessions for entry in entries)) - {""})
        )


def make_report(
    before: Sequence[LearningEntry], after: Sequence[LearningEntry], judged: Mapping[str, str], errors: Sequence[str]
) -> ChainReport:
    """The report of a run, from the entries of a home before and after it."""
    former = {entry.id: entry for entry in before}
    changed = [(entry, former.get(entry.id)) for entry in after if former.get(entry.id) != entry]
    high = [(entry, old) for entry, old in changed if entry.scope in HIGH_SCOPES]
    return ChainReport(
        extracted=Counter(entry.session_id for entry, old in changed if not old and entry.scope not in HIGH_SCOPES),
        promoted=tuple(entry.id for entry, old in high if not old),
        reinforced=tuple(entry.id for entry, old in high if old and entry.last_reinforced != old.last_reinforced),
        compacted=tuple(
            entry.id for entry, old in changed if entry.merged_into and (old is None or not old.merged_into)
        ),
        judged=judged,
        faults=tuple(errors),
    )


def _walk(graph: Mapping[str, Iterable[str]], start: str) -> list[str]:
    """The ids that are reached from `start` by repeated steps, nearest first."""
    reached = [start]
    for id in reached:  # more are added meanwhile
        reached += dict.fromkeys(next_id for next_id in graph.get(id, ()) if next_id not in reached)
    return reached[1:]


# -- decisions of the operator


def plan_retraction(
    entry: LearningEntry, provenance: Provenance, reason: str, now: datetime
) -> tuple[list[Change], RetractReport]:
    """Plan the retraction of an entry: see `plan_decision`. Entries that were promoted from it, or have its lesson in
    another project, wait for the operator's review, and are in no prompt until then."""
    because = reason.strip() or "you retracted it"
    plan = plan_decision(entry, provenance, VALID | {"status": LearningStatus.RETIRED, "retired_because": because}, now)
    retired, queued = (
        tuple(change.entry.id for change in plan if change.entry.active is is_queued) for is_queued in (False, True)
    )
    report = RetractReport(retired, queued, provenance.find_sessions(entry.id))
    event = LearningRetracted(
        subject=entry.id, workspace=entry.workspace, reason=because, queued=queued, sessions=report.sessions
    )
    return [replace(plan[0], event=event), *plan[1:]], report


def plan_decision(
    entry: LearningEntry, provenance: Provenance, values: Mapping[str, Any], now: datetime
) -> list[Change]:
    """Plan to give an entry values that retire it or make it valid. The first change is its own. Its copies in teams
    that are as valid as it is get the values of `VALID`, too. Entries that depend on it wait for review as long as it,
    or another one on which they depend, is retired."""
    copies = [
        source
        for source in provenance.find(provenance.find_sources(entry.id))
        if source.session_id == entry.session_id != ""
        and (source.status, source.retired_because) == (entry.status, entry.retired_because)
    ]
    of_copies = {key: values[key] for key in VALID}  # the operator approved the words of the entry alone
    plan = [make_change(entry, **values), *(make_change(copy, **of_copies) for copy in copies)]
    present = provenance.entries | {change.entry.id: change.entry for change in plan}
    dependent = {id for change in plan for id in provenance.find_descendants(change.entry.id)}
    is_valid = present[entry.id].active
    for other in provenance.entries.values():
        named = _RETRACTED_IDS.match(other.review)
        ids = named[1].split(", ") if named else []
        has_lesson = other.lesson == entry.lesson and other.scope in HIGH_SCOPES
        is_queued = (other.id in dependent or has_lesson) and other.active and present[other.id] is other
        if not is_valid and is_queued and other.review and not ids:
            plan.append(make_change(other, review=other.review))  # it waits for another reason, and is in the report
        elif entry.id in ids if is_valid else is_queued:
            causes = [
                cause for id in dict.fromkeys([*ids, entry.id]) if (cause := present.get(id)) and not cause.active
            ]
            reasons = dict.fromkeys(cause.retired_because for cause in causes)
            review = f"{_REVIEW} ({', '.join(cause.id for cause in causes)}): {'; '.join(reasons)}" if causes else ""
            plan.append(make_change(other, review=review, review_since=(other.review_since or now) if causes else None))
    return plan
