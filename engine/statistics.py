"""Statistics of shares: Wilson's bounds, and an interval for a difference that stays valid over many checks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import log, sqrt
from typing import NamedTuple

from engine.frozen import frozen

Z_ONE_SIDED_95 = 1.645
"""One-sided 95 % of the normal distribution."""

LIKELY_DIFFERENCE = 0.3
"""The difference that `compute_difference_interval` is best at finding. Its error rate `doubt` is valid for every
difference."""


def wilson_lower_bound(hits: int, total: int, z: float = Z_ONE_SIDED_95) -> float:
    """One-sided lower bound, in [0, 1], of the true share after `hits` of `total` cases; 0 without cases.

    With z = 1.645 it reaches 0.8 from 11 of 11, 19 of 20, 26 of 28 on.
    """
    if not 0 <= hits <= total:
        raise ValueError(f"{hits} of {total} is not a share")
    if hits == 0:
        return 0.0  # exactly; the formula would give a rounding error
    share = hits / total
    spread = z * sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return max(0.0, (share + z * z / (2 * total) - spread) / (1 + z * z / total))


def wilson_upper_bound(hits: int, total: int, z: float = Z_ONE_SIDED_95) -> float:
    """One-sided upper bound, in [0, 1], of the true share after `hits` of `total` cases; 1 without cases."""
    return 1.0 - wilson_lower_bound(total - hits, total, z)


@frozen
class Arms:
    """The numbers of sessions with and without something, and how many of each went well."""

    with_runs: int = 0
    with_good: int = 0
    without_runs: int = 0
    without_good: int = 0


class DifferenceInterval(NamedTuple):
    """By how much one share exceeds another, from -1 to 1, and the ends of the interval in which that lies."""

    difference: float
    low: float
    high: float


def compute_difference_interval(strata: Sequence[Arms], doubt: float) -> DifferenceInterval:
    """By how much the share that goes well is larger with something than without it.

    The interval is computed after every session. An ordinary interval, made for one check, would sooner or later call
    every fourth ineffective change harmful. This one is a normal mixture confidence sequence (Robbins, 1970): the
    probability that an end is ever wrong, over all checks, is at most `doubt`. Strata are compared separately, and a
    prior draws each difference a little towards 0. `tests/benchmarks/test_lift_looks.py` measures its power.
    """
    weighted, precision = 0.0, 0.0
    for arms in strata:
        if not arms.with_runs or not arms.without_runs:
            continue
        with_runs, without_runs = arms.with_runs + 2, arms.without_runs + 2
        with_share, without_share = (arms.with_good + 1) / with_runs, (arms.without_good + 1) / without_runs
        pooled = (arms.with_good + arms.without_good + 2) / (with_runs + without_runs)
        separate = with_share * (1 - with_share) / with_runs + without_share * (1 - without_share) / without_runs
        variance = max(separate, pooled * (1 - pooled) * (1 / with_runs + 1 / without_runs))
        weighted += (with_share - without_share) / variance
        precision += 1 / variance
    if not precision:
        return DifferenceInterval(0.0, -1.0, 1.0)
    difference, prior = weighted / precision, LIKELY_DIFFERENCE**2 * precision
    half = sqrt(2 * (1 + 1 / prior) / precision * (log(1 / (2 * doubt)) + log(1 + prior) / 2))
    return DifferenceInterval(difference, max(-1.0, difference - half), min(1.0, difference + half))


def share(amount: float, full: float) -> float:
    """The share of `amount` in `full`, from 0 to 1."""
    return min(1.0, max(0.0, amount / full)) if full > 0 else float(amount > 0)
