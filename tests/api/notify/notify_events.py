"""Events that are notified, for the tests of notifications."""

from typing import Any

from engine.config.sections import Surface
from engine.events import CostWarned, PredictionCreated, SessionEnded, StateChanged
from engine.model import CheckResult, Source, microusd

EVERYWHERE = {surface.value: "json://nowhere.invalid/x" for surface in Surface}


def make_created(
    card_id: str = "pred_a", confidence: float = 0.72, source: Source = Source.TEMPLATE, **more: Any
) -> PredictionCreated:
    fields = {"flow": "run_tests", "channel": "koji-core", "stated": True} | more
    return PredictionCreated(subject=card_id, confidence=confidence, source=source.value, **fields)


def make_ended(state: str = "succeeded", summary: str = "41 passed") -> SessionEnded:
    return SessionEnded(subject="sess_a", prediction_id="pred_a", state=state, summary=summary, cost=0)


ONE_FAILED = CheckResult("pytest", passed=40, failed=1, errors=0, skipped=0, seconds=1.0, failing=("test_a",))
PAUSED = StateChanged(before="WATCHING", after="PAUSED", cause="3 dismissals in a row")
COST = CostWarned(window="day", spent=microusd(16.4), cap=microusd(20))
