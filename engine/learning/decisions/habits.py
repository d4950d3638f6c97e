"""The operator's habits (SPEC 2.3b, 2.5): how similar cards were decided. Pure.

`Habits` counts past decisions by kind, channel, workspace, time and words, and `NewestDecisions` compares a card with
each of the newest ones, by its fields and by the meaning of its text. Either becomes a share approved, which is drawn
towards a more general one, because a few decisions say little. The `learner` reads the shares as features; the usual
wait, the usual channel and the explanation are of the counts alone.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import timedelta
from statistics import median
from zlib import crc32

import numpy
from numpy.typing import NDArray

from engine.clock import PartOfDay
from engine.frozen import frozen
from engine.learning.decisions import (
    EMBEDDING_SIZE,
    WORD_DIMENSIONS,
    CardFeatures,
    PastDecision,
    dequantise,
    hash_word_set,
)

EXPLICIT_WEIGHT = 0.8
"""Minimum weight of a signal that was given on the card itself. Only such signals are explained in words."""

NEUTRAL = 0.5
"""Expected share approved before the first decision."""

STRENGTH = 4.0
"""The level above weighs as much as this number of decisions."""

RECENT_STRENGTH = 2.0
"""In the share of the recent decisions, the share of all weighs as much as this number of decisions."""

RECENT_WINDOW = 8.0
"""About this many of the newest decisions of a level count as recent."""

MIN_WAITS = 5
"""Minimum number of approvals of a kind before its usual waiting time is known."""

MAX_WAITS = 101
"""Maximum number of waiting times that are kept for each kind."""

MIN_CHANNEL_APPROVALS = 3
"""Minimum number of approvals on a channel before the Twin names it."""

WORD_BUCKETS = 65_536
"""Number of different hashes of words. An operator uses a few thousand words, so hardly any two have the same hash."""

Key = tuple[str, ...]
"""A feature by which decisions are counted: its name, then its values."""

_WHEN = {
    PartOfDay.MORNING: "in the morning",
    PartOfDay.AFTERNOON: "in the afternoon",
    PartOfDay.EVENING: "in the evening",
    PartOfDay.NIGHT: "at night",
}
"""The words for each part of the day."""


@dataclass(slots=True)
class Counts:
    """The counts of decisions with one key. Those of chosen and decided ones are sums of weights; the explicit ones are
    plain numbers."""

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
    """The shares chosen of the decisions with one key, overall and of the recent ones, in (0, 1)."""

    overall: float
    recent: float


def shrink_share(chosen: float, decided: float, prior: float, strength: float = STRENGTH) -> float:
    """The share chosen, drawn towards `prior`, which weighs as much as `strength` decisions."""
    return (prior * strength + chosen) / (strength + decided)


def make_level_keys(card: CardFeatures) -> tuple[Key, ...]:
    """The keys from the most general to the most specific: everything, the kind, on this channel, in this workspace."""
    kind, channel = card.kind, card.channel
    return (), ("kind", kind), ("channel", kind, channel), ("workspace", kind, channel, card.workspace)


def make_time_keys(card: CardFeatures) -> tuple[Key, ...]:
    """The keys of the kind in this part of the day, on working days or weekends, and at this hour."""
    kind, part, weekend = card.kind, card.part.value, "1" if card.weekend else "0"
    keys: tuple[Key, ...] = (("part", kind, part), ("week", kind, part, weekend))
    return keys if card.hour is None else (*keys, ("hour", kind, part, weekend, str(card.hour)))


def make_place_keys(card: CardFeatures) -> tuple[Key, ...]:
    """The keys of all kinds in this workspace, and of all kinds on this channel."""
    return ("any kind", card.workspace), ("any kind on", card.channel)


def make_word_keys(card: CardFeatures) -> tuple[Key, ...]:
    """The keys of the words of the prompt, for all kinds. They have a hash instead of the word, so that the counts stay
    small and contain no word that the operator wants forgotten (SPEC 4.10)."""
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
        keys = (*make_level_keys(card), *make_time_keys(card), *make_place_keys(card), *make_word_keys(card))
        for key in (*keys, ("in time", card.kind, card.channel, card.part.value)):
            self.counts.setdefault(key, Counts()).add(decision.chosen, decision.weight)
        if decision.chosen and decision.weight >= EXPLICIT_WEIGHT and decision.waited_hours is not None:
            self.waiting_hours.setdefault(card.kind, deque(maxlen=MAX_WAITS)).append(decision.waited_hours)

    def compute_time_share(self, card: CardFeatures) -> float:
        """The share approved of this kind in this part of the day and week, and at this hour, in [0, 1]."""
        return self.compute_shares((*make_level_keys(card)[:2], *make_time_keys(card)))[-1].overall

    def compute_shares(self, keys: Iterable[Key], prior: float = NEUTRAL) -> list[Shares]:
        """The shares of each key. The first is drawn towards `prior`, and each other towards the share of the key
        before it."""
        shares = []
        for key in keys:
            shares.append(self.compute_share(key, prior))
            prior = shares[-1].overall
        return shares

    def compute_share(self, key: Key, prior: float = NEUTRAL) -> Shares:
        """The shares of a key, drawn towards `prior`."""
        counts = self.counts.get(key, Counts())
        overall = shrink_share(counts.chosen, counts.decided, prior)
        return Shares(overall, shrink_share(counts.recent_chosen, counts.recent_decided, overall, RECENT_STRENGTH))

    def find_usual_wait(self, kind: str) -> timedelta | None:
        """The usual time before the operator approves this kind of card; None after too few approvals."""
        hours = self.waiting_hours.get(kind, ())
        return timedelta(hours=max(median(hours), 1 / 60)) if len(hours) >= MIN_WAITS else None

    def find_usual_channel(self, kind: str, registered: Collection[str]) -> str | None:
        """The channel with the most approvals of this kind. None if these are fewer than `MIN_CHANNEL_APPROVALS`, or at
        most half of the decisions there."""

        def rank(channel: str) -> tuple[int, str]:
            return self._get_explicit_counts(("channel", kind, channel))[0], channel

        best = max(registered, key=rank, default=None)
        if best is None:
            return None
        approved, decided = self._get_explicit_counts(("channel", kind, best))
        return best if approved >= MIN_CHANNEL_APPROVALS and 2 * approved > decided else None

    def explain(self, card: CardFeatures) -> tuple[str, ...]:
        """The reason of an estimate in one line, by the most specific level that has decisions."""
        kind, channel = card.kind, card.channel
        for key, circumstance in (
            (("in time", kind, channel, card.part.value), f" {_WHEN[card.part]}"),
            (("channel", kind, channel), ""),
            (("kind", kind), " on any channel"),
        ):
            approved, decided = self._get_explicit_counts(key)
            if decided:
                return (f"you approved {approved} of {decided} like this{circumstance}",)
        return ("you have not decided on anything like this yet",)

    def _get_explicit_counts(self, key: Key) -> tuple[int, int]:
        """(approved, decided) of the decisions with a key that were given on the card itself."""
        counts = self.counts.get(key, Counts())
        return counts.explicit_approved, counts.explicit_decided


# -- the newest decisions

RING_SIZE = 512
"""Number of the newest decisions that are kept."""

MAX_NEAREST = 20
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
        if size > MAX_NEAREST:
            similarity[similarity < numpy.partition(similarity, size - MAX_NEAREST)[size - MAX_NEAREST]] = 0.0
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
