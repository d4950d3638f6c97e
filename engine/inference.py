"""Inference from few cases: bounds of a share (Wilson), the interval of a difference that stays valid over many checks,
logistic regression, and the error of stated probabilities. Pure.

Calibration, the lift of candidates, the harm of guidance and the habits of a project are judged with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, sqrt
from typing import NamedTuple

from engine.frozen import frozen

Z_ONE_SIDED_95, Z_TWO_SIDED_95 = 1.645, 1.96
"""The numbers of standard deviations below which, and on both sides of the mean within which, 95 % of a normal
distribution are."""

TUNED_DIFFERENCE = 0.3
"""The difference that `compute_difference_interval` is best at finding. Its error rate is valid for every
difference."""


def compute_wilson_lower_bound(hits: int, total: int, z: float = Z_ONE_SIDED_95) -> float:
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


def compute_wilson_upper_bound(hits: int, total: int, z: float = Z_ONE_SIDED_95) -> float:
    """One-sided upper bound, in [0, 1], of the true share after `hits` of `total` cases; 1 without cases."""
    return 1.0 - compute_wilson_lower_bound(total - hits, total, z)


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


def compute_difference_interval(strata: Sequence[Arms], error_rate: float) -> DifferenceInterval:
    """By how much the share that goes well is larger with something than without it.

    The interval is computed after every session. An ordinary interval, made for one check, would sooner or later call
    every fourth ineffective change harmful. This one is a normal mixture confidence sequence (Robbins, 1970): the
    probability that an end is ever wrong, over all checks, is at most `error_rate`, in (0, 0.5). Strata are compared
    separately, and a prior draws each difference a little towards 0. `tests/benchmarks/test_lift_looks.py` measures its
    power.
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
    difference, prior = weighted / precision, TUNED_DIFFERENCE**2 * precision
    margin = sqrt(2 * (1 + 1 / prior) / precision * (log(1 / (2 * error_rate)) + log(1 + prior) / 2))
    return DifferenceInterval(difference, max(-1.0, difference - margin), min(1.0, difference + margin))


def compute_share(amount: float, full: float) -> float:
    """The share of `amount` in `full`, from 0 to 1."""
    return min(1.0, max(0.0, amount / full)) if full > 0 else float(amount > 0)


# -- logistic curves


def logistic(x: float) -> float:
    """The logistic function: the probability of log-odds `x`."""
    return 1 / (1 + exp(-x)) if x >= 0 else exp(x) / (1 + exp(x))


def logit(p: float) -> float:
    """The log-odds of `p`, which is kept within [0.001, 0.999]."""
    p = min(max(p, 0.001), 0.999)
    return log(p / (1 - p))


def update_by_logistic_regression(mean: float, variance: float, outcome: bool, weight: float) -> tuple[float, float]:
    """The update of a Bayesian logistic regression by one observation, whose log-odds it expected to have this mean and
    this variance.

    Returns (step, shrinkage). The weights move by `step` times their covariance with the log-odds. Their own covariance
    decreases by `shrinkage` times the square of that covariance.
    """
    step = 0.0
    for _ in range(20):  # Newton's method; the target is concave, so this converges
        expected = logistic(mean + variance * step)
        error = weight * (outcome - expected) - step
        step += error / (1 + weight * expected * (1 - expected) * variance)
        if abs(error) < 1e-10:
            break
    expected = logistic(mean + variance * step)
    information = weight * expected * (1 - expected)
    return step, information / (1 + information * variance)


# -- stated probabilities

CALIBRATION_BINS = 10
"""Number of bins of the calibration error."""

CALIBRATION_SAMPLES = 1000
"""Number of random outcomes of perfectly calibrated scores that `compute_calibration_bound` draws."""

BOUND_QUANTILE = 0.95
"""Share of these samples whose error is below the bound."""


def compute_calibration_error(scores: Sequence[float], outcomes: Sequence[bool]) -> float:
    """Expected calibration error, in [0, 1]: the mean difference of score and outcome over bins of equal width."""
    differences = [0.0] * CALIBRATION_BINS
    for score, outcome in zip(scores, outcomes, strict=True):
        differences[min(int(score * CALIBRATION_BINS), CALIBRATION_BINS - 1)] += outcome - score
    return sum(map(abs, differences)) / len(scores) if scores else 0.0


def compute_calibration_bound(scores: Sequence[float]) -> float:
    """The 95th percentile of `compute_calibration_error` for such scores if they are perfectly calibrated."""
    import numpy

    random = numpy.random.default_rng(0)
    probabilities = numpy.asarray(scores, numpy.float64)
    bin_of_score = numpy.zeros((len(probabilities), CALIBRATION_BINS))
    bins = numpy.minimum((probabilities * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    bin_of_score[numpy.arange(len(probabilities)), bins] = 1.0
    outcomes = (random.random((CALIBRATION_SAMPLES, len(probabilities))) < probabilities).astype(numpy.float64)
    errors = numpy.abs((outcomes - probabilities) @ bin_of_score).sum(axis=1) / len(probabilities)
    return float(numpy.quantile(errors, BOUND_QUANTILE))
