"""Decisions of the operator, and how far the Twin may be trusted (SPEC 2.6, 8)."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from engine.frozen import frozen
from engine.model.triggers import DecidedBy


class DecisionSignal(StrEnum):
    """What the operator did with a card (SPEC 8.1)."""

    APPROVED = "approved"
    ORIGINAL = "original"  # what an edit replaced, beside the approval of what it became
    DISMISSED = "dismissed"
    KEPT = "kept"  # executed by itself and not undone within 24 h
    UNDONE = "undone"
    DISCARDED = "discarded"
    EXPIRED = "expired"  # after it was shown
    DID_HIMSELF = "did_himself"


@frozen
class DecidedCard:
    """A card at the time of its signal, for learners and preference pairs (SPEC 8.1, 8.2).

    `context` is the situation in words when the card was made; `evidence_at` is the time of its evidence.
    """

    prediction_id: str
    kind: str
    channel: str
    workspace: str
    flow: str
    prompt: str
    confidence: float
    decided_by: DecidedBy
    context: str = ""
    evidence_at: datetime | None = None
    original_prompt: str = ""
    """The prompt before the operator edited it; "" if it was not edited."""
    seen: bytes = b""
    """Its text features when it was made (`TextFeatures.pack`), b"" without any."""
    raw: float | None = None
    """The weighted sum of the confidence before calibration, in [0, 1]; None for cards without one."""


@frozen
class CalibrationCheck:
    """Whether stated confidences come true (SPEC 2.6, 8.6). `error` is the expected calibration error over 10 bins on
    `held_out` decisions, `bound` the 95th percentile of what perfectly calibrated scores would show."""

    held_out: int
    holds: bool
    reason: str
    error: float | None = None
    bound: float | None = None


@frozen
class Phase:
    """The phase of the Twin (SPEC 2.6): 0 templates only, 1 a Twin, 2 a Twin whose confidence is calibrated."""

    number: int
    decisions: int
    reason: str
    needed: int = 0
    """Number of decisions with which phase 1 begins."""

    @property
    def learning(self) -> str:
        """`Learning: 3 of 30` from the first decision until the Twin joins in, else ""."""
        return f"Learning: {self.decisions} of {self.needed}" if self.number == 0 and self.decisions else ""
