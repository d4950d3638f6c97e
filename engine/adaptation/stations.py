"""Where a candidate stands on its way, station by station (SPEC 5.3, 9.5). Pure, over the lines of its history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from engine.adaptation.evaluation import PASS
from engine.values.adaptation import CandidateMove, CandidateStatus, LearningRecord, Station

NAMES = ("detect", "draft", "score", "corroborate", "review", "promote")


def stations(
    history: Sequence[Mapping[str, Any]],
    records: Sequence[LearningRecord],
    drafted_from: Sequence[str],
    status: CandidateStatus,
    words: str,
) -> tuple[Station, ...]:
    """The six stations. `records` are those that the candidate names, `words` what its last evaluation said."""
    drafted = [one for one in records if one.id in drafted_from]
    detected = max((one.at for one in drafted), default=None)
    begun = _at(history[0]) if history else None
    own = max((one.score for one in drafted), default=0.0)
    told = f"{drafted[0].kind}: {drafted[0].reason}" if drafted else "its record is not kept any more"
    first = [
        Station("detect", detected, told, "done"),
        Station("draft", begun, f"from {len(drafted_from)} record" + "s" * (len(drafted_from) != 1), "done"),
        Station("score", begun, f"{own:.0f} of 100, its record's own", "done"),
    ]
    borne = _latest(history, "corroborate")
    waits = status is CandidateStatus.DRAFTED
    if waits:
        corroborated = Station("corroborate", None, f"{words}; from {PASS:.0f} on it comes up for review", "now")
    elif borne is None:
        corroborated = Station("corroborate", None, "it was turned down before", "ahead")
    else:
        corroborated = Station("corroborate", _at(borne), str(borne["reason"]), "done")
    decided = history[-1] if history and status.decided else None
    review = Station("review", None, "", "ahead")
    if status is CandidateStatus.REVIEW:
        undone = f"; {history[-1]['reason']}" if history[-1]["move"] == CandidateMove.UNDO else ""
        said = f"it waits for the operator's word{undone}"
        review = Station("review", None if borne is None else _at(borne), said, "now")
    elif decided is not None:
        review = Station("review", _at(decided), f"by {decided['by']}", "done")
    return (*first, corroborated, review, _end(history, status))


def _end(history: Sequence[Mapping[str, Any]], status: CandidateStatus) -> Station:
    match status:
        case CandidateStatus.PROMOTED:
            return Station("promote", _at(history[-1]), _said(history[-1], "its effect is in force"), "done")
        case CandidateStatus.REJECTED:
            return Station("reject", _at(history[-1]), _said(history[-1], "turned down"), "failed")
        case CandidateStatus.ROLLED_BACK:
            return Station("promote", _at(history[-1]), _said(history[-1], "rolled back"), "failed")
    return Station("promote", None, "", "ahead")


def _said(step: Mapping[str, Any], words: str) -> str:
    return f"{words}: {step['reason']}" if step["reason"] else words


def _latest(history: Sequence[Mapping[str, Any]], move: str) -> Mapping[str, Any] | None:
    return next((step for step in reversed(history) if step["move"] == move), None)


def _at(step: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(step["at"])
