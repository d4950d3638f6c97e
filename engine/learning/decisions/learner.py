"""The embedded Twin's model (SPEC 2.3b): an online learner over past decisions, oldest first. Pure.

A card becomes a row of numbers, its features: those of its text, and the shares approved of similar
past decisions. `habits` counts decisions of the same kind, channel, workspace, time and words. `NewestDecisions`
compares a card with each of the newest decisions, by its fields and by the meaning of its text. A Bayesian logistic
regression gives each number a weight. Each decision is predicted before it is learned, and `calibration` learns from
these predictions how far to trust the next.

The same decisions give the same learner. Learning a decision takes about 0.1 ms, independent of their number.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import NamedTuple
from zlib import crc32

import numpy
from numpy.typing import NDArray

from engine.frozen import frozen
from engine.inference import logistic, logit, update_by_logistic_regression
from engine.learning.decisions import (
    EMBEDDING_SIZE,
    FEATURE_NAMES,
    WORD_DIMENSIONS,
    CardFeatures,
    PastDecision,
    dequantise,
    hash_word_set,
)
from engine.learning.decisions.calibration import KindCalibration, TwinCalibration
from engine.learning.decisions.habits import (
    EXPLICIT_WEIGHT,
    Habits,
    make_level_keys,
    make_place_keys,
    make_time_keys,
    make_word_keys,
    shrink_share,
)

Array = NDArray[numpy.float64]
"""A number for each of `FEATURE_PRIORS`."""


class Prior(NamedTuple):
    """The weight of a feature before the first decision: its mean and its standard deviation."""

    mean: float
    deviation: float = 0.3


FEATURE_PRIORS: Mapping[str, Prior] = {
    "always": Prior(0.0),
    **dict.fromkeys(FEATURE_NAMES, Prior(0.0)),
    "altogether": Prior(1.0, 0.2),
    "kind": Prior(1.0),
    "channel": Prior(0.7),
    "workspace": Prior(0.7),
    "altogether lately": Prior(0.2, 0.2),
    "kind lately": Prior(0.6),
    "channel lately": Prior(0.2, 0.2),
    "workspace lately": Prior(0.2, 0.2),
    "part of the day": Prior(0.7),
    "day of the week": Prior(0.7),
    "hour": Prior(0.7),
    "this workspace": Prior(0.3),
    "this channel": Prior(0.3),
    "near in meaning": Prior(0.7),
    "what its words were chosen for": Prior(0.4),
    "what its best word was chosen for": Prior(0.3),
    "what its worst word was chosen for": Prior(0.3),
}
"""The prior of each feature by its name. The features of the evidence come first. The others are the log-odds that each
level adds to the level above, so the first estimate is that of the counts."""

LEVELS = ("altogether", "kind", "channel", "workspace")
LEVELS_LATELY = ("altogether lately", "kind lately", "channel lately", "workspace lately")
"""The features of `make_level_keys`, in its order: of all decisions, and of the recent ones."""

TIMES = ("part of the day", "day of the week", "hour")
"""The features of `make_time_keys`, in its order."""

PLACES = ("this workspace", "this channel")
"""The features of `make_place_keys`, in its order."""


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
        self._regression = LogisticRegression(FEATURE_PRIORS.values())
        self.calibration = TwinCalibration()
        """Calibrates the Twin's own probability."""
        self.kind_calibration = KindCalibration()
        """Calibrates the whole confidence (SPEC 8.6)."""
        self.last_id = 0

    def estimate(self, query: CardFeatures) -> Estimate:
        """The probability that the operator approves this card."""
        return self._estimate(_make_row(self._compute_features(query)))

    def learn(self, decision: PastDecision) -> Estimate:
        """Learn one decision, newer than all before; returns the estimate made before it was learned."""
        row = _make_row(self._compute_features(decision.card))
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

    def compute_pattern_share(self, query: CardFeatures) -> float:
        """The shrunk share approved among the most similar past decisions (SPEC 2.5), in [0, 1]."""
        return self.neighbours.compute_pattern_share(query, self.habits.compute_share(()).overall)

    def _estimate(self, row: Array) -> Estimate:
        """The estimate for a card with these values."""
        raw = self._regression.predict(row)
        return Estimate(raw, self.calibration.calibrate(raw))

    def _compute_features(self, query: CardFeatures) -> dict[str, float]:
        """The value of each of `FEATURE_PRIORS` for this card, by its name."""
        habits = self.habits
        shares = habits.compute_shares(make_level_keys(query))
        overall, kind = shares[0].overall, shares[1].overall
        level_odds = [logit(share.overall) for share in shares]
        overall_odds, kind_odds = level_odds[:2]
        time_odds = [kind_odds, *(logit(share.overall) for share in habits.compute_shares(make_time_keys(query), kind))]
        if query.hour is None:
            time_odds.append(time_odds[-1])
        place_odds = [logit(habits.compute_share(key, overall).overall) for key in make_place_keys(query)]
        word_shares = [habits.compute_share(key, overall).recent for key in make_word_keys(query)]
        word_odds = [logit(share) - overall_odds for share in word_shares] or [0.0]
        features = {"always": 1.0, **dict(zip(FEATURE_NAMES, query.text.numbers, strict=True))}
        for name, (odds_above, odds) in zip(LEVELS, pairwise([0.0, *level_odds]), strict=True):
            features[name] = odds - odds_above
        for name, share, odds in zip(LEVELS_LATELY, shares, level_odds, strict=True):
            features[name] = logit(share.recent) - odds
        for name, (odds_above, odds) in zip(TIMES, pairwise(time_odds), strict=True):
            features[name] = odds - odds_above
        for name, odds in zip(PLACES, place_odds, strict=True):
            features[name] = odds - overall_odds
        features["near in meaning"] = logit(self.neighbours.compute_text_share(query, kind)) - kind_odds
        features["what its words were chosen for"] = sum(word_odds) / len(word_odds) ** 0.5
        features["what its best word was chosen for"] = max(word_odds)
        features["what its worst word was chosen for"] = min(word_odds)
        return features


