"""Measures from sessions with and without an overlay how much better those with it went (SPEC 5.7). Pure.

The lift is read after every session, so its interval is a confidence sequence (`confidence_sequence`). Measured over
200 sessions, a fifth of them without the overlay (`tests/benchmarks/test_lift_looks.py`): of effects that do nothing,
0 to 6 % are called harmful; of those that help by 15 points, 1 %; of those that cost 50 points all, half of them by
the 32nd session; of those that cost 30 points five in six; of those that cost 20 points half.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from engine.model.adaptation import Lift, LiftVerdict
from engine.model.confidence_sequence import Arms, upper_end

ERROR_RATE = 0.1
"""Maximum probability that an end of the interval is ever wrong."""

NEGLIGIBLE = 0.1
"""An interval between this difference and its negative means that the effect makes no difference."""


def measure_lift(overlay_id: str, strata: Sequence[Arms]) -> Lift:
    """The lift of an overlay. Runs with the same probability of going without it are a stratum."""
    difference, low, high = _interval(tuple(strata))
    return Lift(
        overlay_id,
        with_runs=sum(arms.with_runs for arms in strata),
        with_good=sum(arms.with_good for arms in strata),
        without_runs=sum(arms.without_runs for arms in strata),
        without_good=sum(arms.without_good for arms in strata),
        difference=difference,
        low=low,
        high=high,
        verdict=_verdict(low, high),
    )


def _verdict(low: float, high: float) -> LiftVerdict:
    if high < 0:
        return LiftVerdict.HARMS
    if low > 0:
        return LiftVerdict.HELPS
    if low >= -NEGLIGIBLE and high <= NEGLIGIBLE:
        return LiftVerdict.NO_DIFFERENCE
    return LiftVerdict.NOT_ENOUGH


@lru_cache(maxsize=1_000)
def _interval(strata: tuple[Arms, ...]) -> tuple[float, float, float]:
    """Difference, low and high end of its interval. Cached, since it takes milliseconds and every prompt reads it."""
    low, high = -upper_end([arms.swapped for arms in strata], ERROR_RATE), upper_end(strata, ERROR_RATE)
    return min(high, max(low, _difference(strata))), low, high


def _difference(strata: Sequence[Arms]) -> float:
    """The difference of the shares, as the mean of the strata where each weighs by its precision; an even prior draws
    it a little to 0 while there are few runs."""
    weighted_sum, weights = 0.0, 0.0
    for arms in strata:
        with_share = (arms.with_good + 1) / (arms.with_runs + 2)
        without_share = (arms.without_good + 1) / (arms.without_runs + 2)
        precision = 1 / (1 / (arms.with_runs + 2) + 1 / (arms.without_runs + 2))
        weighted_sum += precision * (with_share - without_share)
        weights += precision
    return weighted_sum / weights
