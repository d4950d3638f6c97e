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
without the texts, which may be forgotten since, and without an embedder.

The package is imported with the engine, so numpy is imported only in the functions that compute. It may import storage,
config, model and clock.
"""

from __future__ import annotations

import struct
from datetime import datetime
from functools import lru_cache
from typing import Any
from zlib import crc32

from engine.clock import PartOfDay
from engine.frozen import frozen

Vector = Any
"""A unit vector, float32."""

EMBEDDING_SIZE = 384
"""Dimensions of an embedding."""

WORD_DIMENSIONS = 256
"""Number of dimensions of a vector of hashed words, which replaces a missing embedding."""

FEATURE_NAMES = (
    # How near lines of evidence are to the prompt.
    "near the latest",
    "near all before",
    "nearest of all",
    "age of the nearest",
    # What needs no vectors.
    "words of the latest",
    "words of all",
    "length",
    "length of the evidence",
    "lines of evidence",
    "what is new in the evidence",
)
"""Names of `TextFeatures.numbers`, in order."""

_FORMAT = 1
"""The number of the present format of stored features."""

_NUMBERS = struct.Struct(f"<B{len(FEATURE_NAMES)}f")
"""The stored format and the stored numbers."""

_QUANTA = 512
"""The number of steps per unit in which an embedding is stored. Its components are so small that they fit in a byte."""


@frozen
class TextFeatures:
    """Features of the text of a proposal and of its evidence. `DecisionRow.text_features` stores them."""

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
    length = measure_length(vector)
    return vector / length if length else vector


def measure_length(vector: Vector) -> float:
    """The length of a vector."""
    import numpy

    return float(numpy.sqrt((vector * vector).sum()))
