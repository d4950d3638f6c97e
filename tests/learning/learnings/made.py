"""Entries for tests, and vectors in which words are directions."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy

from engine.learning.learnings.entries import entry_id
from engine.model import LearningEntry, LearningKind, LearningScope, LearningStatus, LearningType, Trust
from tests.conftest import MONDAY_MORNING


def entry(text: str, session: str = "s1", **more: Any) -> LearningEntry:
    """An entry of a session, in the operator's words."""
    made = LearningEntry(
        id="",
        scope=LearningScope.SESSION,
        scope_id=session,
        kind=LearningKind.INSTITUTIONAL,
        type=LearningType.DECLARATIVE,
        domain="team",
        text=text,
        title=text[:40],
        importance=0.5,
        confidence=0.5,
        reasons=("it was observed once",),
        phase="observations",
        status=LearningStatus.ACTIVE,
        created_at=MONDAY_MORNING,
        session_id=session,
        trust=Trust.OPERATOR,
    )
    made = replace(made, **more)
    return (
        made
        if made.id
        else replace(made, id=entry_id(made.scope, made.scope_id, made.kind, made.about, made.text, made.trust))
    )


def no_vectors(texts: Sequence[str]) -> list[bytes | None]:
    """Where there is no model."""
    return [None] * len(texts)


class WordMeaning:
    """Texts with the same words are near: the cosine of two texts is that of their word counts, nearly."""

    def __init__(self, dimensions: int = 384) -> None:
        self.dimensions = dimensions
        self.asked: list[str] = []

    def vectors(self, texts: Sequence[str], /) -> list[bytes | None]:
        self.asked += texts
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> bytes:
        total = numpy.zeros(self.dimensions)
        for word in text.lower().split():
            seed = int.from_bytes(hashlib.sha256(word.encode(errors="replace")).digest()[:8], "big")
            total += numpy.random.default_rng(seed).standard_normal(self.dimensions)
        length = float(numpy.linalg.norm(total)) or 1.0
        return (total / length).astype("<f4").tobytes()


class Angles:
    """Vectors in the plane: a text `a30 …` has the angle of 30 degrees."""

    def vectors(self, texts: Sequence[str], /) -> list[bytes | None]:
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> bytes | None:
        word = text.split()[0]
        if not word.startswith("a"):
            return None
        angle = math.radians(float(word[1:].replace("x", ".")))
        return numpy.array([math.cos(angle), math.sin(angle)], dtype="<f4").tobytes()


def shuffled(items: Sequence[LearningEntry], seed: int) -> list[LearningEntry]:
    mixed = list(items)
    random.Random(seed).shuffle(mixed)
    return mixed
