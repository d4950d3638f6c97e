"""The operator's decisions, and what is learned from them (SPEC 8).

| modules | subject |
|---|---|
| `decisions`, `exporting` | decisions and the pairs that are made from them, also in files |
| `learner`, `habits`, `calibration` | predict decisions (SPEC 2.3b), correct stated confidence (8.6) |
| `training`, `training_provider`, `training_runs` | trains a model (8.4) |
| `insights` | the figures (8.5) |

Here is what they pass to each other: a card and a past decision as learners read them, with the features of the card's
text and of its evidence, as numbers. These are computed when a card is made, from the words and embeddings of its
prompt and of its evidence, and stored with the card and with the decision on it. So the learner can read old decisions
without the texts, which may be forgotten since, and without an embedder. `prediction.twin` extracts them.

The package is imported with the engine, so numpy is imported only in the functions that compute. It may import storage,
config, model and clock.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any
from zlib import crc32

from engine.frozen import frozen
from engine.model import PartOfDay
from engine.text import split_prompt_words

Vector = Any
"""A unit vector, float32."""

EMBEDDING_SIZE = 384
"""Dimensions of an embedding."""

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

WORD_SCALES = {
    # The share of the prompt's words that the latest line has, and the share that any line has.
    "words of the latest": Scale(centre=0.15, spread=0.15),
    "words of all": Scale(centre=0.3, spread=0.2),
    # Logarithms: of the characters of the prompt, of those of the latest line, and of the number of earlier lines.
    "length": Scale(centre=4.2, spread=0.5),
    "length of the evidence": Scale(centre=4.4, spread=0.5),
    "lines of evidence": Scale(centre=2.0, spread=1.0),
    # The share of the latest line's words that no earlier line has.
    "what is new in the evidence": Scale(centre=0.5, spread=0.5),
}
"""The features that need no vectors, in the order of `_measure_words`, each with its scale.

The centres and spreads of all scales are round numbers that were set by hand. On the 920 proposals that
`tests/benchmarks/test_twin.py` reads, the features have means from -0.4 to 1.1 and deviations from 0.5 to 1.2. That is
near enough, because the learner gives each feature a weight. If you change a scale, stored features no longer fit: then
change their format, too."""

FEATURE_NAMES = ("near the latest", "near all before", "nearest of all", "age of the nearest", *WORD_SCALES)
"""Names of `TextFeatures.numbers`, in order: first those that compare vectors, in the order of `_compare_lines`."""


_FORMAT = 1
"""The number of the present format of stored features."""

_NUMBERS = struct.Struct(f"<B{len(FEATURE_NAMES)}f")
"""The stored format and the stored numbers."""

_QUANTA = 512
"""The number of steps per unit in which an embedding is stored. Its components are so small that they fit in a byte."""


@frozen
class TextFeatures:
    """Features of the text of a proposal and of its evidence. `Decision.text_features` stores them."""

    numbers: tuple[float, ...]
    """One for each of `FEATURE_NAMES`."""
    embedding: bytes = b""
    """The embedding in `EMBEDDING_SIZE` signed bytes, b"" without one."""

    def pack(self) -> bytes:
        """The bytes that are stored with a decision."""
        return _NUMBERS.pack(_FORMAT, *self.numbers) + self.embedding


NO_FEATURES = TextFeatures((0.0,) * len(FEATURE_NAMES))
"""The features of a proposal without text."""


def unpack_features(stored: bytes) -> TextFeatures:
    """The features in bytes from `pack`; `NO_FEATURES` for b"" and for the format of another version."""
    if len(stored) not in (_NUMBERS.size, _NUMBERS.size + EMBEDDING_SIZE) or stored[0] != _FORMAT:
        return NO_FEATURES
    return TextFeatures(tuple(_NUMBERS.unpack_from(stored)[1:]), stored[_NUMBERS.size :])


def quantise(vector: Vector) -> bytes:
    """A unit vector in signed bytes, with an error of about a hundredth."""
    import numpy

    return bytes(numpy.clip(numpy.rint(numpy.asarray(vector) * _QUANTA), -127, 127).astype(numpy.int8).tobytes())


def dequantise(data: bytes) -> Vector:
    """The unit vector in `data` from `quantise`; all 0 for b""."""
    import numpy

    if not data:
        return numpy.zeros(EMBEDDING_SIZE, numpy.float32)
    return _normalise(numpy.frombuffer(data, numpy.int8).astype(numpy.float32))


@frozen
class CardFeatures:
    """A card that the Twin is asked about; `part`, `weekend` and `hour` are of the operator's local time."""

    kind: str
    channel: str
    workspace: str
    flow: str
    words: frozenset[str]
    part: PartOfDay
    weekend: bool
    at: datetime
    hour: int | None = None
    text: TextFeatures = NO_FEATURES


