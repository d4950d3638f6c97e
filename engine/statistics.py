"""Statistics of shares: Wilson's bounds, and an interval for a difference that may be read repeatedly. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import log, sqrt

from engine.frozen import frozen

Z_ONE_SIDED_95 = 1.645
"""One-sided 95 % of the normal distribution."""


def wilson_lower_bound(hits: int, total: int, z: float = Z_ONE_SIDED_95) -> float:
    """One-sided lower bound, in [0, 1], of the true share after `hits` of `total` cases; 0 without cases.

    With z = 1.645 it reaches 0.8 from 11 of 11, 19 of 20, 26 of 28 on.
    """
    if not 0 <= hits <= total:
        raise ValueError(f"{hits} of {total} is not a share")
    if hits == 0:
        return 0.0  # exactly, where the formula leaves a rounding error
    share = hits / total
    spread = z * sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return max(0.0, (share + z * z / (2 * total) - spread) / (1 + z * z / total))


def wilson_upper_bound(hits: int, total: int, z: float = Z_ONE_SIDED_95) -> float:
    """One-sided upper bound, in [0, 1], of the true share after `hits` of `total` cases; 1 without cases."""
    return 1.0 - wilson_lower_bound(total - hits, total, z)


LIKELY_DIFFERENCE = 0.3
"""The difference that `difference_interval` finds soonest; its `doubt` holds for any other, too."""


@frozen
class Arms:
    """Sessions that had something and sessions that went without, and how many of each went well."""

    with_runs: int = 0
    with_good: int = 0
    without_runs: int = 0
    without_good: int = 0


def difference_interval(strata: Sequence[Arms], doubt: float) -> tuple[float, float, float]:
    """(difference, low, high) of the share that goes well with something and without it, from -1 to 1.

    The figures are read after every session. An interval made for one look would sooner or later call every fourth
    ineffective change harmful. Here each end is wrong at any look in at most a share `doubt` of cases, because it is a
    normal mixture confidence sequence (Robbins, 1970). Each stratum is compared within itself, and an even prior draws
    each difference a little to 0. `tests/benchmarks/test_lift_looks.py` measures what it finds.
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
        return 0.0, -1.0, 1.0
    difference, prior = weighted / precision, LIKELY_DIFFERENCE**2 * precision
    half = sqrt(2 * (1 + 1 / prior) / precision * (log(1 / (2 * doubt)) + log(1 + prior) / 2))
    return difference, max(-1.0, difference - half), min(1.0, difference + half)
