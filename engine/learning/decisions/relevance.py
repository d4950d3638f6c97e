"""What a proposal has to do with the evidence it rests on: a handful of numbers, made once when a card is made.

A proposal about what has just happened is wanted more often than one about what is long over, and one that names what
it is about more often than advice in general. This says how near it is to the latest evidence and to all before, in
words and in meaning; what that is worth to this operator his decisions say. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from zlib import crc32

import numpy

from engine.learning.decisions.query import Seen
from engine.model import prompt_words

HASHED = 256
"""Dimensions of the vector of hashed words, which stands in where there is none of meaning."""

EARLIER_MOST = 20
"""So many of the latest lines before the last one are looked at."""

STOP = frozenset(
    "the and you your for with that this from are can could would will into has have use user".split()  # noqa: SIM905
)

Vector = Any
"""A unit vector, float32."""


@lru_cache(500)
def hashed(words: frozenset[str]) -> Vector:
    """The unit vector of a bag of words; all 0 for none. It is nobody's to change."""
    vector = numpy.zeros(HASHED, numpy.float32)
    for word in words:
        mark = crc32(word.encode())
        vector[mark % HASHED] += 1.0 if mark & 0x80000000 else -1.0
    length = float(numpy.sqrt((vector * vector).sum()))
    return vector / length if length else vector


def look(prompt: str, latest: str, earlier: Sequence[str] = (), vectors: Sequence[Vector | None] | None = None) -> Seen:
    """See a proposal beside its evidence.

    `earlier` is the evidence before `latest`, oldest first. `vectors` are those of meaning of the prompt, the latest
    and each of the earlier; while any is missing, words stand in for all of them.
    """
    earlier = earlier[-EARLIER_MOST:]
    said, now, before = _words(prompt), _words(latest), [_words(line) for line in earlier]
    given = [] if vectors is None else [*vectors[:2], *vectors[2:][-EARLIER_MOST:]]
    known = [one for one in given if one is not None]
    if len(known) == 2 + len(earlier):
        every, low, wide = numpy.stack(known), 0.35, 0.18
    else:
        every, low, wide = numpy.stack([hashed(one) for one in (said, now, *before)]), 0.1, 0.15
    near = every[1:] @ every[0]
    old = frozenset().union(*before)
    order = [float(near[0]), *map(float, near[:0:-1])]  # the newest first
    mean = every[2:].mean(axis=0) if before else every[1]
    length = float(numpy.sqrt((mean * mean).sum()))
    numbers = (
        (order[0] - low) / wide,
        (float(mean @ every[0]) / length - low if length else 0.0) / wide,
        (max(order) - low) / wide,
        order.index(max(order)) / len(order) * 2 - 0.5,
        (_share(said, now) - 0.15) / 0.15,
        (_share(said, old | now) - 0.3) / 0.2,
        (math.log1p(len(prompt)) - 4.2) / 0.5,
        (math.log1p(len(latest)) - 4.4) / 0.5,
        (math.log1p(len(earlier)) - 2.0),
        _share(now, now - old) * 2 - 1,
    )
    first = vectors[0] if vectors else None
    return Seen(tuple(min(max(one, -3.0), 3.0) for one in numbers), b"" if first is None else small(first))


def small(vector: Vector) -> bytes:
    """A unit vector in signed bytes; its direction is kept to about a hundredth."""
    return bytes(numpy.clip(numpy.rint(numpy.asarray(vector) * 512), -127, 127).astype(numpy.int8).tobytes())


def _words(text: str) -> frozenset[str]:
    return prompt_words(text) - STOP


def _share(some: frozenset[str], of: frozenset[str]) -> float:
    """Which share of `some` is also in the other."""
    return len(some & of) / len(some) if some else 0.0
