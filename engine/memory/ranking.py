"""Ranks the candidates of a recall by the weighted sum of their features, and says why each was found (SPEC 4.4).

All of it is pure, without a model. `search` reads the candidates, and calls `choose_pool`, `select_candidates`,
`add_text_features` and `rank` in this order. A long memory is judged by its passage that is nearest to the question, so
that its length does not matter. A feature that does not apply (there are no speakers, dates, sessions or vectors) is 0
for all candidates. So the same weights rank conversations, long messages, documentation and code. This module imports
numpy, so import it late.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import numpy

from engine.frozen import frozen
from engine.memory.question import MONTHS, USER_ROLES, WORD_PATTERN, ParsedQuestion, make_stem
from engine.memory.store import MAX_CANDIDATES, MemoryRow
from engine.memory.vector_math import NearChunk, Vector
from engine.model import ScorePart

WORDS_SHARE = 0.4
MEANING_SHARE = 0.6
"""Weights of the two searches in their plain sum, by which candidates are chosen and neighbours are judged."""

ADJACENT_SHARE = 0.3
SPEAKER_SHARE = 0.3
DATE_SHARE = 0.15
"""The weights of a matching neighbour, of the speaker and of the date that the question names. They are added to that
sum when candidates are chosen."""

MAX_POOL = 160
"""Memories that are read of the candidates of both searches. The turns before and after each are read, too."""

MAX_CLOSE = 80
"""Candidates that are compared closely, by their texts."""

RECENT_DAYS = 14.0
"""The age in days at which `Feature.RECENT` has fallen to a third (1/e)."""

MAX_CENTRES = 5
"""The number of the best candidates whose neighbours count more."""

NEIGHBOURHOOD_DISTANCE = 5.0
"""The distance, in memories, at which a neighbour counts a third (1/e)."""

_TIME_WORDS = """
yesterday today tonight tomorrow last next ago week weekend month year morning evening recently soon since
monday tuesday wednesday thursday friday saturday sunday
"""
_TIMES = frozenset(MONTHS.keys() | _TIME_WORDS.split() | set(map(str, range(1900, 2100))))
"""Words of a text that name a time: months, years, weekdays and the like."""

_RULE = re.compile(r"^\W*(?:please )?(?:always|never|from now on)\b|\bwhen(?:ever)? i ask\b", re.IGNORECASE)
_PREFERENCE = re.compile(
    r"\bi(?:['’]d| would| do| usually| generally| always| really)? (?:prefer|like to|rather|tend to)\b|"
    r"\bmy preference\b|\bi never\b",
    re.IGNORECASE,
)

MIN_RELEVANCE = 0.27
"""The threshold of recall (SPEC 4.3) for `compute_relevance`: if no memory reaches it, nothing is found. Its effect is
measured in docs/BENCHMARKS.md (`test_recall_unrelated.py`)."""

COMPANION_DIVISOR = 3.0
"""`MIN_RELEVANCE` is divided by this for other memories, once one has reached it."""

COVERAGE_BONUS = 0.3
"""What all key words of a question add to the cosine of a memory with them. Some of them add a share of it."""

WORDS_ALONE = 0.28
"""The least cosine of a memory with all key words. With some of them it is a share of it."""

NOTABLE_VALUE = 0.5
"""A feature with this value or more is named as a reason."""

Mask = numpy.ndarray[Any, numpy.dtype[numpy.bool_]]
"""A boolean for each candidate."""


# -- features and weights


class Feature(StrEnum):
    """A feature of a candidate. Its values are in [0, 1]. `MEANING` and `COVERAGE` have no weight: by them a candidate
    is relevant or not (see `compute_relevance`), and they stand for `TOKENS` where a memory has none."""

    WORDS = "words"  # how well its words fit, compared with the best candidate
    MEANING = "meaning"  # how near its nearest passage is to the question
    COVERAGE = "coverage"  # the share of the question's words that it has; rare words count more
    PASSAGES = "passages"  # how near its few nearest passages are to the question on average
    TOKENS = "tokens"  # each word of the question has a near word in a passage
    ADJACENT_TURN = "adjacent turn"  # the turn before or after it fits: a question beside its answer
    NEIGHBOURHOOD = "neighbourhood"  # many of the best were remembered shortly before or after it
    SESSION = "session"  # its session is about what is asked
    SPEAKER = "speaker"  # its speaker is the person whom the question is about
    USER_RULE = "user rule"  # the user's own rule, or a preference if the question asks for advice
    DATE = "date"  # it was said on the date that the question names
    TIME = "time"  # the question asks for a time, and it names one
    RECENT = "recent"  # it is newer; counts more if the question asks for the latest


@frozen
class Weight:
    """The weight of a feature. `part` is the part of a score that a person sees."""

    feature: Feature
    part: str
    value: float


WEIGHTS = (
    Weight(Feature.WORDS, "words", 1.6),
    Weight(Feature.PASSAGES, "meaning", 2.26),
    Weight(Feature.TOKENS, "meaning", 5.11),
    Weight(Feature.ADJACENT_TURN, "neighbours", 2.17),
    Weight(Feature.NEIGHBOURHOOD, "neighbours", 1.42),
    Weight(Feature.SESSION, "session", 2.31),
    Weight(Feature.SPEAKER, "speaker", 2.17),
    Weight(Feature.USER_RULE, "speaker", 2.97),
    Weight(Feature.DATE, "date", 2.66),
    Weight(Feature.TIME, "date", 1.61),
    Weight(Feature.RECENT, "recency", 1.0),
)
"""`tests/benchmarks/refit_recall.py` fits the weights on talk and on long chats. The one of "recent" is set by
hand, because no data set asks for it."""


Features = Mapping[Feature, Vector]
"""The values of candidates by feature."""


@frozen
class Shortlist:
    """The memories that are compared closely, the best first, with the features that need no texts."""

    question: ParsedQuestion
    now: datetime
    rows: Sequence[MemoryRow]
    features: Features


@frozen
class Candidates:
    """The memories that are compared closely, with all features."""

    question: ParsedQuestion
    rows: Sequence[MemoryRow]
    features: Features
    terms: Sequence[frozenset[str]]
    """The terms of the question in each row."""


# -- candidates


def choose_pool(word_scores: Mapping[int, float], similarities: Mapping[int, float]) -> list[int]:
    """The `seq` of the `MAX_POOL` best memories by the sum of both searches."""
    seqs = sorted(word_scores.keys() | similarities.keys())
    best = numpy.argsort(-_add_searches(seqs, word_scores, similarities).total, kind="stable")[:MAX_POOL]
    return [seqs[index] for index in best.tolist()]


def select_candidates(
    question: ParsedQuestion,
    rows: Sequence[MemoryRow],
    previous: Mapping[int, int],
    word_scores: Mapping[int, float],
    near: Sequence[NearChunk],
    now: datetime,
) -> Shortlist:
    """Choose the candidates that are compared closely, by both searches, neighbours, speakers and dates.

    `rows` are the memories that the searches found, and the turns beside them. `previous` gives for the `seq` of a turn
    the `seq` of the turn before it in its session. `word_scores` has the BM25 of memories that were found by their
    words, by `seq`. `near` has chunks, the nearest first.
    """
    similarities = {seq: similarity for similarity, _, seq in reversed(near)}
    found_scores = _add_searches([row.seq for row in rows], word_scores, similarities)
    adjacent = _find_best_adjacent(rows, previous, found_scores.total)
    is_asked_speaker = _make_vector([row.speaker.casefold() in question.speakers for row in rows])
    date_fit = _make_vector([question.compute_date_fit(row.at) if question.dates else 0.0 for row in rows])
    preliminary_scores = (
        found_scores.total + ADJACENT_SHARE * adjacent + SPEAKER_SHARE * is_asked_speaker + DATE_SHARE * date_fit
    )
    close_indexes = numpy.argsort(-preliminary_scores, kind="stable")[:MAX_CLOSE]
    features = {
        Feature.WORDS: found_scores.words,
        Feature.MEANING: numpy.clip(found_scores.similarities, 0.0, 1.0),
        Feature.ADJACENT_TURN: adjacent,
        Feature.SESSION: _find_best_of_session(rows, found_scores.total),
        Feature.SPEAKER: is_asked_speaker,
        Feature.DATE: date_fit,
    }
    chosen_rows = [rows[index] for index in close_indexes.tolist()]
    return Shortlist(question, now, chosen_rows, {name: values[close_indexes] for name, values in features.items()})


@frozen
class _FoundScores:
    """The scores of memories in both searches."""

    words: Vector
    """Their BM25, divided by the best."""
    similarities: Vector
    """The similarity of their nearest chunks; 0 for a memory without vectors."""
    total: Vector
    """The weighted sum of both, in [0, 1]. Similarities are scaled for it, see `MAX_CANDIDATES`."""


def _add_searches(
    seqs: Sequence[int], word_scores: Mapping[int, float], similarities: Mapping[int, float]
) -> _FoundScores:
    """The scores of the memories `seqs`. A memory that a search did not find has 0 in it."""
    words = _scale(_make_vector([word_scores.get(seq, 0.0) for seq in seqs]), 0.0)
    meaning = _make_vector([similarities.get(seq, 0.0) for seq in seqs])
    has_meaning = numpy.array([seq in similarities for seq in seqs], bool)
    best_meanings = numpy.sort(meaning[has_meaning])[::-1][:MAX_CANDIDATES]
    floor = float(best_meanings[-1]) if len(best_meanings) else 0.0
    scaled_meaning = numpy.where(has_meaning, _scale(meaning, floor), 0.0)
    total = (WORDS_SHARE * words + MEANING_SHARE * scaled_meaning).astype(numpy.float32)
    return _FoundScores(words, meaning, total)


def _find_best_adjacent(rows: Sequence[MemoryRow], previous: Mapping[int, int], values: Vector) -> Vector:
    """For each row the better value of the turns before and after it, 0 if there is none."""
    best = numpy.zeros(len(rows), numpy.float32)
    indexes = {row.seq: index for index, row in enumerate(rows)}
    for seq, seq_before in previous.items():
        if seq in indexes and seq_before in indexes:
            turn, turn_before = indexes[seq], indexes[seq_before]
            best[turn] = max(best[turn], values[turn_before])
            best[turn_before] = max(best[turn_before], values[turn])
    return best


def _find_best_of_session(rows: Sequence[MemoryRow], values: Vector) -> Vector:
    """For each row the best value in its session; a row without one is a session of its own."""
    sessions = [row.session or row.seq for row in rows]
    best: dict[str | int, float] = {}
    for session, value in zip(sessions, values.tolist(), strict=True):
        best[session] = max(value, best.get(session, 0.0))
    return _make_vector([best[session] for session in sessions])


def add_text_features(
    shortlist: Shortlist, texts: Sequence[str], tokens: Sequence[float], passages: Sequence[float]
) -> Candidates:
    """The candidates with the features that need texts. For each candidate, `texts` has the text that was read,
    `tokens` its score by `vector_math.compute_maxsim`, and `passages` the similarity of its nearest passages."""
    question, rows = shortlist.question, shortlist.rows
    texts = [text.casefold() for text in texts]
    terms = question.terms or ("",)
    terms_in_rows = _find_terms(terms, texts)
    coverage = _compute_coverage(terms, terms_in_rows)
    # Another embedder gives no tokens. Then the vector counts, and without a vector the words.
    token_scores = _make_vector(tokens)
    without_tokens = numpy.maximum(shortlist.features[Feature.MEANING], coverage)
    features = {
        **shortlist.features,
        Feature.COVERAGE: coverage,
        Feature.PASSAGES: _make_vector(passages).clip(0.0, 1.0),
        Feature.TOKENS: numpy.where(token_scores > 0, token_scores, without_tokens),
        Feature.USER_RULE: _find_user_rules(question, rows, texts),
        Feature.TIME: _make_vector(
            [question.asks_when and not _TIMES.isdisjoint(WORD_PATTERN.findall(text)) for text in texts]
        ),
        Feature.RECENT: _compute_recency(shortlist),
    }
    scores = sum(weight.value * features[weight.feature] for weight in WEIGHTS if weight.feature in features)
    features[Feature.NEIGHBOURHOOD] = _count_neighbours(numpy.asarray(scores), [row.seq for row in rows])
    return Candidates(question, rows, features, terms_in_rows)


def _compute_coverage(terms: Sequence[str], terms_in_rows: Sequence[frozenset[str]]) -> Vector:
    """The share of the question's terms that each row has. A term counts more the fewer rows have it."""
    is_present = numpy.array([[term in row_terms for term in terms] for row_terms in terms_in_rows], numpy.float32)
    is_present = is_present.reshape(-1, len(terms))
    term_weights = numpy.log((len(terms_in_rows) + 1) / (is_present.sum(axis=0) + 0.5)).clip(0.05).astype(numpy.float32)
    return numpy.asarray(is_present @ (term_weights / term_weights.sum()))