def _make_row(features: Mapping[str, float]) -> Array:
    """The values of features in the order of `FEATURE_PRIORS`. Raises KeyError if one is missing."""
    return numpy.array([features[name] for name in FEATURE_PRIORS])


# -- regression


class LogisticRegression:
    """A Bayesian logistic regression: the mean and covariance of its weights."""

    def __init__(self, priors: Collection[Prior]) -> None:
        """`priors` are those of the weights, in the order of the features."""
        self.mean = numpy.array([prior.mean for prior in priors], numpy.float64)
        self.covariance = numpy.diag(numpy.array([prior.deviation for prior in priors], numpy.float64) ** 2)

    def predict(self, features: Array) -> float:
        """The probability of approval, in (0, 1). The less is known, the nearer it is to a half."""
        mean = float(self.mean @ features)
        variance = float(features @ self.covariance @ features)
        return logistic(mean / math.sqrt(1 + math.pi * variance / 8))

    def learn(self, features: Array, outcome: bool, weight: float = 1.0) -> None:
        """Learn one case, `weight` in (0, 1]."""
        covariance = self.covariance @ features
        step, shrinkage = update_by_logistic_regression(
            float(self.mean @ features), float(features @ covariance), outcome, weight
        )
        self.mean += covariance * step
        self.covariance -= numpy.outer(covariance, covariance) * shrinkage


# -- the newest decisions

RING_SIZE = 512
"""Number of the newest decisions that are kept."""

NEAREST = 20
"""Number of the most similar decisions that are compared."""

MIN_SIMILARITY = 0.4
"""Minimum similarity of a decision that counts."""

FIELD_WEIGHTS = numpy.array([0.4, 0.15, 0.15, 0.1], numpy.float32)
"""Similarity for the same kind, channel, workspace and flow."""

