"""Calibrates scores by the outcomes of earlier scores (SPEC 2.6, 8.6). Pure. Learning an outcome takes constant time.

The `learner` teaches two calibrations, which differ because they answer different questions. `TwinCalibration` says how
far the Twin's own probability may be believed. `KindCalibration` says what share of cards like this one you approve:
the outcomes of its kind count most, and the score only moves a card within its kind.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from engine.inference import logistic, logit, update_by_logistic_regression


@dataclass(slots=True)
class _Slope:
    """A logistic regression with one coefficient: the log-odds are `offset + value * x`."""

    value: float
    variance: float

    def learn(self, x: float, outcome: bool, weight: float, *, offset: float = 0.0) -> None:
        """Learn the outcome at `x`, `weight` in (0, 1]."""
        covariance = self.variance * x
        step, shrinkage = update_by_logistic_regression(offset + self.value * x, covariance * x, outcome, weight)
        self.value += covariance * step
        self.variance -= shrinkage * covariance * covariance


# -- the Twin's own probability

CREDIBLE_BELOW = 0.75
"""A score up to this value is believed without outcomes of its own."""

TWIN_SLOPE_SPREAD = 0.3
"""Standard deviation of the factor for the Twin before the first outcome. Its mean is then 1."""

PRIOR_SHARE = 0.5
"""Prior share of scores above `CREDIBLE_BELOW` that come true."""

PRIOR_STRENGTH = 8.0
"""The prior weighs as much as this number of cases."""

PRIOR_FADES_FROM = 12.0
"""Number of outcomes after which the prior fades. Otherwise it would lower scores that come true nine times in ten."""

CELL_WIDTH, LOWEST_CELL, CELLS = 0.25, -5.0, 41
"""Outcomes are counted in cells of log-odds: the width of a cell, the middle of the lowest one, and their number."""

CELLS_BELOW = 2
"""A score is capped by the outcomes in its own cell, in all cells above, and in this number of cells below. An outcome
stays in the cell where its score was, while the factor, and so the cell of the same score, changes."""


class TwinCalibration:
    """Calibrates the Twin's own probability by its outcomes, oldest first.

    The correction is a factor of the log-odds, without an offset: an error in the newest cases is an error about the
    cards asked lately, and says nothing about other cards.

    Above `CREDIBLE_BELOW`, the result is capped by the share of about equally high scores that came true. For 0.9,
    whose log-odds are 2.2, these are the scores from 0.84 on, two cells below. If all n of them came true, the cap is
    (n + 4) / (n + 8): 0.79 after 11, and 0.8 after 12. From then on the prior fades: after 24, which are twice as
    many, it weighs only half, and the cap is (24 + 2) / (24 + 4), which is 0.93.
    """

    def __init__(self) -> None:
        self._slope = _Slope(1.0, TWIN_SLOPE_SPREAD**2)
        self._cell_weights = [0.0] * CELLS
        self._cell_approvals = [0.0] * CELLS

    def calibrate(self, score: float) -> float:
        """The calibrated score, in (0, 1)."""
        return self._apply_cap(self._apply_slope(logit(score)))

    def learn(self, score: float, outcome: bool, weight: float = 1.0) -> None:
        """Learn the outcome of a score, `weight` in (0, 1]."""
        log_odds = logit(score)
        cell = _find_cell(logit(self._apply_slope(log_odds)))
        self._cell_weights[cell] += weight
        self._cell_approvals[cell] += weight * outcome
        self._slope.learn(log_odds, outcome, weight)

    def _apply_slope(self, log_odds: float) -> float:
        """The probability by the slope. The less certain the slope is, the nearer it is to a half."""
        variance = log_odds * log_odds * self._slope.variance
        return logistic(self._slope.value * log_odds / math.sqrt(1 + math.pi * variance / 8))

    def _apply_cap(self, probability: float) -> float:
        """The probability, at most the share of equally high scores that came true."""
        if probability > CREDIBLE_BELOW:
            low = max(0, _find_cell(logit(probability)) - CELLS_BELOW)
            weight = sum(self._cell_weights[low:])
            prior = PRIOR_STRENGTH * PRIOR_FADES_FROM / max(weight, PRIOR_FADES_FROM)
            cap = (sum(self._cell_approvals[low:]) + PRIOR_SHARE * prior) / (weight + prior)
            probability = min(probability, max(cap, CREDIBLE_BELOW))
        return min(max(probability, 0.001), 0.999)


def _find_cell(log_odds: float) -> int:
    """The index of the cell in which these log-odds are counted."""
    return min(max(round((log_odds - LOWEST_CELL) / CELL_WIDTH), 0), CELLS - 1)


# -- the confidence of a kind of card

KIND_WINDOW = 24.0
"""About how many of the newest decisions of a kind count."""

HALF_UNANIMOUS = 8.0
"""Number of decisions on a kind that all agree, after which the score counts only half: it seems not to matter."""


@dataclass(slots=True)
class _Kind:
    """Outcomes of one kind of card."""

    approved: float = 0.0
    """Weight of its approvals. Older ones fade, also in the next two fields."""
    dismissed: float = 0.0
    score_sum: float = 0.0
    decision_count: int = 0
    approval_count: int = 0

    @property
    def weight(self) -> float:
        """The weight of its decisions."""
        return self.approved + self.dismissed

    @property
    def score_weight(self) -> float:
        """The weight of the score within this kind, in (0, 1]. It is lower if all decisions on the kind agree."""
        disagreement = 2 * min(self.approved, self.dismissed)
        return min(1.0, (HALF_UNANIMOUS + disagreement) / (HALF_UNANIMOUS + self.weight))

    def add(self, score: float, outcome: bool, weight: float) -> None:
        """Count one outcome of a score."""
        fade = math.exp(-weight / KIND_WINDOW)
        self.approved = self.approved * fade + weight * outcome
        self.dismissed = self.dismissed * fade + weight * (not outcome)
        self.score_sum = self.score_sum * fade + weight * score
        self.decision_count += 1
        self.approval_count += outcome


KIND_STRENGTH = 3.0
"""In the share approved of a kind, the base rate weighs as much as this number of decisions."""

BASE_DECISIONS = 3
"""The base rate of new kinds is computed from this number of first decisions on each kind."""

BASE_STRENGTH = 4.0
"""The prior of the base rate, which is a half, weighs as much as this number of decisions."""

OVERALL_WINDOW = 100.0
"""About how many of the newest decisions of all kinds count for their mean score."""

UNDECIDED_MOVE = 0.1
"""Maximum distance by which the score moves a card of a kind without decisions. With decisions it grows towards 1."""

SLOPE, SLOPE_SPREAD = 14.0, 8.0
"""Change of the log-odds for a score that is higher by 1, within a kind, before the first decision; and its standard
deviation."""

MIN_UNANIMOUS = 12
"""Number of dismissals of a kind without an approval, after which no score raises its cards."""

MAX_OUTCOMES = 400
"""Maximum number of the newest scores on which calibration is checked. Each was made before its outcome."""


class KindCalibration:
    """Calibrates the score of a card by the outcomes of its kind, oldest first; scores and results are in [0, 1].

    Within a kind, a higher score never gets a lower result. A kind that was always approved is not lowered by any
    score, whether its evidence is fresh or old. A kind without decisions stays within `UNDECIDED_MOVE` of the base rate
    of new kinds.
    """

    def __init__(self) -> None:
        self._kinds: dict[str, _Kind] = {}
        self._base_approved = 0.0
        self._base_decided = 0.0
        self._score_sum = 0.0
        self._score_weight = 0.0
        self._slope = _Slope(SLOPE, SLOPE_SPREAD**2)
        self.outcomes: deque[tuple[float, bool]] = deque(maxlen=MAX_OUTCOMES)
        """(score that was calibrated before its outcome, outcome), oldest first."""

    @property
    def base_rate(self) -> float:
        """The share approved of the first decisions on each kind, in (0, 1); a half without decisions."""
        return (self._base_approved + 0.5 * BASE_STRENGTH) / (self._base_decided + BASE_STRENGTH)

    def calibrate(self, kind: str, score: float) -> float:
        """The calibrated score of a card of this kind, in (0, 1)."""
        record = self._kinds.get(kind, _Kind())
        rate, distance = self._compare_score(record, score)
        limit = UNDECIDED_MOVE + (1 - UNDECIDED_MOVE) * record.weight / (record.weight + HALF_UNANIMOUS)
        value = logistic(logit(rate) + max(self._slope.value, 0.0) * distance)
        return min(max(value, rate - limit, 0.001), rate + limit, 0.999)

    def learn(self, kind: str, score: float, outcome: bool, weight: float = 1.0) -> None:
        """Learn the outcome of a score, `weight` in (0, 1]."""
        self.outcomes.append((self.calibrate(kind, score), outcome))
        record = self._kinds.setdefault(kind, _Kind())
        if record.decision_count:
            rate, distance = self._compare_score(record, score)
            self._slope.learn(distance, outcome, weight, offset=logit(rate))
        if record.decision_count < BASE_DECISIONS:
            self._base_approved += weight * outcome
            self._base_decided += weight
        record.add(score, outcome, weight)
        fade = math.exp(-weight / OVERALL_WINDOW)
        self._score_sum = self._score_sum * fade + weight * score
        self._score_weight = self._score_weight * fade + weight

    def _compare_score(self, record: _Kind, score: float) -> tuple[float, float]:
        """(expected share approved of the kind, difference of the score from the usual score of the kind)."""
        rate = (record.approved + KIND_STRENGTH * self.base_rate) / (record.weight + KIND_STRENGTH)
        mean = self._score_sum / self._score_weight if self._score_weight else score
        distance = score - (record.score_sum + KIND_STRENGTH * mean) / (record.weight + KIND_STRENGTH)
        if record.decision_count and record.approval_count == record.decision_count:
            distance = max(distance, 0.0)
        elif record.decision_count >= MIN_UNANIMOUS and not record.approval_count:
            distance = min(distance, 0.0)
        return rate, distance * record.score_weight
