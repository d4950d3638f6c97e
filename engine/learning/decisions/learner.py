"""The embedded Twin's model (SPEC 2.3b): an online learner over past decisions, oldest first. Pure.

A card becomes a row of numbers, its features: those of its text and evidence, which are extracted when the card is made
(`extract_features`), and the shares approved of similar past decisions (`habits`). A Bayesian logistic regression gives
each number a weight. Each decision is predicted before it is learned, and `calibration` learns from these predictions
how far to trust the next.

The same decisions give the same learner. Learning a decision takes about 0.1 ms, independent of their number.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray

from engine.frozen import frozen
from engine.inference import logistic, logit, update_by_logistic_regression
from engine.learning.decisions import (
    FEATURE_NAMES,
    CardFeatures,
    PastDecision,
    TextFeatures,
    Vector,
    hash_word_set,
    measure_length,
    quantise,
)
from engine.learning.decisions.calibration import KindCalibration, TwinCalibration
from engine.learning.decisions.habits import (
    EXPLICIT_WEIGHT,
    Habits,
    NewestDecisions,
    make_level_keys,
    make_place_keys,
    make_time_keys,
    make_word_keys,
)
from engine.text import split_prompt_words

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


# -- the features of text

MAX_EARLIER = 20
"""Maximum number of lines of earlier evidence that are used."""

MAX_FEATURE = 3.0
"""Features are limited to this, above and below 0."""


@frozen
class Scale:
    """The usual value of a quantity and its usual deviation, by which the quantity becomes a feature."""

    centre: float
    spread: float

    def apply(self, value: float) -> float:
        """The feature: how many deviations the value is above the usual one, at most `MAX_FEATURE`."""
        return min(max((value - self.centre) / self.spread, -MAX_FEATURE), MAX_FEATURE)


EMBEDDING_SIMILARITY = Scale(centre=0.35, spread=0.18)
WORD_SIMILARITY = Scale(centre=0.1, spread=0.15)
"""The scales of the similarity of two texts: of their embeddings, and of their hashed words."""

NEWER_LINES = Scale(centre=0.25, spread=0.5)
"""The scale of the share of the lines of evidence that are newer than the one nearest to the prompt."""

WORD_SCALES = (
    # The share of the prompt's words that the latest line has, and the share that any line has.
    Scale(centre=0.15, spread=0.15),
    Scale(centre=0.3, spread=0.2),
    # Logarithms: of the characters of the prompt, of those of the latest line, and of the number of earlier lines.
    Scale(centre=4.2, spread=0.5),
    Scale(centre=4.4, spread=0.5),
    Scale(centre=2.0, spread=1.0),
    # The share of the latest line's words that no earlier line has.
    Scale(centre=0.5, spread=0.5),
)
"""The scales of the features that need no vectors, in the order of `_measure_words`.

The centres and spreads of all scales are round numbers that were set by hand. On the 920 proposals that
`tests/benchmarks/test_twin.py` reads, the features have means from -0.4 to 1.1 and deviations from 0.5 to 1.2. That is
near enough, because the learner gives each feature a weight. If you change a scale, stored features no longer fit: then
change their format, too."""


def extract_features(
    prompt: str, latest: str, earlier: Sequence[str], embeddings: Sequence[Vector | None]
) -> TextFeatures:
    """Extract the features of a proposal from its `prompt` and from its evidence: the `latest` line, and the `earlier`
    lines, oldest first.

    `embeddings` are those of the prompt, the latest line and each earlier line. If one is missing, vectors of hashed
    words replace all of them.
    """
    earlier = earlier[-MAX_EARLIER:]
    texts = (prompt, latest, *earlier)
    vectors: list[Any] = [*embeddings[:2], *embeddings[2:][-MAX_EARLIER:]]
    scale = EMBEDDING_SIMILARITY
    if any(vector is None for vector in vectors):
        vectors, scale = [hash_word_set(_find_subject_words(text)) for text in texts], WORD_SIMILARITY
    rows = numpy.stack(vectors)
    by_vectors = _compare_lines(rows[0], rows[1:], scale)
    by_words = zip(WORD_SCALES, _measure_words(prompt, latest, earlier), strict=True)
    embedding = b"" if embeddings[0] is None else quantise(embeddings[0])
    return TextFeatures((*by_vectors, *(word_scale.apply(value) for word_scale, value in by_words)), embedding)


def _compare_lines(prompt: Vector, lines: Vector, scale: Scale) -> Iterator[float]:
    """How near the lines of evidence are to the prompt: the first four of `FEATURE_NAMES`. `lines` has a row for each:
    the latest line, and then the earlier ones, oldest first."""
    near_latest, *near_earlier = map(float, lines @ prompt)
    newest_first = [near_latest, *reversed(near_earlier)]
    nearest = max(newest_first)
    mean = lines[1:].mean(axis=0) if near_earlier else lines[0]
    length = measure_length(mean)
    yield scale.apply(near_latest)
    yield scale.apply(float(mean @ prompt) / length if length else scale.centre)
    yield scale.apply(nearest)
    yield NEWER_LINES.apply(newest_first.index(nearest) / len(newest_first))


def _measure_words(prompt: str, latest: str, earlier: Sequence[str]) -> Iterator[float]:
    """The quantities that `WORD_SCALES` scales, in its order."""
    words, latest_words = _find_subject_words(prompt), _find_subject_words(latest)
    earlier_words = frozenset().union(*map(_find_subject_words, earlier))
    yield _measure_overlap(words, latest_words)
    yield _measure_overlap(words, earlier_words | latest_words)
    yield math.log1p(len(prompt))
    yield math.log1p(len(latest))
    yield math.log1p(len(earlier))
    yield _measure_overlap(latest_words, latest_words - earlier_words)


def _measure_overlap(words: frozenset[str], others: frozenset[str]) -> float:
    """The share of `words` that is also in `others`."""
    return len(words & others) / len(words) if words else 0.0


STOP_WORDS = frozenset(
    {
        "the", "and", "you", "your", "for", "with", "that", "this", "from", "are", "can", "could", "would", "will",
        "into", "has", "have", "use", "user",
    }
)  # fmt: skip
"""Words that say nothing about the subject of a text."""


def _find_subject_words(text: str) -> frozenset[str]:
    """The words of a text that say something about its subject."""
    return split_prompt_words(text) - STOP_WORDS