def _find_user_rules(question: ParsedQuestion, rows: Sequence[MemoryRow], texts: Sequence[str]) -> Vector:
    """1 for each row that is a rule of the user, or a preference if the question asks for advice; 0 for others."""
    is_rule = [
        row.speaker.casefold() in USER_ROLES
        and bool(_RULE.search(text) or (question.asks_advice and _PREFERENCE.search(text)))
        for row, text in zip(rows, texts, strict=True)
    ]
    return _make_vector(is_rule)


def _compute_recency(shortlist: Shortlist) -> Vector:
    """How new each memory is, in [0, 1]. It counts a quarter if the question does not ask for the latest."""
    times = [datetime.fromisoformat(row.at) for row in shortlist.rows]
    ages = numpy.array([max(0.0, (shortlist.now - at) / timedelta(days=1)) for at in times])
    recent = numpy.exp(-ages / RECENT_DAYS) * (1.0 if shortlist.question.asks_latest else 0.25)
    return numpy.asarray(recent, numpy.float32)


def _count_neighbours(scores: Vector, seqs: Sequence[int]) -> Vector:
    """How many of the best candidates were remembered shortly before or after each, in [0, 1]. Memories of one subject
    are often remembered one after the other, also over several sessions."""
    positions = numpy.array(seqs, numpy.float64)  # exact for every `seq`
    best = numpy.argsort(-scores, kind="stable")[:MAX_CENTRES]
    distances = numpy.abs(positions[:, None] - positions[best])
    near = numpy.exp(-distances / NEIGHBOURHOOD_DISTANCE) * (distances > 0) * _scale(scores, 0.0)[best]
    return numpy.asarray(near.sum(axis=1) / MAX_CENTRES, numpy.float32)


