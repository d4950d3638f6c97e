"""How sure a prediction is (SPEC 2.5). Pure.

confidence = 0.4 Twin + 0.25 pattern match + 0.2 urgency + 0.15 time relevance, each in [0, 1]. In phase 0 it is fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from engine.model import COLD_START, Band, ConfidenceParts

TWIN, PATTERN, URGENCY, TIME = 0.4, 0.25, 0.2, 0.15
"""Weights of the four terms; they sum to 1."""

TERMS = ("twin", "pattern", "urgency", "time")
"""Their names, in the order of `weighted`."""

CARD_FROM, SUGGESTED_FROM, ACT_FROM = 0.3, 0.6, 0.8
"""Lower ends of the bands; each band includes its lower end."""

LIKE_APPROVED_FROM = 0.8
"""Auto-execution needs Wilson's lower bound of the approval of like cards to be at least this."""


def band_of(confidence: float) -> Band:
    """What a confidence in [0, 1] means: [0, 0.3) discarded, [0.3, 0.6) card, [0.6, 0.8) suggested, [0.8, 1] act."""
    if confidence >= ACT_FROM:
        return Band.ACT
    if confidence >= SUGGESTED_FROM:
        return Band.SUGGESTED
    if confidence >= CARD_FROM:
        return Band.CARD
    return Band.DISCARDED


def confidence_of(
    *,
    twin: float,
    pattern: float,
    urgency: float,
    time: float,
    phase: int,
    calibrate: Callable[[float], float],
    words: tuple[str, ...] = (),
) -> ConfidenceParts:
    """The four terms (each is clamped to [0, 1]) and the total that bands use.

    In phase 0 the total is fixed; from phase 1 on the weighted sum goes through `calibrate`. The total is rounded to
    six digits, so that a sum which is 0.6 in arithmetic is not 0.5999… in a band.
    """
    twin, pattern, urgency, time = (min(max(term, 0.0), 1.0) for term in (twin, pattern, urgency, time))
    if phase == 0:
        total = COLD_START
    else:
        total = round(min(max(calibrate(weighted(twin, pattern, urgency, time)), 0.0), 1.0), 6)
    return ConfidenceParts(twin, pattern, urgency, time, total, words, stated=phase > 0)


def weighted(twin: float, pattern: float, urgency: float, time: float) -> float:
    """The sum of the four terms before calibration, in [0, 1]."""
    return min(TWIN * twin + PATTERN * pattern + URGENCY * urgency + TIME * time, 1.0)


def urgency_of(evidence_at: datetime | None, now: datetime, usual: timedelta) -> float:
    """How long the evidence has waited against how long the like usually waits: 0 when fresh, 1 from `usual` on.

    Evidence without a time says nothing about urgency: 0.5.
    """
    if evidence_at is None or usual <= timedelta(0):
        return 0.5
    return min(max((now - evidence_at) / usual, 0.0), 1.0)
