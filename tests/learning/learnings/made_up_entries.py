"""Entries of learnings, and embeddings with known angles, for tests of single functions."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy

from engine.learning.learnings.store import Scope, place_entry
from engine.lessons import make_lesson_id
from engine.model import LearningEntry, LearningKind, LearningScope, LearningStatus, LearningType, Trust
from tests.support import MONDAY_MORNING


def make_entry(text: str, session: str = "s1", **changes: Any) -> LearningEntry:
    """An entry of a session, in the operator's words."""
    entry = LearningEntry(
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
        lesson=make_lesson_id(text),
    )
    entry = replace(entry, **changes)
    return entry if entry.id else replace(entry, id=place_entry(entry, Scope("shop", entry.scope_id)).id)


def make_no_vectors(texts: Sequence[str]) -> list[bytes | None]:
    """No text has a vector, as without a model."""
    return [None] * len(texts)


def make_angle_vectors(texts: Sequence[str]) -> list[bytes | None]:
    """Vectors in the plane: a text `a30 …` has the angle of 30 degrees, one with `a36x5` of 36.5; others have none."""
    return [_make_direction(text.split()[0]) for text in texts]


def _make_direction(word: str) -> bytes | None:
    """The unit vector of the angle that a word names, None for another word."""
    if not word.startswith("a"):
        return None
    angle = math.radians(float(word[1:].replace("x", ".")))
    return numpy.array([math.cos(angle), math.sin(angle)], dtype="<f4").tobytes()