def _find_terms(terms: Sequence[str], texts: Sequence[str]) -> list[frozenset[str]]:
    """The terms that each text has; the texts are in lower case. Only words with the beginning of a term are stemmed,
    because a stem differs from its word only at the end."""
    beginnings = "|".join(re.escape(term[:-1] or term) for term in terms)
    word = re.compile(rf"(?<![^\W_])(?:{beginnings})[^\W_]*")
    wanted_terms = frozenset(terms)
    return [wanted_terms.intersection(map(make_stem, word.findall(text))) for text in texts]


def _make_vector(values: Sequence[float]) -> Vector:
    return numpy.array(values, numpy.float32)


def _scale(values: Vector, floor: float) -> Vector:
    """Values scaled so that `floor` and less are 0, and the best is 1."""
    best = float(values.max(initial=floor))
    if best - floor < 1e-6:
        return numpy.zeros(len(values), numpy.float32)
    return numpy.asarray(numpy.clip((values - floor) / (best - floor), 0.0, 1.0), numpy.float32)


# -- ranking


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
    if not candidates.rows:
        return []
    shares, parts = _compute_parts(candidates)
    order = numpy.argsort(-numpy.sum(list(parts.values()), axis=0), kind="stable")
    ranked = []
    for index in order[_select_relevant(candidates)[order]][:limit].tolist():
        score_parts = tuple(
            ScorePart(part, min(1.0, max(0.0, float(parts[part][index]) / share)), share)
            for part, share in shares.items()
        )
        score = sum(part.points for part in score_parts)
        ranked.append(RankedCandidate(index, score, score_parts, _describe_reason(candidates, index)))
    return ranked


