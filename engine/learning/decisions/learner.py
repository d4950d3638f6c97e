"""The embedded Twin's model (SPEC 2.3b): an online learner over past decisions, oldest first. Pure.

A card becomes a row of numbers: the features of its text (`text_features`), and the shares approved of
`similar_decisions`. A Bayesian logistic regression gives each number a weight. Each decision is predicted before it is
learned, and `calibration` learns from these predictions how far to trust the next.

The same decisions give the same learner. Learning a decision takes about 0.1 ms, independent of their number.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy

from engine.frozen import frozen
from engine.learning.decisions.calibration import KindCalibration, TwinCalibration, logistic, logistic_update, logit
from engine.learning.decisions.decisions import FEATURE_NAMES, CardFeatures, PastDecision
from engine.learning.decisions.similar_decisions import (
    EXPLICIT_WEIGHT,
    Habits,
    NewestDecisions,
    level_keys,
    place_keys,
    time_keys,
    word_keys,
)

Array = Any


class LogisticRegression:
    """A Bayesian logistic regression: the mean and covariance of its weights."""

    def __init__(self, mean: Array, deviation: Array) -> None:
        self.mean = numpy.array(mean, numpy.float64)
        self.covariance = numpy.diag(numpy.array(deviation, numpy.float64) ** 2)

    def predict(self, features: Array) -> float:
        """The probability of approval, in (0, 1). The less is known, the nearer it is to a half."""
        mean = float(self.mean @ features)
        variance = float(features @ self.covariance @ features)
        return logistic(mean / math.sqrt(1 + math.pi * variance / 8))

    def learn(self, features: Array, outcome: bool, weight: float = 1.0) -> None:
        """Learn one case, `weight` in (0, 1]."""
        covariance = self.covariance @ features
        step, shrinkage = logistic_update(float(self.mean @ features), float(features @ covariance), outcome, weight)
        self.mean += covariance * step
        self.covariance -= numpy.outer(covariance, covariance) * shrinkage


FEATURE_PRIORS: tuple[tuple[str, float, float], ...] = (
    ("always", 0.0, 0.3),
    *((name, 0.0, 0.3) for name in FEATURE_NAMES),
    ("altogether", 1.0, 0.2),
    ("kind", 1.0, 0.3),
    ("channel", 0.7, 0.3),
    ("workspace", 0.7, 0.3),
    ("altogether lately", 0.2, 0.2),
    ("kind lately", 0.6, 0.3),
    ("channel lately", 0.2, 0.2),
    ("workspace lately", 0.2, 0.2),
    ("part of the day", 0.7, 0.3),
    ("day of the week", 0.7, 0.3),
    ("hour", 0.7, 0.3),
    ("this workspace", 0.3, 0.3),
    ("this channel", 0.3, 0.3),
    ("near in meaning", 0.7, 0.3),
    ("what its words were chosen for", 0.4, 0.3),
    ("what its best word was chosen for", 0.3, 0.3),
    ("what its worst word was chosen for", 0.3, 0.3),
)
"""(name, mean of its weight before the first decision, standard deviation of its weight) of each feature. The features
of the evidence come first. The others are the log-odds that each level adds to the level above, so the first estimate
is that of the counts."""


@frozen
class Estimate:
    """The probability that the operator approves, before and after calibration, in (0, 1)."""

    raw: float
    probability: float


class Learner:
    """The counts and weights that were learned from the decisions up to `last_id`."""

    def __init__(self) -> None:
        self.habits = Habits()
        self.neighbours = NewestDecisions()
        _, means, deviations = zip(*FEATURE_PRIORS, strict=True)
        self._regression = LogisticRegression(means, deviations)
        self.calibration = TwinCalibration()
        """Calibrates the Twin's own probability."""
        self.kind_calibration = KindCalibration()
        """Calibrates the whole confidence (SPEC 8.6)."""
        self.last_id = 0

    def estimate(self, query: CardFeatures) -> Estimate:
        """The probability that the operator approves this card."""
        return self._estimate(self._row(query))

    def learn(self, decision: PastDecision) -> Estimate:
        """Learn one decision, newer than all before; returns the estimate made before it was learned."""
        row = self._row(decision.card)
        estimate = self._estimate(row)
        if decision.weight >= EXPLICIT_WEIGHT:
            self.calibration.learn(estimate.raw, decision.chosen, decision.weight)
            if decision.raw is not None:
                self.kind_calibration.learn(decision.card.kind, decision.raw, decision.chosen, decision.weight)
        self._regression.learn(row, decision.chosen, decision.weight)
        self.habits.add(decision)
        self.neighbours.add(decision)
        self.last_id = max(self.last_id, decision.id)
        return estimate

    def pattern_share(self, query: CardFeatures) -> float:
        """The shrunk share approved among the most similar past decisions (SPEC 2.5), in [0, 1]."""
        return self.neighbours.pattern_share(query, self.habits.shares_of([()])[0].overall)

    def _estimate(self, row: Any) -> Estimate:
        raw = self._regression.predict(row)
        return Estimate(raw, self.calibration.calibrate(raw))

    def _row(self, query: CardFeatures) -> Any:
        """The values of `FEATURE_PRIORS` for this card."""
        habits = self.habits
        shares = habits.shares_of(level_keys(query))
        overall, kind = shares[0].overall, shares[1].overall
        level_odds = [logit(share.overall) for share in shares]
        time_odds = [level_odds[1], *(logit(share.overall) for share in habits.shares_of(time_keys(query), kind))]
        time_odds += [time_odds[-1]] * (4 - len(time_odds))
        place_odds = [logit(habits.shares_of([key], overall)[0].overall) for key in place_keys(query)]
        word_shares = [habits.shares_of([key], overall)[0].recent for key in word_keys(query)]
        word_odds = [logit(share) - level_odds[0] for share in word_shares] or [0.0]
        row = [
            1.0,
            *query.text.numbers,
            *(level - above for above, level in pairwise([0.0, *level_odds])),
            *(logit(share.recent) - level for share, level in zip(shares, level_odds, strict=True)),
            *(level - above for above, level in pairwise(time_odds)),
            *(place - level_odds[0] for place in place_odds),
            logit(self.neighbours.text_share(query, kind)) - level_odds[1],
            sum(word_odds) / len(word_odds) ** 0.5,
            max(word_odds),
            min(word_odds),
        ]
        return numpy.array(row)
