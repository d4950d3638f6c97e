"""Calibrates scores by how earlier scores came true. Pure.

`Calibration` is for the Twin's own probability: a linear correction in log-odds, and above `CREDIBLE_BELOW` a cap by
how often scores as high came true. `KindCalibration` is for the whole confidence (SPEC 8.6): the outcomes of a kind of
card count most, and the score moves a card within its kind. Learning from a case takes constant time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

CREDIBLE_BELOW = 0.75
"""A score up to this value needs no outcomes of its own to be believed."""

PRIOR_SHARE = 0.5
"""Prior of scores above `CREDIBLE_BELOW`: the share of them that comes true."""

PRIOR_STRENGTH = 8.0
"""Number of cases that this prior weighs as much as. With 12 of 12 the cap is 0.8."""

PRIOR_FADES_FROM = 12.0
"""Number of outcomes from which on the prior fades, or it would hold down what comes true nine times in ten."""

BASE_DECISIONS = 3
"""Number of first decisions on each kind that make the base rate of new kinds."""

BASE_STRENGTH = 4.0
"""Number of decisions that the prior of the base rate, a half, weighs as much as."""

KIND_STRENGTH = 3.0
"""Number of decisions that the base rate weighs as much as in the share approved of a kind."""

KIND_WINDOW = 24.0
"""About how many of the newest decisions of a kind count."""

OVERALL_WINDOW = 100.0
"""About how many of the newest decisions of all kinds count for their mean score."""

UNDECIDED_MOVE = 0.1
"""How far the score moves a kind without decisions at most; with decisions this limit grows towards 1."""

SLOPE = 14.0
"""Log-odds that 1 more of the score is worth before the first decision."""

SLOPE_SPREAD = 8.0
"""Standard deviation of `SLOPE`."""

HALF_UNANIMOUS = 8.0
"""Number of decisions of a kind that all agree after which its score counts half: it seems not to matter."""

MIN_UNANIMOUS = 12
"""Number of dismissals of a kind, without one approval, after which its score does not raise it at all."""

MAX_OUTCOMES = 400
"""Maximum number of the newest scores, each made before its outcome, on which calibration is checked."""

BINS = 10
"""Number of bins of the calibration error."""

SAMPLES = 1000
"""Number of random outcomes of perfectly calibrated scores that `calibration_bound` draws."""

BOUND_QUANTILE = 0.95
"""Share of these samples whose error is below the bound."""

_CELL_WIDTH, _LOWEST_CELL, _CELLS = 0.25, -5.0, 41
"""Outcomes are counted in this many cells of log-odds, from the lowest one up."""

_CELLS_BELOW = 2
"""A score is capped by the outcomes of its own cell, all above, and this many below."""


def logistic(x: float) -> float:
    """The logistic function: the probability of log-odds `x`."""
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def logit(p: float) -> float:
    """The log-odds of `p`, which is kept within [0.001, 0.999]."""
    p = min(max(p, 0.001), 0.999)
    return math.log(p / (1 - p))


def logistic_update(mean: float, variance: float, outcome: bool, weight: float) -> tuple[float, float]:
    """One observation of a Bayesian logistic regression whose log-odds were expected at `mean` with `variance`.

    Returns (step, shrinkage): weights move by their covariance with the log-odds times `step`, and their covariance
    loses the square of that covariance times `shrinkage`.
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