def _compute_parts(candidates: Candidates) -> tuple[dict[str, float], dict[str, Vector]]:
    """For each part of a score its share of all weights, and the points of each candidate, at most that share."""
    counted = _select_weights(candidates)
    total = sum(weight.value for weight in counted)
    shares = dict.fromkeys((weight.part for weight in counted), 0.0)
    points: dict[str, Vector] = {part: numpy.zeros(len(candidates.rows), numpy.float32) for part in shares}
    for weight in counted:
        share = weight.value / total
        shares[weight.part] += share
        points[weight.part] = points[weight.part] + share * candidates.features[weight.feature]
    return shares, points


def _select_weights(candidates: Candidates) -> list[Weight]:
    """The weights without those of features that the question does not ask for, so that scores can be compared with
    those of other layers. A feature that it asks for lowers the score of every candidate without it, even if all are
    without it."""
    question = candidates.question
    is_applicable = {
        Feature.SPEAKER: bool(question.speakers),
        Feature.DATE: bool(question.dates),
        Feature.TIME: question.asks_when,
        Feature.USER_RULE: candidates.features[Feature.USER_RULE].any(),
    }
    return [weight for weight in WEIGHTS if is_applicable.get(weight.feature, True)]


def compute_relevance(candidates: Candidates) -> Vector:
    """How near each candidate is to the question: its cosine, and a bonus for its key words."""
    coverage = candidates.features[Feature.COVERAGE]
    # Rare words alone, without a vector, can reach the threshold: about half of those of the question.
    nearness: Vector = numpy.maximum(candidates.features[Feature.MEANING], WORDS_ALONE * coverage)
    return nearness + COVERAGE_BONUS * coverage


