"""Finds the past decisions that are most similar to a card, and the share of them that the operator chose, for
`learner`."""

from __future__ import annotations

from zlib import crc32

import numpy
from numpy.typing import NDArray

from engine.learning.decisions.card_features import EMBEDDING_SIZE, CardFeatures, PastDecision
from engine.learning.decisions.habits import shrink_share
from engine.learning.decisions.text_features import WORD_DIMENSIONS, dequantise, hash_words

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
