"""Ranks candidates of a recall by the weighted sum of their features, and gives the reasons for each (SPEC 4.4). Pure.

This module imports numpy, so import it late.
"""

from __future__ import annotations

from typing import Any

import numpy

from engine.frozen import frozen
from engine.memory.features import WEIGHTS, Candidates, Feature
from engine.memory.question import stem
from engine.memory.vector_matrix import Vector
from engine.model import ScorePart
from engine.model.memory import weighted_sum

Mask = numpy.ndarray[Any, numpy.dtype[numpy.bool_]]

MIN_RELEVANCE = 0.27
"""The threshold of recall (SPEC 4.3), which `_relevant` applies: if no memory reaches it, nothing is found. For a
memory that shares no word with the question it is a squared L2 of 1.46. `tests/benchmarks/test_recall_unrelated.py`
measures it on three data sets: nothing is found for .94 of everyday questions without an answer in them, and recall@10
of questions with an answer does not fall.

If a memory reaches the threshold, two kinds of others are found, too: those that reach a third of it, and those of the
same session. An answer often shares neither words nor meaning with the question, only its session."""

COMPANION_DIVISOR = 3.0
"""`MIN_RELEVANCE` is divided by this for other memories, once one has reached it."""

COVERAGE_BONUS = 0.3
"""A memory with all key words of a question gets this added to its cosine; one with some of them, a share of it."""

WORDS_ALONE = 0.28
"""The least cosine of a memory with all key words of a question. So half of them, weighted by rarity, reach the
threshold without a vector."""

NOTABLE = 0.5
"""A feature with this value or more is named as a reason."""


@frozen
class RankedCandidate:
    """A candidate, by its index in `Candidates.rows`, with its score in [0, 1]: the sum of `value * weight` of its
    parts."""

    index: int
    score: float
    parts: tuple[ScorePart, ...]
    reason: str


def rank(candidates: Candidates, *, limit: int | None = None) -> list[RankedCandidate]:
    """The relevant candidates with their scores, best first, at most `limit`. Candidates with equal scores keep their
    order."""
    question, features, size = candidates.question, candidates.features, len(candidates.rows)
    if not size:
        return []
    # A feature that the question does not ask for is not counted, so that scores can be compared with those of other
    # layers. A feature that it asks for lowers the score of every candidate without it, even if all are without it.
    is_applicable = {
        Feature.SPEAKER: bool(question.speakers),
        Feature.DATE: bool(question.dates),
        Feature.TIME: question.asks_when,
        Feature.USER_RULE: features[Feature.USER_RULE].any(),
    }
    counted = [weight for weight in WEIGHTS if is_applicable.get(weight.feature, True)]
    total = sum(weight.weight for weight in counted)
    shares = dict.fromkeys((weight.part for weight in counted), 0.0)
    parts: dict[str, Vector] = {part: numpy.zeros(size, numpy.float32) for part in shares}
    for weight in counted:
        shares[weight.part] += weight.weight / total
        parts[weight.part] = parts[weight.part] + weight.weight / total * features[weight.feature]
    order = numpy.argsort(-numpy.sum(list(parts.values()), axis=0), kind="stable")
    ranked = []
    for index in order[_relevant(candidates)[order]][:limit].tolist():
        score_parts = tuple(
            ScorePart(part, min(1.0, max(0.0, float(parts[part][index]) / share)), share)
            for part, share in shares.items()
        )
        ranked.append(RankedCandidate(index, weighted_sum(score_parts), score_parts, _reason(candidates, index)))
    return ranked


def _relevant(candidates: Candidates) -> Mask:
    """A mask of the candidates that are near enough to be found, by their cosine and the key words that they have; see
    `MIN_RELEVANCE`."""
    coverage, threshold = candidates.features[Feature.COVERAGE], MIN_RELEVANCE - 1e-6  # float32
    relevance = numpy.maximum(candidates.features[Feature.MEANING], WORDS_ALONE * coverage) + COVERAGE_BONUS * coverage
    if not (relevance >= threshold).any():
        return numpy.zeros(len(relevance), bool)
    sessions = [row.session for row in candidates.rows]
    relevant_sessions = {
        session for session, value in zip(sessions, relevance.tolist(), strict=True) if session and value >= threshold
    }
    in_relevant_session = numpy.array([session in relevant_sessions for session in sessions], bool)
    return numpy.asarray(in_relevant_session | (relevance >= threshold / COMPANION_DIVISOR))


def _reason(candidates: Candidates, index: int) -> str:
    """Why a candidate was found, in words."""
    row = candidates.rows[index]
    features = {name: float(values[index]) for name, values in candidates.features.items()}
    reasons = []
    if features[Feature.COVERAGE] > 0:
        terms = candidates.terms[index]
        reasons.append("says " + ", ".join([word for word in candidates.question.words if stem(word) in terms][:5]))
    if features[Feature.MEANING] > 0 and (features[Feature.MEANING] >= NOTABLE or not reasons):
        reasons.append(f"near in meaning ({features[Feature.MEANING]:.2f})")
    if features[Feature.USER_RULE]:
        reasons.append("a rule or preference of yours")
    elif features[Feature.SPEAKER]:
        reasons.append(f"{row.speaker} says it")
    if features[Feature.DATE]:
        reasons.append(f"said on {row.at[:10]}")
    if features[Feature.ADJACENT_TURN] >= NOTABLE:
        reasons.append("next to a matching turn")
    if not reasons:
        reasons.append("its session is about it" if features[Feature.SESSION] >= NOTABLE else "several weak matches")
    return "; ".join(reasons)
