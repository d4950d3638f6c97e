"""The toasts that tell the operator of the engine's events (SPEC 9.7)."""

from __future__ import annotations

from typing import Any

from textual.notifications import SeverityLevel

from clawpy_console import formats
from clawpy_console.formats import one_line
from engine.model import PROBLEM_FOUND, outcome_in_words

TRAINING_OUTCOMES: dict[str, tuple[str, SeverityLevel]] = {
    "adopted": ("the new model is now used", "information"),
    "kept_old": ("the new model is not used", "warning"),
    "failed": ("failed", "error"),
}
"""The toast about the end of a training, by its state."""


SESSION_OUTCOMES: dict[str, tuple[str, SeverityLevel]] = {
    "succeeded": ("Done", "information"),
    PROBLEM_FOUND: ("Problem found", "warning"),
    "failed": ("Failed", "error"),
    "cannot_run": ("Could not run", "warning"),
    "cancelled": ("Stopped", "warning"),
}
"""The first words of the toast about the end of a session, by its outcome."""


def toast_of(event: Any) -> tuple[str, SeverityLevel] | None:
    """The text and severity of the toast about an event, None for no toast."""
    match event.kind:
        case "SessionEnded":
            outcome, severity = SESSION_OUTCOMES.get(
                outcome_in_words(event.state, event.result), (event.state, "error")
            )
            return one_line(f"{outcome}: {event.summary}"), severity
        case "ChangeSetReady":
            return f"{formats.count(event.files, 'changed file')} to land  (2)", "warning"
        case "PermissionAsked":
            return one_line(f"Permission needed: {event.title}  (2)"), "warning"
        case "NotificationsGivenUp":
            count = formats.count(event.number, "notification")
            return one_line(f"{count} not delivered to the {event.subject}: {event.reason}"), "warning"
        case "FaultReported":
            return one_line(f"{event.where}: {event.message}"), "error"
        case "TrainingMoved" if event.state in TRAINING_OUTCOMES:
            outcome, severity = TRAINING_OUTCOMES[event.state]
            return one_line(f"training: {outcome}; {event.note}  (7)"), severity
        case "CostWarned":
            share = 100 * event.spent // max(1, event.cap)
            spent, cap = formats.money(event.spent), formats.money(event.cap)
            return f"cost: {share} % of the {event.window} cap ({spent} of {cap})", "warning"
        case "HoldPlaced":
            return one_line(f"{event.subject or 'held'}: {event.reason}"), "warning"
    return None
