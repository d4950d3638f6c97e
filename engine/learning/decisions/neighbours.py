"""The newest decisions, to be compared by what they were about (SPEC 2.5, pattern match). Pure."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import numpy

from engine.learning.decisions.habits import Asked, shrunk
from engine.learning.decisions.query import MEANING, Query, Seen
from engine.learning.decisions.relevance import HASHED, hashed
from engine.model import PastDecision

AMONG, NEAREST, SIMILAR_FROM = 512, 20, 0.4
"""Pattern match looks at the 20 most similar of the newest 512 decisions that are at least this similar."""

ALIKE = numpy.array([0.4, 0.15, 0.15, 0.1], numpy.float32)
"""What the same kind, channel, workspace and flow count for; the text's nearness, in [0, 1], counts 0.2."""


class Neighbours:
    """A ring of the newest decisions."""

    def __init__(self) -> None:
        self.count = 0
        self.marks = numpy.zeros((AMONG, 4), numpy.int64)
        self.words = numpy.zeros((AMONG, HASHED), numpy.float32)
        self.meaning = numpy.zeros((AMONG, MEANING), numpy.float32)
        self.known = numpy.zeros(AMONG, numpy.bool_)
        self.label = numpy.zeros((AMONG, 2), numpy.float32)

    def add(self, decision: PastDecision, seen: Seen) -> None:
        """Take in the newest; the oldest of `AMONG` goes."""
        place = self.count % AMONG
        self.marks[place] = _marks(decision)
        self.words[place] = hashed(decision.words)
        self.meaning[place] = _large(seen.meaning)
        self.known[place] = bool(seen.meaning)
        self.label[place] = (decision.chosen, decision.weight)
        self.count += 1

    def pattern(self, one: Query, prior: float) -> float:
        """The share chosen among the most similar, weighted by similarity and shrunk to `prior`; in [0, 1]."""
        many = min(self.count, AMONG)
        if not many:
            return prior
        like = (self.marks[:many] == _marks(one)) @ ALIKE + 0.2 * self._text(one, many)
        like[like < SIMILAR_FROM] = 0.0
        if many > NEAREST:
            like[like < numpy.partition(like, many - NEAREST)[many - NEAREST]] = 0.0
        loud = like * self.label[:many, 1]
        return shrunk(float((loud * self.label[:many, 0]).sum()), float(loud.sum()), prior)

    def meant(self, one: Query, prior: float) -> float:
        """The share chosen of what was near in meaning alone, whatever its kind."""
        many = min(self.count, AMONG)
        if not many:
            return prior
        near = numpy.maximum(self._text(one, many) - 0.3, 0.0) ** 2 * 4
        loud = near * self.label[:many, 1]
        return shrunk(float((loud * self.label[:many, 0]).sum()), float(loud.sum()), prior)

    def _text(self, one: Query, many: int) -> Any:
        """How near the texts are, in [0, 1]: by meaning where both have a vector of it, else by words."""
        near = self.words[:many] @ hashed(one.words)
        if one.seen.meaning:
            near = numpy.where(self.known[:many], self.meaning[:many] @ _large(one.seen.meaning), near)
        return numpy.clip(near, 0.0, 1.0)


def _marks(one: Asked) -> Any:
    return numpy.array([crc32(name.encode()) for name in (one.kind, one.channel, one.workspace, one.flow)], numpy.int64)


def _large(small: bytes) -> Any:
    if not small:
        return numpy.zeros(MEANING, numpy.float32)
    vector = numpy.frombuffer(small, numpy.int8).astype(numpy.float32)
    length = float(numpy.sqrt((vector * vector).sum()))
    return vector / length if length else vector