class Calibration:
    """Calibrates one score by its outcomes, oldest first.

    `level` and `slope` are the standard deviations of the line, in log-odds and as a factor. With `level` 0 the line
    only changes its slope: an error of the newest cases belongs to what was asked lately, and says nothing of the rest.
    """

    def __init__(self, *, level: float, slope: float) -> None:
        self._line = [0.0, 1.0]
        self._covariance = [level * level, 0.0, slope * slope]  # of the offset, of both, of the slope
        self._cell_weights = [0.0] * _CELLS
        self._cell_approvals = [0.0] * _CELLS
        self.outcomes: deque[tuple[float, bool]] = deque(maxlen=MAX_OUTCOMES)
        """(calibrated score before the outcome was known, outcome), oldest first."""

    def calibrate(self, score: float) -> float:
        """The calibrated score, in (0, 1)."""
        return self._cap(self._linear(logit(score)))

    def learn(self, score: float, outcome: bool, weight: float = 1.0) -> float:
        """Learn the outcome of a score, `weight` in (0, 1]; returns what the score was calibrated to before."""
        x = logit(score)
        probability = self._linear(x)
        before = self._cap(probability)
        self.outcomes.append((before, outcome))
        cell = _cell(logit(probability))
        self._cell_weights[cell] += weight
        self._cell_approvals[cell] += weight * outcome
        self._update(x, outcome, weight)
        return before

    def _linear(self, x: float) -> float:
        """The probability that the line gives, drawn towards a half by how unsure the line is."""
        offset, slope = self._line
        variance = self._covariance[0] + 2 * x * self._covariance[1] + x * x * self._covariance[2]
        return logistic((offset + slope * x) / math.sqrt(1 + math.pi * variance / 8))

    def _cap(self, probability: float) -> float:
        """At most how often scores as high came true."""
        value = probability
        if value > CREDIBLE_BELOW:
            low = max(0, _cell(logit(value)) - _CELLS_BELOW)
            weight = sum(self._cell_weights[low:])
            prior = PRIOR_STRENGTH * PRIOR_FADES_FROM / max(weight, PRIOR_FADES_FROM)
            cap = (sum(self._cell_approvals[low:]) + PRIOR_SHARE * prior) / (weight + prior)
            value = min(value, max(cap, CREDIBLE_BELOW))
        return min(max(value, 0.001), 0.999)

    def _update(self, x: float, outcome: bool, weight: float) -> None:
        a, b, c = self._covariance
        offset_covariance, slope_covariance = a + b * x, b + c * x
        variance = offset_covariance + slope_covariance * x
        step, shrinkage = logistic_update(self._line[0] + self._line[1] * x, variance, outcome, weight)
        self._line = [self._line[0] + offset_covariance * step, self._line[1] + slope_covariance * step]
        self._covariance = [
            a - shrinkage * offset_covariance * offset_covariance,
            b - shrinkage * offset_covariance * slope_covariance,
            c - shrinkage * slope_covariance * slope_covariance,
        ]


@dataclass(slots=True)
class _Kind:
    """Outcomes of one kind of card."""

    approved: float = 0.0
    """Weight of its approvals; older ones fade. So do the next two."""
    dismissed: float = 0.0
    score_sum: float = 0.0
    decision_count: int = 0
    approval_count: int = 0

    @property
    def weight(self) -> float:
        return self.approved + self.dismissed

    @property
    def score_weight(self) -> float:
        """How far the score counts within this kind, in (0, 1]: less where all its decisions agree."""
        disagreement = 2 * min(self.approved, self.dismissed)
        return min(1.0, (HALF_UNANIMOUS + disagreement) / (HALF_UNANIMOUS + self.weight))


