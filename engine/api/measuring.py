"""The verb `metrics` (SPEC 8.5, 8.6, 9.8): how good the predictions are, with the seed's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.api import wire
from engine.api.arguments import Arguments
from engine.api.wire import Document
from engine.learning.decisions.training_examples import DPO
from engine.learning.decisions.training_runs import ADOPTED
from engine.model import MICRO, ConfidenceBucket, Drift, Group, Insights, Slice
from engine.prediction.kinds import kind_title

if TYPE_CHECKING:
    from engine.engine import Engine

DAYS, DAYS_MOST = 7, 3_650


def metrics(engine: Engine, arguments: Arguments) -> Document:
    """Of the last `days`, 7 unless said, today's included."""
    days = int(arguments.number("days", DAYS, least=1, most=DAYS_MOST))
    trained = (one for one in engine.training.runs() if one.state == ADOPTED and one.method == DPO)
    last = wire.instant(next((one.updated_at for one in trained), None))
    return figures(engine.insights.read(days, arguments.text("workspace"))) | {"lastDpoTraining": last}


def figures(read: Insights) -> Document:
    """All figures but those of the trainings that were made."""
    found, check, training = read.metrics, read.check, read.training
    return {
        "period": "all_time" if read.days is None else f"last_{read.days}_days",
        "totalPredictions": found.total,
        "approved": found.approved,
        "rejected": found.rejected,
        "discarded": found.discarded,
        "expired": found.expired,
        "withdrawn": found.withdrawn,
        "cannotRun": found.cannot_run,
        "waiting": found.undecided,
        "ownPrompts": found.own,
        "autoExecuted": found.auto_executed,
        "autoExecutedUndone": found.auto_undone,
        "approvalRate": _rate(found.approval_rate),
        "autoSuccessRate": _rate(found.auto_success_rate),
        "avgConfidence": _rate(found.confidence),
        "avgApprovedConfidence": _rate(found.approved_confidence),
        "avgRejectedConfidence": _rate(found.rejected_confidence),
        "calibration": [_bucket(one) for one in found.calibration],
        "calibrationError": _rate(check.error),
        "calibrationErrorBound": _rate(check.bound),
        "calibrationHolds": check.holds,
        "calibrationWords": check.reason,
        "autoExecuteThreshold": read.threshold,
        "atThreshold": _bucket(read.at_threshold),
        "earning": read.earning,
        "phase": read.phase.number,
        "phaseReason": read.phase.reason,
        "trendDirection": found.trend,
        "approvalOverTime": [_slice(one) for one in read.over_time],
        "drift": _drift(read.drift),
        "spent": round(found.spent / MICRO, 6),
        "costPerAccepted": _dollars(found.cost_per_accepted),
        "sources": _groups(found.sources),
        "channels": _groups(found.channels),
        "kinds": _groups(found.kinds),
        "partsOfDay": _groups(found.parts),
        "hours": _groups(found.hours),
        "nextTraining": training.words or "due",
        "pairs": training.pairs,
        "pairsNeeded": training.needed,
    }


def _bucket(one: ConfidenceBucket) -> Document:
    return {
        "bucket": one.name,
        "predictions": one.predictions,
        "approvalRate": _rate(one.approval_rate),
        "avgConfidence": _rate(one.confidence),
        "low": _rate(one.at_least),
        "high": _rate(one.at_most),
        "unstated": one.unstated,
    }


def _slice(one: Slice) -> Document:
    return {
        "from": wire.instant(one.start),
        "to": wire.instant(one.end),
        "approved": one.approved,
        "rejected": one.rejected,
        "approvalRate": _rate(one.approval_rate),
    }


def _drift(one: Drift) -> Document:
    return {
        "decisions": one.decisions,
        "changed": one.changed,
        "words": one.words,
        "kinds": [
            {
                "kind": shift.kind,
                "kindTitle": kind_title(shift.kind),
                "approved": shift.approved,
                "decided": shift.decided,
                "approvalRateBefore": _rate(shift.before),
            }
            for shift in one.shifts
        ],
    }


def _groups(groups: Sequence[Group]) -> list[Document]:
    return [
        {
            "name": one.name,
            "predictions": one.predictions,
            "approved": one.approved,
            "rejected": one.rejected,
            "approvalRate": _rate(one.approval_rate),
            "costPerAccepted": _dollars(one.cost_per_accepted),
        }
        for one in groups
    ]


def _dollars(amount: float | None) -> float | None:
    return None if amount is None else round(amount / MICRO, 6)


def _rate(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