def _select_relevant(candidates: Candidates) -> Mask:
    """A mask of the candidates that may be found: none if no one reaches `MIN_RELEVANCE`; otherwise those that come
    near it, and those of a session in which one reaches it. An answer often shares neither words nor meaning with the
    question, only its session."""
    relevance, threshold = compute_relevance(candidates), MIN_RELEVANCE - 1e-6  # float32
    if not (relevance >= threshold).any():
        return numpy.zeros(len(relevance), bool)
    sessions = [row.session for row in candidates.rows]
    relevant_sessions = {
        session for session, value in zip(sessions, relevance.tolist(), strict=True) if session and value >= threshold
    }
    in_relevant_session = numpy.array([session in relevant_sessions for session in sessions], bool)
    return numpy.asarray(in_relevant_session | (relevance >= threshold / COMPANION_DIVISOR))


def _describe_reason(candidates: Candidates, index: int) -> str:
    """Why a candidate was found, in words."""
    row = candidates.rows[index]
    features = {name: float(values[index]) for name, values in candidates.features.items()}
    reasons = []
    words = [word for word in candidates.question.words if make_stem(word) in candidates.terms[index]]
    if features[Feature.COVERAGE] > 0 and words:  # a question of signs alone has no words
        reasons.append("says " + ", ".join(words[:5]))
    if features[Feature.MEANING] > 0 and (features[Feature.MEANING] >= NOTABLE_VALUE or not reasons):
        reasons.append(f"near in meaning ({features[Feature.MEANING]:.2f})")
    if features[Feature.USER_RULE]:
        reasons.append("a rule or preference of yours")
    elif features[Feature.SPEAKER]:
        reasons.append(f"{row.speaker} says it")
    if features[Feature.DATE]:
        reasons.append(f"said on {row.at[:10]}")
    if features[Feature.ADJACENT_TURN] >= NOTABLE_VALUE:
        reasons.append("next to a matching turn")
    if not reasons:
        reasons.append(
            "its session is about it" if features[Feature.SESSION] >= NOTABLE_VALUE else "several weak matches"
        )
    return "; ".join(reasons)
