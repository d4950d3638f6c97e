"""The embedded Twin's model (SPEC 2.3b): an online learner over past decisions, oldest first. Pure.

A card becomes a row of numbers (`TextFeatures` has those of its text): its features, the shares chosen of similar
decisions (`Habits`) and of the nearest ones (`NewestDecisions`). A Bayesian logistic regression weighs them. Each
decision is predicted before it is learned, and these predictions teach `calibration` how far to trust the next.

The same decisions give the same learner. Learning a decision takes about 0.1 ms, however many came before.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from itertools import pairwise
from statistics import median
from typing import Any
from zlib import crc32

import numpy
from numpy.typing import NDArray

from engine.frozen import frozen
from engine.learning.decisions.calibration import KindCalibration, TwinCalibration, logistic, logistic_update, logit
from engine.learning.decisions.decisions import EMBEDDING_SIZE, FEATURE_NAMES, CardFeatures, PastDecision, TextFeatures
from engine.model import PartOfDay, prompt_words

# -- features of a proposal's text and of its evidence

WORD_DIMENSIONS = 256
"""Dimensions of a vector of hashed words, which replaces a missing embedding."""

MAX_EARLIER = 20
"""Maximum number of lines of earlier evidence that are read."""

STOP_WORDS = frozenset(
    {
        "the", "and", "you", "your", "for", "with", "that", "this", "from", "are", "can", "could", "would", "will",
        "into", "has", "have", "use", "user",
    }
)  # fmt: skip

Vector = Any
"""A unit vector, float32."""


@lru_cache(500)
def hash_words(words: frozenset[str]) -> Vector:
    """The unit vector of a bag of words; all 0 for none. It is cached, so do not change it."""
    vector = numpy.zeros(WORD_DIMENSIONS, numpy.float32)
    for word in words:
        word_hash = crc32(word.encode())
        vector[word_hash % WORD_DIMENSIONS] += 1.0 if word_hash & 0x80000000 else -1.0
    length = float(numpy.sqrt((vector * vector).sum()))
    return vector / length if length else vector


def extract_features(
    prompt: str, latest: str, earlier: Sequence[str] = (), vectors: Sequence[Vector | None] | None = None
) -> TextFeatures:
    """Extract the features of a proposal from its `prompt` and its evidence: the `latest`, and what was `earlier`,
    oldest first.

    `vectors` are the embeddings of the prompt, the latest and each of the earlier; if any is missing, vectors of hashed
    words replace all of them.
    """
    earlier = earlier[-MAX_EARLIER:]
    words, latest_words, earlier_words = _words(prompt), _words(latest), [_words(line) for line in earlier]
    candidates = [] if vectors is None else [*vectors[:2], *vectors[2:][-MAX_EARLIER:]]
    embeddings = [vector for vector in candidates if vector is not None]
    if len(embeddings) == 2 + len(earlier):
        rows, usual, spread = numpy.stack(embeddings), 0.35, 0.18
    else:
        rows = numpy.stack([hash_words(part) for part in (words, latest_words, *earlier_words)])
        usual, spread = 0.1, 0.15
    similarities = rows[1:] @ rows[0]
    newest_first = [float(similarities[0]), *map(float, similarities[:0:-1])]
    earlier_union = frozenset().union(*earlier_words)
    mean = rows[2:].mean(axis=0) if earlier_words else rows[1]
    length = float(numpy.sqrt((mean * mean).sum()))
    values = (
        (newest_first[0] - usual) / spread,
        (float(mean @ rows[0]) / length - usual if length else 0.0) / spread,
        (max(newest_first) - usual) / spread,
        newest_first.index(max(newest_first)) / len(newest_first) * 2 - 0.5,
        (_share(words, latest_words) - 0.15) / 0.15,
        (_share(words, earlier_union | latest_words) - 0.3) / 0.2,
        (math.log1p(len(prompt)) - 4.2) / 0.5,
        (math.log1p(len(latest)) - 4.4) / 0.5,
        (math.log1p(len(earlier)) - 2.0),
        _share(latest_words, latest_words - earlier_union) * 2 - 1,
    )
    embedding = vectors[0] if vectors else None
    numbers = tuple(min(max(value, -3.0), 3.0) for value in values)
    return TextFeatures(numbers, b"" if embedding is None else quantise(embedding))


def quantise(vector: Vector) -> bytes:
    """A unit vector as signed bytes, exact to about a hundredth."""
    return bytes(numpy.clip(numpy.rint(numpy.asarray(vector) * 512), -127, 127).astype(numpy.int8).tobytes())


def _words(text: str) -> frozenset[str]:
    return prompt_words(text) - STOP_WORDS


def _share(words: frozenset[str], others: frozenset[str]) -> float:
    """The share of `words` that is also in `others`."""
    return len(words & others) / len(words) if words else 0.0


def dequantise(data: bytes) -> Vector:
    """The unit vector of which `quantise` made `data`; all 0 for b""."""
    if not data:
        return numpy.zeros(EMBEDDING_SIZE, numpy.float32)
    vector = numpy.frombuffer(data, numpy.int8).astype(numpy.float32)
    length = float(numpy.sqrt((vector * vector).sum()))
    return vector / length if length else vector


# -- counts of similar decisions

NEUTRAL = 0.5
"""Share that is expected to be approved before the first decision."""

STRENGTH = 4.0
"""Number of decisions that the level above counts as."""

RECENT_WINDOW = 8.0
"""About how many of the newest decisions of a level are recent."""

EXPLICIT_WEIGHT = 0.8
"""Signals of at least this weight were given on the card itself; only they are explained in words."""

MIN_WAITS = 5
"""Number of approvals of a kind from which on its usual waiting time is learnt rather than assumed."""

MAX_WAITS = 101
"""Maximum number of waiting times that are kept for each kind."""

MIN_CHANNEL_APPROVALS = 3
"""The Twin names a channel after this many approvals there."""

WORD_BUCKETS = 65_536
"""Number of hashes of words. Hardly any two of the few thousand words that an operator uses share one."""

Key = tuple[str, ...]
"""A feature by which decisions are counted: a name and its values."""


@dataclass(slots=True)
class Counts:
    """Decisions under one key. `chosen` and `decided` are sums of weights; the explicit ones are plain numbers."""

    chosen: float = 0.0
    decided: float = 0.0
    recent_chosen: float = 0.0
    recent_decided: float = 0.0
    explicit_approved: int = 0
    explicit_decided: int = 0

    def add(self, chosen: bool, weight: float) -> None:
        """Count one decision."""
        fade = math.exp(-weight / RECENT_WINDOW)
        gain = weight if chosen else 0.0
        self.chosen += gain
        self.decided += weight
        self.recent_chosen = self.recent_chosen * fade + gain
        self.recent_decided = self.recent_decided * fade + weight
        if weight >= EXPLICIT_WEIGHT:
            self.explicit_approved += chosen
            self.explicit_decided += 1


@frozen
class Shares:
    """Shares chosen under one key, overall and of the recent decisions, in (0, 1)."""

    overall: float
    recent: float


def shrink_share(chosen: float, decided: float, prior: float, strength: float = STRENGTH) -> float:
    """The share chosen, drawn towards `prior`, which weighs as much as `strength` decisions."""
    return (prior * strength + chosen) / (strength + decided)


def level_keys(card: CardFeatures) -> tuple[Key, ...]:
    """From the general to the particular: everything, the kind, on this channel, in this workspace."""
    kind, channel = card.kind, card.channel
    return (), ("kind", kind), ("channel", kind, channel), ("workspace", kind, channel, card.workspace)


def time_keys(card: CardFeatures) -> tuple[Key, ...]:
    """The kind in this part of the day, on such days of the week, at this hour."""
    part = ("part", card.kind, card.part.value)
    week = ("week", card.kind, card.part.value, "1" if card.weekend else "0")
    return (part, week) if card.hour is None else (part, week, ("hour", *week[1:], str(card.hour)))


def place_keys(card: CardFeatures) -> tuple[Key, ...]:
    """All kinds in this workspace, and all kinds on this channel."""
    return ("any kind", card.workspace), ("any kind on", card.channel)


def word_keys(card: CardFeatures) -> tuple[Key, ...]:
    """The words of the prompt in all kinds: a hash of each, so that the counts stay small and hold no word that the
    operator wants forgotten (SPEC 4.10)."""
    hashes = {crc32(word.encode()) % WORD_BUCKETS for word in card.words}
    return tuple(("word", str(word_hash)) for word_hash in sorted(hashes))


class Habits:
    """Counts of past decisions, which are added one by one, oldest first."""

    def __init__(self) -> None:
        self.counts: dict[Key, Counts] = {}
        self.waiting_hours: dict[str, deque[float]] = {}

    def add(self, decision: PastDecision) -> None:
        """Count one decision."""
        card = decision.card
        keys = (*level_keys(card), *time_keys(card), *place_keys(card), *word_keys(card))
        for key in (*keys, ("in time", card.kind, card.channel, card.part.value)):
            self.counts.setdefault(key, Counts()).add(decision.chosen, decision.weight)
        if decision.chosen and decision.weight >= EXPLICIT_WEIGHT and decision.waited_hours is not None:
            self.waiting_hours.setdefault(card.kind, deque(maxlen=MAX_WAITS)).append(decision.waited_hours)

    def time_share(self, card: CardFeatures) -> float:
        """The share approved of this kind in this part of the day and week, and at this hour, in [0, 1]."""
        return self.shares_of((*level_keys(card)[:2], *time_keys(card)))[-1].overall

    def shares_of(self, keys: Iterable[Key], prior: float = NEUTRAL) -> list[Shares]:
        """The shares of each key, the first drawn towards `prior` and each other one towards the key before it."""
        shares = []
        for key in keys:
            counts = self.counts.get(key, Counts())
            prior = shrink_share(counts.chosen, counts.decided, prior)
            shares.append(Shares(prior, shrink_share(counts.recent_chosen, counts.recent_decided, prior, 2.0)))
        return shares

    def usual_wait(self, kind: str) -> timedelta | None:
        """How long this kind of card usually waits before the operator approves it; None after too few approvals."""
        hours = self.waiting_hours.get(kind, ())
        return timedelta(hours=max(median(hours), 1 / 60)) if len(hours) >= MIN_WAITS else None

    def usual_channel(self, kind: str, registered: Collection[str]) -> str | None:
        """The channel with the most approvals of this kind, if these are at least `MIN_CHANNEL_APPROVALS`, and more
        than half of what was decided there; else None."""

        def approvals(channel: str) -> tuple[int, str]:
            return self._explicit_counts(("channel", kind, channel))[0], channel

        best = max(registered, key=approvals, default=None)
        if best is None:
            return None
        approved, decided = self._explicit_counts(("channel", kind, best))
        return best if approved >= MIN_CHANNEL_APPROVALS and 2 * approved > decided else None

    def explain(self, card: CardFeatures) -> tuple[str, ...]:
        """The reason of an estimate in one line, from the closest level on which the operator decided anything."""
        kind, channel = card.kind, card.channel
        for key, where in (
            (("in time", kind, channel, card.part.value), f" {_WHEN[card.part]}"),
            (("channel", kind, channel), ""),
            (("kind", kind), " on any channel"),
        ):
            approved, decided = self._explicit_counts(key)
            if decided:
                return (f"you approved {approved} of {decided} like this{where}",)
        return ("you have not decided on anything like this yet",)

    def _explicit_counts(self, key: Key) -> tuple[int, int]:
        counts = self.counts.get(key, Counts())
        return counts.explicit_approved, counts.explicit_decided


_WHEN = {
    PartOfDay.MORNING: "in the morning",
    PartOfDay.AFTERNOON: "in the afternoon",
    PartOfDay.EVENING: "in the evening",
    PartOfDay.NIGHT: "at night",
}


# -- the most similar decisions

RING_SIZE = 512
"""Number of the newest decisions that are kept."""

NEAREST = 20
"""Number of the most similar decisions that pattern match looks at."""

MIN_SIMILARITY = 0.4
"""Decisions that are less similar do not count."""

FIELD_WEIGHTS = numpy.array([0.4, 0.15, 0.15, 0.1], numpy.float32)
"""Similarity that the same kind, channel, workspace and flow give."""

TEXT_WEIGHT = 0.2
"""Similarity that the same text gives."""

MIN_TEXT_SIMILARITY = 0.3
"""Texts that are less similar do not count by text alone; above it the weight grows with the square, to about 2."""

Floats = NDArray[numpy.float32]


class NewestDecisions:
    """A ring of the newest decisions. Each array has a row for each of them."""

    def __init__(self) -> None:
        self.count = 0
        """Number of decisions added so far, also those that left the ring."""
        self._fields = numpy.zeros((RING_SIZE, 4), numpy.int64)
        self._words = numpy.zeros((RING_SIZE, WORD_DIMENSIONS), numpy.float32)
        self._embeddings = numpy.zeros((RING_SIZE, EMBEDDING_SIZE), numpy.float32)
        self._has_embedding = numpy.zeros(RING_SIZE, numpy.bool_)
        self._chosen = numpy.zeros(RING_SIZE, numpy.float32)
        self._weights = numpy.zeros(RING_SIZE, numpy.float32)

    def add(self, decision: PastDecision) -> None:
        """Add the newest decision; the oldest of `RING_SIZE` goes."""
        index, card = self.count % RING_SIZE, decision.card
        self._fields[index] = _hash_fields(card)
        self._words[index] = hash_words(card.words)
        self._embeddings[index] = dequantise(card.text.embedding)
        self._has_embedding[index] = bool(card.text.embedding)
        self._chosen[index] = decision.chosen
        self._weights[index] = decision.weight
        self.count += 1

    def pattern_share(self, query: CardFeatures, prior: float) -> float:
        """The share chosen of the most similar decisions, weighted by similarity and drawn towards `prior`."""
        size = self._size
        same_fields = self._fields[:size] == _hash_fields(query)
        similarity = same_fields @ FIELD_WEIGHTS + TEXT_WEIGHT * self._text_similarity(query)
        similarity[similarity < MIN_SIMILARITY] = 0.0
        if size > NEAREST:
            similarity[similarity < numpy.partition(similarity, size - NEAREST)[size - NEAREST]] = 0.0
        return self._share_chosen(similarity, prior)

    def text_share(self, query: CardFeatures, prior: float) -> float:
        """The share chosen of the decisions with a similar text, of any kind, drawn towards `prior`."""
        similarity = numpy.maximum(self._text_similarity(query) - MIN_TEXT_SIMILARITY, 0.0) ** 2 * 4
        return self._share_chosen(similarity, prior)

    @property
    def _size(self) -> int:
        """Number of decisions in the ring."""
        return min(self.count, RING_SIZE)

    def _share_chosen(self, similarity: Floats, prior: float) -> float:
        weights = similarity * self._weights[: self._size]
        return shrink_share(float((weights * self._chosen[: self._size]).sum()), float(weights.sum()), prior)

    def _text_similarity(self, query: CardFeatures) -> Floats:
        """In [0, 1]: by embeddings where both have one, else by words."""
        size = self._size
        similarity: Floats = self._words[:size] @ hash_words(query.words)
        if query.text.embedding:
            by_embedding = self._embeddings[:size] @ dequantise(query.text.embedding)
            similarity = numpy.where(self._has_embedding[:size], by_embedding, similarity)
        return similarity.clip(0.0, 1.0)


def _hash_fields(card: CardFeatures) -> NDArray[numpy.int64]:
    fields = (card.kind, card.channel, card.workspace, card.flow)
    return numpy.array([crc32(name.encode()) for name in fields], numpy.int64)


# -- the learner

Array = Any


class LogisticRegression:
    """A Bayesian logistic regression: the mean and covariance of its weights."""

    def __init__(self, mean: Array, deviation: Array) -> None:
        self.mean = numpy.array(mean, numpy.float64)
        self.covariance = numpy.diag(numpy.array(deviation, numpy.float64) ** 2)

    def predict(self, features: Array) -> float:
        """The probability of approval, in (0, 1); the less is known, the nearer to a half."""
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
"""Each feature with its name, the mean of its weight before the first decision, and the standard deviation of that.
After the features of the evidence come log-odds that a level adds to the one above, so the first estimate is what the
counts say."""


@frozen
class Estimate:
    """The probability that the operator approves, before and after calibration, in (0, 1)."""

    raw: float
    probability: float


class Learner:
    """The counts and weights learnt from the decisions up to `last_id`."""

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
