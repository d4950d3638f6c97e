"""What a proposal has to do with the evidence it rests on: a handful of numbers, made once when a card is made.

A proposal about what has just happened is wanted more often than one about what is long over, and one that names what
it is about more often than advice in general. This says how near it is to the latest evidence and to all before, in
words and in meaning; what that is worth to this operator his decisions say. Pure.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy

from engine.values import prompt_words

HASHED = 256
"""Dimensions of the vector of hashed words, which stands in where there is none of meaning."""

MEANING = 384
"""Dimensions of a vector of meaning."""

EARLIER_MOST = 20
"""So many of the latest lines before the last one are looked at."""

STOP = frozenset("the and you your for with that this from are can could would will into has have use user".split())

NAMES = (
    "near the latest", "near all before", "nearest of all", "how long ago it was about", "words of the latest",
    "words of all before", "length", "length of the evidence", "lines of evidence", "what is new in the evidence",
)  # fmt: skip
"""The numbers, in order. Each is about 0 on average and 1 in spread over ordinary text."""

TOLD = {
    "near the latest": ("it is about what was seen last", "it has little to do with what was seen last"),
    "near all before": ("it fits all that was seen", "it fits little of what was seen"),
    "nearest of all": ("it is close to something that was seen", "it is close to nothing that was seen"),
    "how long ago it was about": ("what it is about was seen long ago", "what it is about is new"),
    "words of the latest": ("it names what was seen last", "it names nothing of what was seen last"),
    "words of all before": ("it names what was seen", "it names little of what was seen"),
    "length": ("it says much", "it says little"),
    "length of the evidence": ("its evidence is long", "its evidence is short"),
    "lines of evidence": ("much was seen before it", "little was seen before it"),
    "what is new in the evidence": ("its evidence is new", "its evidence is nothing new"),
}
"""How a number that is above or below the ordinary is told."""

_FORMAT = 1
_NUMBERS = struct.Struct(f"<B{len(NAMES)}f")

Vector = Any
"""A unit vector, float32."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A proposal as learners keep it: the numbers named by `NAMES`, and its vector of meaning when there was one."""

    numbers: tuple[float, ...]
    meaning: bytes = b""
    """`MEANING` signed bytes, b"" for none."""

    def packed(self) -> bytes:
        """As it is stored with a decision."""
        return _NUMBERS.pack(_FORMAT, *self.numbers) + self.meaning


NOTHING = Seen((0.0,) * len(NAMES))
"""A proposal of which only its kind is known."""


def unpacked(stored: bytes) -> Seen:
    """What `packed` made; `NOTHING` for b"" and for the format of another version."""
    if len(stored) not in (_NUMBERS.size, _NUMBERS.size + MEANING) or stored[0] != _FORMAT:
        return NOTHING
    return Seen(tuple(_NUMBERS.unpack_from(stored)[1:]), stored[_NUMBERS.size :])


def hashed(words: frozenset[str]) -> Vector:
    """The unit vector of a bag of words; all 0 for none."""
    vector = numpy.zeros(HASHED, numpy.float32)
    for word in words:
        mark = crc32(word.encode())
        vector[mark % HASHED] += 1.0 if mark & 0x80000000 else -1.0
    length = float(numpy.sqrt((vector * vector).sum()))
    return vector / length if length else vector


def look(
    prompt: str, latest: str, earlier: Sequence[str] = (), vectors: Sequence[Vector | None] | None = None
) -> Seen:
    """See a proposal beside its evidence.

    `earlier` is the evidence before `latest`, oldest first. `vectors` are those of meaning of the prompt, the latest
    and each of the earlier; while any is missing, words stand in for all of them.
    """
    earlier = earlier[-EARLIER_MOST:]
    said, now, before = _words(prompt), _words(latest), [_words(line) for line in earlier]
    meaning = None if vectors is None else [*vectors[:2], *vectors[2:][-EARLIER_MOST:]]
    if meaning is None or any(one is None for one in meaning) or len(meaning) != 2 + len(earlier):
        every = numpy.stack([hashed(one) for one in (said, now, *before)])
        low, wide = 0.1, 0.15
    else:
        every = numpy.stack(meaning)
        low, wide = 0.35, 0.18
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
