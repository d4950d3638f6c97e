"""The stages of a candidate's life cycle in words for a screen (SPEC 5.3, 9.5). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from engine.learning.candidates.candidate_rows import CandidateRow, step_time
from engine.learning.candidates.evaluation import MIN_REVIEW_SCORE
from engine.model.adaptation import CandidateStatus, LearningRecord, Station
from engine.model.text import count

_END_WORDS = {
    CandidateStatus.PROMOTED: "it is active",
    CandidateStatus.REJECTED: "rejected",
    CandidateStatus.ROLLED_BACK: "rolled back",
}


def stations_of(row: CandidateRow, drafted_from: Sequence[LearningRecord]) -> tuple[Station, ...]:
    """All stages of a candidate; `drafted_from` are the records that it was drafted from."""
    drafted_at = step_time(row.history[0])
    detected_at = max((record.at for record in drafted_from), default=None)
    score = max((record.score for record in drafted_from), default=0.0)
    first = next(iter(drafted_from), None)
    origin = f"{first.kind}: {first.reason}" if first else "its record is no longer stored"
    return (
        Station("detect", detected_at, origin, "done"),
        Station("draft", drafted_at, f"from {count(len(row.drafted_from), 'record')}", "done"),
        Station("score", drafted_at, f"{score:.0f} of 100, from its own record", "done"),
        _corroboration_station(row),
        _review_station(row),
        _end_station(row),
    )


def _corroboration_station(row: CandidateRow) -> Station:
    if row.status == CandidateStatus.DRAFTED:
        words = f"{row.reason}; it comes up for review from a score of {MIN_REVIEW_SCORE:.0f}"
        return Station("corroborate", None, words, "now")
    if corroboration := row.corroboration:
        return Station("corroborate", step_time(corroboration), str(corroboration["reason"]), "done")
    return Station("corroborate", None, "it was rejected before", "ahead")


def _review_station(row: CandidateRow) -> Station:
    status, last = CandidateStatus(row.status), row.history[-1]
    if status is CandidateStatus.REVIEW:
        undone = f"; {last['reason']}" if row.is_undone else ""
        since = step_time(row.corroboration) if row.corroboration else None
        return Station("review", since, f"needs your decision{undone}", "now")
    if status.is_decided:
        return Station("review", step_time(last), f"by {last['by']}", "done")
    return Station("review", None, "", "ahead")


def _end_station(row: CandidateRow) -> Station:
    status, last = CandidateStatus(row.status), row.history[-1]
    if not status.is_decided:
        return Station("promote", None, "", "ahead")
    reason = f": {last['reason']}" if last["reason"] else ""
    name = "reject" if status is CandidateStatus.REJECTED else "promote"
    state = "done" if status is CandidateStatus.PROMOTED else "failed"
    return Station(name, step_time(last), f"{_END_WORDS[status]}{reason}", state)
