"""The stages of a candidate's life cycle in words for a screen (SPEC 5.3, 9.5). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.learning.candidates.candidates import CandidateRow, step_time
from engine.learning.candidates.evaluation import MIN_REVIEW_SCORE
from engine.model.adaptation import CandidateStatus, LearningRecord, Station

_END_WORDS = {
    CandidateStatus.PROMOTED: "it is active",
    CandidateStatus.REJECTED: "rejected",
    CandidateStatus.ROLLED_BACK: "rolled back",
}


def stations_of(row: CandidateRow, drafted_from: Iterable[LearningRecord]) -> tuple[Station, ...]:
    """All stages of a candidate; `drafted_from` are the records that it was drafted from."""
    return (
        *_first_stations(row, list(drafted_from)),
        _corroboration_station(row),
        _review_station(row),
        _end_station(row),
    )


def _first_stations(row: CandidateRow, records: Sequence[LearningRecord]) -> tuple[Station, ...]:
    """Detection, draft and score, which every candidate has passed."""
    drafted_at = step_time(row.history[0])
    detected_at = max((record.at for record in records), default=None)
    score = max((record.score for record in records), default=0.0)
    origin = f"{records[0].kind}: {records[0].reason}" if records else "its record is no longer stored"
    count = len(row.drafted_from)
    return (
        Station("detect", detected_at, origin, "done"),
        Station("draft", drafted_at, f"from {count} record" + "s" * (count != 1), "done"),
        Station("score", drafted_at, f"{score:.0f} of 100, from its own record", "done"),
    )


def _corroboration_station(row: CandidateRow) -> Station:
    corroboration = row.corroboration
    if row.status == CandidateStatus.DRAFTED:
        words = f"{row.reason}; it comes up for review from a score of {MIN_REVIEW_SCORE:.0f}"
        return Station("corroborate", None, words, "now")
    if corroboration is not None:
        return Station("corroborate", step_time(corroboration), str(corroboration["reason"]), "done")
    return Station("corroborate", None, "it was rejected before", "ahead")


def _review_station(row: CandidateRow) -> Station:
    status, last = CandidateStatus(row.status), row.history[-1]
    if status is CandidateStatus.REVIEW:
        corroboration = row.corroboration
        undone = f"; {last['reason']}" if row.is_undone else ""
        since = None if corroboration is None else step_time(corroboration)
        return Station("review", since, f"needs your decision{undone}", "now")
    if status.decided:
        return Station("review", step_time(last), f"by {last['by']}", "done")
    return Station("review", None, "", "ahead")


def _end_station(row: CandidateRow) -> Station:
    status, last = CandidateStatus(row.status), row.history[-1]
    if not status.decided:
        return Station("promote", None, "", "ahead")
    reason = f": {last['reason']}" if last["reason"] else ""
    name = "reject" if status is CandidateStatus.REJECTED else "promote"
    state = "done" if status is CandidateStatus.PROMOTED else "failed"
    return Station(name, step_time(last), f"{_END_WORDS[status]}{reason}", state)
