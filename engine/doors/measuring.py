"""The verb `metrics` (SPEC 8.5, 8.6, 9.8): how good the predictions are, with the seed's names."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from engine.doors import wire
from engine.doors.arguments import Arguments
from engine.doors.wire import Document
from engine.feedback.metrics import Group, read
from engine.feedback.training.runs import ADOPTED, DPO
from engine.values import MICRO

if TYPE_CHECKING:
    from engine.engine import Engine

DAYS, DAYS_MOST = 7, 3_650


def metrics(engine: Engine, arguments: Arguments) -> Document:
    """Of the last `days`, 7 unless said."""
    days = int(arguments.number("days", DAYS, least=1, most=DAYS_MOST))
    now = engine.clock.now()
    found = read(engine.database, since=now - timedelta(days=days))
    phase, check = engine.predictions.phase(), engine.predictions.calibration()
    trained = (one for one in engine.training.runs() if one.state == ADOPTED and one.method == DPO)
    return {
        "period": f"last_{days}_days",
        "totalPredictions": found.total,
        "approved": found.approved,
        "rejected": found.rejected,
        "expired": found.expired,
        "autoExecuted": found.auto_executed,
        "autoExecutedUndone": found.auto_undone,
        "approvalRate": _rate(found.approval_rate),
        "autoSuccessRate": _rate(found.auto_success_rate),
        "avgConfidence": _rate(found.confidence),
        "avgApprovedConfidence": _rate(found.approved_confidence),
        "avgRejectedConfidence": _rate(found.rejected_confidence),
        "calibration": [
            {"bucket": one.name, "predictions": one.predictions, "approvalRate": _rate(one.approval_rate)}
            for one in found.calibration
        ],
        "calibrationError": _rate(check.error),
        "calibrationErrorBound": _rate(check.bound),
        "calibrationHolds": check.holds,
        "calibrationWords": check.reason,
        "phase": phase.number,
        "phaseReason": phase.reason,
        "trendDirection": found.trend,
        "costPerAccepted": None if found.cost_per_accepted is None else round(found.cost_per_accepted / MICRO, 6),
        "sources": _groups(found.sources),
        "channels": _groups(found.channels),
        "lastDpoTraining": wire.instant(next((one.updated_at for one in trained), None)),
        "nextTraining": engine.training.missing(now) or "due",
    }


def _groups(groups: Sequence[Group]) -> list[Document]:
    return [
        {
            "name": one.name,
            "predictions": one.predictions,
            "approved": one.approved,
            "rejected": one.rejected,
            "approvalRate": _rate(one.approval_rate),
            "costPerAccepted": None if one.cost_per_accepted is None else round(one.cost_per_accepted / MICRO, 6),
        }
        for one in groups
    ]


def _rate(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