@frozen
class PastDecision:
    """One signal of SPEC 8.1 about a `card`, as learners read it. `chosen` is its label, `weight` is in (0, 1];
    `waited_hours` is the time from the evidence to the decision."""

    card: CardFeatures
    chosen: bool
    weight: float
    waited_hours: float | None
    id: int = 0
    raw: float | None = None
    """The confidence of the card before calibration, see `DecidedCard.raw`."""


def extract_features(
    prompt: str, latest: str, earlier: Sequence[str], embeddings: Sequence[Vector | None]
) -> TextFeatures:
    """Extract the features of a proposal from its `prompt` and from its evidence: the `latest` line, and the `earlier`
    lines, oldest first.

    `embeddings` are those of the prompt, the latest line and each earlier line. If one is missing, vectors of hashed
    words replace all of them.
    """
    import numpy

    earlier = earlier[-MAX_EARLIER:]
    texts = (prompt, latest, *earlier)
    vectors: list[Any] = [*embeddings[:2], *embeddings[2:][-MAX_EARLIER:]]
    scale = EMBEDDING_SIMILARITY
    if any(vector is None for vector in vectors):
        vectors, scale = [hash_word_set(_find_subject_words(text)) for text in texts], WORD_SIMILARITY
    rows = numpy.stack(vectors)
    by_vectors = _compare_lines(rows[0], rows[1:], scale)
    by_words = zip(WORD_SCALES.values(), _measure_words(prompt, latest, earlier), strict=True)
    embedding = b"" if embeddings[0] is None else quantise(embeddings[0])
    return TextFeatures((*by_vectors, *(word_scale.apply(value) for word_scale, value in by_words)), embedding)


def _compare_lines(prompt: Vector, lines: Vector, scale: Scale) -> Iterator[float]:
    """How near the lines of evidence are to the prompt: the first four of `FEATURE_NAMES`. `lines` has a row for each:
    the latest line, and then the earlier ones, oldest first."""
    near_latest, *near_earlier = map(float, lines @ prompt)
    newest_first = [near_latest, *reversed(near_earlier)]
    nearest = max(newest_first)
    mean = lines[1:].mean(axis=0) if near_earlier else lines[0]
    length = _measure_length(mean)
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


WORD_DIMENSIONS = 256
"""Number of dimensions of a vector of hashed words, which replaces a missing embedding."""


@lru_cache(500)
def hash_word_set(words: frozenset[str]) -> Vector:
    """The unit vector of a bag of words; all 0 for no words. It is cached, so do not change it."""
    import numpy

    vector = numpy.zeros(WORD_DIMENSIONS, numpy.float32)
    for word in words:
        word_hash = crc32(word.encode())
        vector[word_hash % WORD_DIMENSIONS] += 1.0 if word_hash & 0x80000000 else -1.0
    return _normalise(vector)


def _normalise(vector: Vector) -> Vector:
    """The unit vector of the same direction; all 0 for a vector without a direction."""
    length = _measure_length(vector)
    return vector / length if length else vector


def _measure_length(vector: Vector) -> float:
    """The length of a vector."""
    import numpy

    return float(numpy.sqrt((vector * vector).sum()))
