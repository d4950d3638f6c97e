"""What is disproved holds no longer, and nothing that was promoted from it goes on unlooked at (SPEC 6.5). Pure."""

from __future__ import annotations

from datetime import datetime

from engine.events import LearningRetracted
from engine.learnings.entries import stamp
from engine.learnings.provenance import Provenance
from engine.learnings.sameness import kin
from engine.learnings.store import Change
from engine.values import LearningEntry, LearningScope, LearningStatus, RetractReport


def retraction(
    entry: LearningEntry, known: Provenance, reason: str, now: datetime
) -> tuple[list[Change], LearningRetracted, RetractReport]:
    """What retracting an entry changes: it is retired, and with the entry of a session the same words of its team;
    whatever was promoted from it and holds still waits for the operator's word."""
    sources, _ = known.sources(entry)
    same = [
        one
        for one in sources
        if entry.scope is LearningScope.SESSION
        and one.active
        and one.session_id == entry.session_id
        and kin(one) == kin(entry)
    ]
    retired = [entry, *same]
    names = {one.id for one in retired}
    after = {one.id: one for gone in retired for one in known.descendants(gone.id)}
    queued = [one for one in after.values() if one.active and one.id not in names]
    because = reason.strip() or "the operator retracted it"
    changes = [
        Change(
            one.path,
            one.id,
            {"status": LearningStatus.RETIRED.value, "retired_because": because, "review": "", "review_since": ""},
        )
        for one in retired
    ]
    waits = f"{entry.id} was retracted, which it was promoted from: {because}"
    changes += [
        Change(one.path, one.id, {"review": waits, "review_since": stamp(now)}) for one in queued if not one.review
    ]
    sessions = known.sessions(entry)
    ids = tuple(one.id for one in queued)
    told = LearningRetracted(subject=entry.id, workspace=entry.workspace, reason=because, queued=ids, sessions=sessions)
    return changes, told, RetractReport(tuple(one.id for one in retired), ids, sessions)