TEXT_WEIGHT = 0.2
"""Similarity for the same text."""

MIN_TEXT_SIMILARITY = 0.3
"""Minimum similarity of a text that counts by its text alone. Above it, the weight grows with the square, to about
2."""

Floats = NDArray[numpy.float32]
"""A number for each decision in the ring."""


class NewestDecisions:
    """A ring of the newest decisions. Each array has a row for each of them."""

    def __init__(self) -> None:
        self.count = 0
        """Number of decisions added so far, including those that left the ring."""
        self._fields = numpy.zeros((RING_SIZE, 4), numpy.int64)
        self._words = numpy.zeros((RING_SIZE, WORD_DIMENSIONS), numpy.float32)
        self._embeddings = numpy.zeros((RING_SIZE, EMBEDDING_SIZE), numpy.float32)
        self._has_embedding = numpy.zeros(RING_SIZE, numpy.bool_)
        self._chosen = numpy.zeros(RING_SIZE, numpy.float32)
        self._weights = numpy.zeros(RING_SIZE, numpy.float32)

    def add(self, decision: PastDecision) -> None:
        """Add the newest decision. If there are more than `RING_SIZE`, the oldest is removed."""
        index, card = self.count % RING_SIZE, decision.card
        self._fields[index] = _hash_fields(card)
        self._words[index] = hash_word_set(card.words)
        self._embeddings[index] = dequantise(card.text.embedding)
        self._has_embedding[index] = bool(card.text.embedding)
        self._chosen[index] = decision.chosen
        self._weights[index] = decision.weight
        self.count += 1

    def compute_pattern_share(self, query: CardFeatures, prior: float) -> float:
        """The share chosen of the most similar decisions, weighted by similarity and drawn towards `prior`."""
        size = self._size
        same_fields = self._fields[:size] == _hash_fields(query)
        similarity = same_fields @ FIELD_WEIGHTS + TEXT_WEIGHT * self._compute_text_similarity(query)
        similarity[similarity < MIN_SIMILARITY] = 0.0
        if size > NEAREST:
            similarity[similarity < numpy.partition(similarity, size - NEAREST)[size - NEAREST]] = 0.0
        return self._compute_share_chosen(similarity, prior)

    def compute_text_share(self, query: CardFeatures, prior: float) -> float:
        """The share chosen of the decisions with a similar text, of any kind, drawn towards `prior`."""
        similarity = numpy.maximum(self._compute_text_similarity(query) - MIN_TEXT_SIMILARITY, 0.0) ** 2 * 4
        return self._compute_share_chosen(similarity, prior)

    @property
    def _size(self) -> int:
        """Number of decisions in the ring."""
        return min(self.count, RING_SIZE)

    def _compute_share_chosen(self, similarity: Floats, prior: float) -> float:
        """The share chosen of the decisions, weighted by similarity and drawn towards `prior`."""
        weights = similarity * self._weights[: self._size]
        return shrink_share(float((weights * self._chosen[: self._size]).sum()), float(weights.sum()), prior)

    def _compute_text_similarity(self, query: CardFeatures) -> Floats:
        """The similarities of the texts, in [0, 1]: by embeddings if both have one, else by words."""
        size = self._size
        similarity: Floats = self._words[:size] @ hash_word_set(query.words)
        if query.text.embedding:
            by_embedding = self._embeddings[:size] @ dequantise(query.text.embedding)
            similarity = numpy.where(self._has_embedding[:size], by_embedding, similarity)
        return similarity.clip(0.0, 1.0)


def _hash_fields(card: CardFeatures) -> NDArray[numpy.int64]:
    """The hashes of the fields that `FIELD_WEIGHTS` weighs, in their order."""
    fields = (card.kind, card.channel, card.workspace, card.flow)
    return numpy.array([crc32(name.encode()) for name in fields], numpy.int64)
