"""Whether the operator's taste moved away from what is expected of him (SPEC 8.5). Pure.

Each decision has a confidence that was stated before it was known. If confidences come true, the mean log-loss of some
decisions is on average the mean entropy of their confidences, and chance spreads it by a known amount. The newest `OF`
decisions are drifting when their log-loss lies outside of what 95 of 100 such samples show. Log-loss is blind where
nothing was stated but a half, so each kind of card is looked at too: how many of it were approved, against the sum of
its confidences, by the exact distribution of such a sum; 1 in 20 altogether is taken for a change by chance. That
confidence is off is not yet a change of taste: for that it must have been otherwise before.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from engine.values import Drift, Shift

OF = 50
"""The newest so many decisions."""

FROM = 20
"""Below so many nothing is said."""

EARLIER = 200
"""So many before those tell what was usual."""

KIND_FROM = 4
"""A kind of card with fewer among the newest is not looked at; with fewer before, nothing is known of before."""

OTHERWISE = 0.2
"""So far the share approved must have moved, the same way as it is off, to be a change."""

CHANCE = 0.05
RESAMPLED = 1000
LEAST = 0.001
"""A confidence is taken as at least so far from 0 and 1: one surprise does not outweigh all else."""


@dataclass(frozen=True, slots=True)
class Stated:
    """One decision: what kind of card, the confidence stated before it, in [0, 1], and what came."""

    kind: str
    confidence: float
    approved: bool


def drift(decisions: Sequence[Stated]) -> Drift:
    """What the newest of these decisions, the oldest first, say."""
    newest, earlier = decisions[-OF:], decisions[-OF - EARLIER : -OF]
    if len(newest) < FROM:
        missing = FROM - len(newest)
        words = f"{missing} more decision{'' if missing == 1 else 's'} on a stated confidence, and drift is measured"
        return Drift(len(newest), False, words)
    chances = [_kept(one.confidence) for one in newest]
    surprise = _surprise(newest)
    expected = _mean([-chance * math.log(chance) - (1 - chance) * math.log(1 - chance) for chance in chances])
    low, high = _spread(chances)
    shifts = _shifts(newest, earlier)
    changed = any(one.changed for one in shifts) or (not shifts and surprise > high and _came_true(earlier))
    return Drift(len(newest), changed, _words(len(newest), surprise, low, high, shifts), surprise, expected, low, high,
                 shifts)  # fmt: skip


def chance_of(confidences: Sequence[float], approved: int) -> float:
    """How likely it is, in [0, 1], that so many or a number less likely than it come true of these."""
    likely = [1.0]
    for chance in confidences:
        likely = [
            (likely[count] * (1 - chance) if count < len(likely) else 0.0)
            + (likely[count - 1] * chance if count else 0)
            for count in range(len(likely) + 1)
        ]
    return min(1.0, sum(one for one in likely if one <= likely[approved] * (1 + 1e-9)))


def _shifts(newest: Sequence[Stated], earlier: Sequence[Stated]) -> tuple[Shift, ...]:
    kinds: dict[str, list[Stated]] = {}
    for one in newest:
        kinds.setdefault(one.kind, []).append(one)
    looked_at = {kind: these for kind, these in kinds.items() if len(these) >= KIND_FROM}
    found = []
    for kind, these in looked_at.items():
        approved = sum(one.approved for one in these)
        confidences = [one.confidence for one in these]
        likely = chance_of(confidences, approved)
        if likely * len(looked_at) <= CHANCE:
            before = [one.approved for one in earlier if one.kind == kind]
            usual = sum(before) / len(before) if before else None
            expected = sum(confidences)
            changed = len(before) >= KIND_FROM and _moved(approved / len(these), usual or 0.0, expected / len(these))
            found.append((likely, Shift(kind, approved, len(these), expected, usual, changed)))
    return tuple(shift for _, shift in sorted(found, key=lambda one: (one[0], one[1].kind)))


def _moved(now: float, before: float, expected: float) -> bool:
    return abs(now - before) >= OTHERWISE and (now > before) == (now > expected)


def _came_true(earlier: Sequence[Stated]) -> bool:
    """Whether confidences were no worse than chance makes them before."""
    if len(earlier) < FROM:
        return False
    return _surprise(earlier) <= _spread([_kept(one.confidence) for one in earlier])[1]


def _kept(confidence: float) -> float:
    return min(max(confidence, LEAST), 1 - LEAST)


def _surprise(decisions: Sequence[Stated]) -> float:
    """Their mean log-loss."""
    return _mean([_loss(_kept(one.confidence), one.approved) for one in decisions])


def _spread(chances: Sequence[float]) -> tuple[float, float]:
    """Between what bounds the mean log-loss of such decisions is in 95 of 100 samples; the same each time."""
    draw = random.Random(len(chances))
    each = [(one, _loss(one, True), _loss(one, False)) for one in chances]
    losses = sorted(_mean([yes if draw.random() < one else no for one, yes, no in each]) for _ in range(RESAMPLED))
    return losses[round(RESAMPLED * CHANCE / 2)], losses[round(RESAMPLED * (1 - CHANCE / 2)) - 1]


def _loss(chance: float, approved: bool) -> float:
    return -math.log(chance if approved else 1 - chance)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _words(count: int, surprise: float, low: float, high: float, shifts: Sequence[Shift]) -> str:
    between = f"log-loss {surprise:.2f}; {low:.2f} to {high:.2f} is usual"
    if any(one.changed for one in shifts):
        return f"your taste changed in the last {count} decisions ({between})"
    if shifts:
        return f"confidence has yet to learn what you want, in the last {count} decisions ({between})"
    if surprise > high:
        return f"the last {count} decisions surprise more than chance does ({between}), in no one kind of card alone"
    return f"no change: the last {count} decisions came as expected ({between})"
