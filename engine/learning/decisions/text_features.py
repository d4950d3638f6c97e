"""The features of a card's text and of its evidence, as numbers for the `learner` (SPEC 2.3b). Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from zlib import crc32

import numpy

from engine.learning.decisions.decisions import EMBEDDING_SIZE, TextFeatures
from engine.model import prompt_words

WORD_DIMENSIONS = 256
"""Number of dimensions of a vector of hashed words, which replaces a missing embedding."""

MAX_EARLIER = 20
"""Maximum number of lines of earlier evidence that are used."""

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
    """The unit vector of a bag of words; all 0 for no words. It is cached, so do not change it."""
    vector = numpy.zeros(WORD_DIMENSIONS, numpy.float32)
    for word in words:
        word_hash = crc32(word.encode())
        vector[word_hash % WORD_DIMENSIONS] += 1.0 if word_hash & 0x80000000 else -1.0
    length = float(numpy.sqrt((vector * vector).sum()))
    return vector / length if length else vector


def extract_features(
    prompt: str, latest: str, earlier: Sequence[str], vectors: Sequence[Vector | None] | None
) -> TextFeatures:
    """Extract the features of a proposal from its `prompt` and from its evidence: the `latest` line, and the `earlier`
    lines, oldest first.

    `vectors` are the embeddings of the prompt, the latest line and each earlier line. If one is missing, vectors of
    hashed words replace all of them.
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
    """A unit vector as signed bytes, with an error of about a hundredth."""
    return bytes(numpy.clip(numpy.rint(numpy.asarray(vector) * 512), -127, 127).astype(numpy.int8).tobytes())


def _words(text: str) -> frozenset[str]:
    return prompt_words(text) - STOP_WORDS


def _share(words: frozenset[str], others: frozenset[str]) -> float:
    """The share of `words` that is also in `others`."""
    return len(words & others) / len(words) if words else 0.0


def dequantise(data: bytes) -> Vector:
    """The unit vector in `data` from `quantise`; all 0 for b""."""
    if not data:
        return numpy.zeros(EMBEDDING_SIZE, numpy.float32)
    vector = numpy.frombuffer(data, numpy.int8).astype(numpy.float32)
    length = float(numpy.sqrt((vector * vector).sum()))
    return vector / length if length else vector