class KindCalibration:
    """Calibrates the score of a card by the outcomes of its kind, oldest first; scores and results are in [0, 1].

    Within a kind a higher score never comes out lower. A kind that was always approved is not lowered by any score: its
    evidence may be fresh or old. A kind without decisions stays within `UNDECIDED_MOVE` of the base rate of new kinds.
    """

    def __init__(self) -> None:
        self._kinds: dict[str, _Kind] = {}
        self._base_approved = 0.0
        self._base_decided = 0.0
        self._score_sum = 0.0
        self._score_weight = 0.0
        self._slope, self._slope_variance = SLOPE, SLOPE_SPREAD**2
        self.outcomes: deque[tuple[float, bool]] = deque(maxlen=MAX_OUTCOMES)
        """(calibrated score before the outcome was known, outcome), oldest first."""

    @property
    def base_rate(self) -> float:
        """The share approved of the first decisions on each kind, in (0, 1); a half while there are none."""
        return (self._base_approved + 0.5 * BASE_STRENGTH) / (self._base_decided + BASE_STRENGTH)

    def calibrate(self, kind: str, score: float) -> float:
        """The calibrated score of a card of this kind, in (0, 1)."""
        record = self._kinds.get(kind, _Kind())
        rate, distance = self._compare_score(record, score)
        limit = UNDECIDED_MOVE + (1 - UNDECIDED_MOVE) * record.weight / (record.weight + HALF_UNANIMOUS)
        value = logistic(logit(rate) + max(self._slope, 0.0) * distance)
        return min(max(value, rate - limit, 0.001), rate + limit, 0.999)

    def learn(self, kind: str, score: float, outcome: bool, weight: float = 1.0) -> float:
        """Learn the outcome of a score, `weight` in (0, 1]; returns what the score was calibrated to before."""
        before = self.calibrate(kind, score)
        self.outcomes.append((before, outcome))
        record = self._kinds.setdefault(kind, _Kind())
        if record.decision_count:
            self._update_slope(*self._compare_score(record, score), outcome, weight)
        if record.decision_count < BASE_DECISIONS:
            self._base_approved += weight * outcome
            self._base_decided += weight
        fade = math.exp(-weight / KIND_WINDOW)
        record.approved = record.approved * fade + weight * outcome
        record.dismissed = record.dismissed * fade + weight * (not outcome)
        record.score_sum = record.score_sum * fade + weight * score
        record.decision_count += 1
        record.approval_count += outcome
        fade = math.exp(-weight / OVERALL_WINDOW)
        self._score_sum = self._score_sum * fade + weight * score
        self._score_weight = self._score_weight * fade + weight
        return before

    def _compare_score(self, record: _Kind, score: float) -> tuple[float, float]:
        """The share that is expected of the kind, and how far the score lies from what is usual for it."""
        rate = (record.approved + KIND_STRENGTH * self.base_rate) / (record.weight + KIND_STRENGTH)
        mean = self._score_sum / self._score_weight if self._score_weight else score
        distance = score - (record.score_sum + KIND_STRENGTH * mean) / (record.weight + KIND_STRENGTH)
        if record.decision_count and record.approval_count == record.decision_count:
            distance = max(distance, 0.0)
        elif record.decision_count >= MIN_UNANIMOUS and not record.approval_count:
            distance = min(distance, 0.0)
        return rate, distance * record.score_weight

    def _update_slope(self, rate: float, distance: float, outcome: bool, weight: float) -> None:
        """Learn how much the score is worth: a logistic regression with a single slope."""
        covariance = self._slope_variance * distance
        step, shrinkage = logistic_update(logit(rate) + self._slope * distance, covariance * distance, outcome, weight)
        self._slope += covariance * step
        self._slope_variance -= shrinkage * covariance * covariance


def calibration_error(scores: Sequence[float], outcomes: Sequence[bool], bins: int = BINS) -> float:
    """Expected calibration error, in [0, 1]: the mean difference of score and outcome over bins of equal width."""
    differences = [0.0] * bins
    for score, outcome in zip(scores, outcomes, strict=True):
        differences[min(int(score * bins), bins - 1)] += outcome - score
    return sum(map(abs, differences)) / len(scores) if scores else 0.0


def calibration_bound(scores: Sequence[float], seed: int = 0) -> float:
    """The 95th percentile of `calibration_error` if such scores are perfectly calibrated."""
    import numpy

    random = numpy.random.default_rng(seed)
    probabilities = numpy.asarray(scores, numpy.float64)
    bin_of_score = numpy.zeros((len(probabilities), BINS))
    bins = numpy.minimum((probabilities * BINS).astype(int), BINS - 1)
    bin_of_score[numpy.arange(len(probabilities)), bins] = 1.0
    outcomes = (random.random((SAMPLES, len(probabilities))) < probabilities).astype(numpy.float64)
    errors = numpy.abs((outcomes - probabilities) @ bin_of_score).sum(axis=1) / len(probabilities)
    return float(numpy.quantile(errors, BOUND_QUANTILE))


def _cell(x: float) -> int:
    return min(max(round((x - _LOWEST_CELL) / _CELL_WIDTH), 0), _CELLS - 1)
