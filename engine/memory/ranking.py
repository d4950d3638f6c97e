"""Ranks candidates of a recall by a weighted sum of features, and gives the reasons for each (SPEC 4.4). It asks no
model, and all of it is pure. `search` reads the candidates, and calls `select_candidates`, `add_text_features` and
`rank` in this order.

A long memory is judged by its passage that is nearest to the question, so that its length does not matter. A feature
that does not apply (there are no speakers, dates, sessions or vectors) is 0 for all candidates. So the same weights
rank conversations, long messages, documentation and code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.frozen import frozen
from engine.memory.question import MONTHS, USERS, WORD, Question, stem
from engine.model import ScorePart
from engine.model.memory import weighted_sum

if TYPE_CHECKING:
    import numpy

    Vector = numpy.ndarray[Any, numpy.dtype[numpy.float32]]


@frozen
class Weight:
    """`part` is the part of a score that a person sees."""

    feature: str
    part: str
    weight: float


AROUND = "around"
"""The feature that is made of the others."""

WEIGHTS = (
    Weight("words", "words", 1.6),  # how well its words fit, compared with the best candidate
    Weight("passages", "meaning", 2.26),  # its nearest passages are near to the question
    Weight("tokens", "meaning", 5.11),  # each word of the question has a near word in a passage
    Weight("beside", "neighbours", 2.17),  # the turn before or after it fits: a question beside its answer
    Weight(AROUND, "neighbours", 1.42),  # many of the best were remembered shortly before or after it
    Weight("session", "session", 2.31),  # its session is about what is asked
    Weight("who", "speaker", 2.17),  # its speaker is the person whom the question is about
    Weight("standing", "speaker", 2.97),  # the user's own rule, or a preference if the question asks for advice
    Weight("date", "date", 2.66),  # it was said on the date that the question names
    Weight("time", "date", 1.61),  # the question asks for a time, and it names one
    Weight("recent", "recency", 1.0),  # it is newer; counts more if the question asks for the latest
)
"""`tests/benchmarks/refit_recall.py` fits the weights on talk and on long chats. "recent" is set by hand, because no
data set asks for it."""

WORDS_SHARE, MEANING_SHARE = 0.4, 0.6
"""Weights of the two searches in their plain sum, by which candidates are chosen and neighbours are judged."""

BESIDE_SHARE, SPEAKER_SHARE, DATE_SHARE = 0.3, 0.3, 0.15
"""The weights of a matching neighbour, of the speaker and of the date that the question names. They are added to that
sum when candidates are chosen."""

MAX_FOUND = 300
"""Candidates of each search. Similarities are scaled so that the last candidate has 0."""

MAX_CLOSE = 80
"""Candidates that are compared closely, by their texts."""

RECENT_DAYS = 14.0
MAX_CENTRES = 5
"""The number of the best candidates whose neighbours count more."""

AROUND_TURNS = 5.0
"""The distance, in memories, at which a neighbour counts a third (1/e)."""

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

_TIME_WORDS = """
yesterday today tonight tomorrow last next ago week weekend month year morning evening recently soon since
monday tuesday wednesday thursday friday saturday sunday
"""
_TIMES = frozenset(MONTHS.keys() | _TIME_WORDS.split() | set(map(str, range(1900, 2100))))
_STANDING_RULE = re.compile(r"^\W*(?:please )?(?:always|never|from now on)\b|\bwhen(?:ever)? i ask\b", re.IGNORECASE)
_PREFERENCE = re.compile(
    r"\bi(?:['’]d| would| do| usually| generally| always| really)? (?:prefer|like to|rather|tend to)\b|"
    r"\bmy preference\b|\bi never\b",
    re.IGNORECASE,
)


Near = tuple[float, int, int]
"""The similarity of a chunk to the question, its id, and the `seq` of its memory. A plain tuple, because a recall makes
thousands of them."""


class Row(NamedTuple):
    """A memory without its text. `at` is as it is stored: ISO 8601 in UTC."""

    seq: int
    speaker: str
    session: str
    at: str


@dataclass(slots=True)
class Candidates:
    """The memories that are compared closely, the best first. `features` has their values by the name of a feature."""

    question: Question
    now: datetime
    rows: Sequence[Row]
    features: dict[str, Vector]
    terms: Sequence[frozenset[str]] = ()
    """The terms of the question in each row."""


@frozen
class RankedCandidate:
    """A candidate, by its index in `Candidates.rows`, with its score in [0, 1]: the sum of `value * weight` of its
    parts."""

    index: int
    score: float
    parts: tuple[ScorePart, ...]
    reason: str


def select_candidates(
    question: Question,
    rows: Sequence[Row],
    previous: Mapping[int, int],
    word_scores: Mapping[int, float],
    near: Sequence[Near],
    now: datetime,
) -> Candidates:
    """Choose the candidates that are compared closely. Their texts are not needed for that, only both searches,
    neighbours, speakers and dates.

    `rows` are the memories that the searches found, and the turns beside them. `previous` gives for the `seq` of a turn
    the `seq` of the turn before it in its session. `word_scores` has the BM25 of memories that were found by their
    words, by `seq`. `near` has chunks, the nearest first.
    """
    import numpy

    similarities = {seq: similarity for similarity, _, seq in reversed(near)}
    words = _relative(numpy.array([word_scores.get(row.seq, 0.0) for row in rows], numpy.float32), 0.0)
    meaning = numpy.array([similarities.get(row.seq, 0.0) for row in rows], numpy.float32)
    has_meaning = numpy.array([row.seq in similarities for row in rows], bool)
    best_meanings = numpy.sort(meaning[has_meaning])[::-1][:MAX_FOUND]
    floor = float(best_meanings[-1]) if len(best_meanings) else 0.0
    scaled_meaning = numpy.where(has_meaning, _relative(meaning, floor), 0.0)
    fused: Vector = (WORDS_SHARE * words + MEANING_SHARE * scaled_meaning).astype(numpy.float32)
    beside = _best_beside(rows, previous, fused)
    speakers = {row.speaker for row in rows}
    asked_speakers = {speaker for speaker in speakers if speaker.casefold() in question.speakers}
    is_asked_speaker = numpy.array([row.speaker in asked_speakers for row in rows], numpy.float32)
    date_fit = numpy.array([question.date_fit(row.at) if question.dates else 0.0 for row in rows], numpy.float32)
    promise = fused + BESIDE_SHARE * beside + SPEAKER_SHARE * is_asked_speaker + DATE_SHARE * date_fit
    chosen = numpy.argsort(-promise, kind="stable")[:MAX_CLOSE]
    features = {
        "words": words,
        "meaning": numpy.clip(meaning, 0.0, 1.0),
        "beside": beside,
        "session": _best_of_session(rows, fused),
        "who": is_asked_speaker,
        "date": date_fit,
    }
    chosen_rows = [rows[index] for index in chosen.tolist()]
    return Candidates(question, now, chosen_rows, {name: values[chosen] for name, values in features.items()})


def _best_beside(rows: Sequence[Row], previous: Mapping[int, int], values: Vector) -> Vector:
    """For each row the better value of the turns before and after it, 0 if there is none."""
    import numpy

    best = numpy.zeros(len(rows), numpy.float32)
    indexes = {row.seq: index for index, row in enumerate(rows)}
    for seq, seq_before in previous.items():
        if seq in indexes and seq_before in indexes:
            turn, turn_before = indexes[seq], indexes[seq_before]
            best[turn] = max(best[turn], values[turn_before])
            best[turn_before] = max(best[turn_before], values[turn])
    return best


def _best_of_session(rows: Sequence[Row], values: Vector) -> Vector:
    """For each row the best value in its session; a row without one is a session of its own."""
    import numpy

    sessions = [row.session or row.seq for row in rows]
    best: dict[str | int, float] = {}
    for session, value in zip(sessions, values.tolist(), strict=True):
        best[session] = max(value, best.get(session, 0.0))
    return numpy.array([best[session] for session in sessions], numpy.float32)


def add_text_features(candidates: Candidates, texts: Sequence[str], tokens: Vector, passages: Vector) -> None:
    """Add the features that need texts. For each candidate, `texts` has the text that was read, `tokens` its score by
    `token_vectors.maxsim`, and `passages` the similarity of its nearest passages. The feature "coverage" is the share
    of the question's words that a text has; rare words count more."""
    import numpy

    question = candidates.question
    texts = [text.casefold() for text in texts]
    terms = question.terms or ("",)
    candidates.terms = _terms_in(terms, texts)
    present = numpy.array(
        [[term in present_terms for term in terms] for present_terms in candidates.terms], numpy.float32
    ).reshape(-1, len(terms))
    term_weights = numpy.log((len(texts) + 1) / (present.sum(axis=0) + 0.5)).clip(0.05).astype(numpy.float32)
    coverage = present @ (term_weights / term_weights.sum())
    standing = [
        row.speaker.casefold() in USERS
        and bool(_STANDING_RULE.search(text) or (question.asks_advice and _PREFERENCE.search(text)))
        for row, text in zip(candidates.rows, texts, strict=True)
    ]
    ages = [max(0.0, (candidates.now - datetime.fromisoformat(row.at)) / timedelta(days=1)) for row in candidates.rows]
    recent = numpy.exp(-numpy.array(ages) / RECENT_DAYS) * (1.0 if question.asks_latest else 0.25)
    candidates.features |= {
        "coverage": coverage,
        "passages": passages,
        # Another embedder gives no tokens. Then the vector counts, and without a vector the words.
        "tokens": numpy.where(tokens > 0, tokens, numpy.maximum(candidates.features["meaning"], coverage)),
        "standing": numpy.array(standing, numpy.float32),
        "time": numpy.array(
            [question.asks_when and not _TIMES.isdisjoint(WORD.findall(text)) for text in texts], numpy.float32
        ),
        "recent": recent.astype(numpy.float32),
    }
    scores = sum(weight.weight * candidates.features[weight.feature] for weight in WEIGHTS if weight.feature != AROUND)
    candidates.features[AROUND] = _around(numpy.asarray(scores), [row.seq for row in candidates.rows])


def _around(scores: Vector, seqs: Sequence[int]) -> Vector:
    """How many of the best candidates were remembered shortly before or after each, in [0, 1]. Memories of one subject
    are often remembered one after the other, also over several sessions."""
    import numpy

    positions = numpy.array(seqs, numpy.float64)  # exact for every `seq`
    best = numpy.argsort(-scores, kind="stable")[:MAX_CENTRES]
    distances = numpy.abs(positions[:, None] - positions[best])
    near = numpy.exp(-distances / AROUND_TURNS) * (distances > 0) * _relative(scores, 0.0)[best]
    return numpy.asarray(near.sum(axis=1) / MAX_CENTRES, numpy.float32)


def _terms_in(terms: Sequence[str], texts: Sequence[str]) -> list[frozenset[str]]:
    """The terms that each text has; the texts are in lower case. Only words with the beginning of a term are stemmed,
    because a stem differs from its word only at the end."""
    beginnings = "|".join(re.escape(term[:-1] or term) for term in terms)
    word = re.compile(rf"(?<![^\W_])(?:{beginnings})[^\W_]*")
    wanted = frozenset(terms)
    return [wanted.intersection(map(stem, word.findall(text))) for text in texts]


def rank(candidates: Candidates, *, limit: int | None = None) -> list[RankedCandidate]:
    """The relevant candidates with their scores, best first, at most `limit`. Candidates with equal scores keep their
    order."""
    import numpy

    question, features, size = candidates.question, candidates.features, len(candidates.rows)
    if not size:
        return []
    # A feature that the question does not ask for is not counted, so that scores can be compared with those of other
    # layers. A feature that it asks for lowers the score of every candidate without it, even if all are without it.
    is_applicable = {
        "who": bool(question.speakers),
        "date": bool(question.dates),
        "time": question.asks_when,
        "standing": features["standing"].any(),
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


def _relevant(candidates: Candidates) -> Any:
    """A mask of the candidates that are near enough to be found, by their cosine and the key words that they have; see
    `MIN_RELEVANCE`."""
    import numpy

    coverage, threshold = candidates.features["coverage"], MIN_RELEVANCE - 1e-6  # float32
    relevance = numpy.maximum(candidates.features["meaning"], WORDS_ALONE * coverage) + COVERAGE_BONUS * coverage
    if not (relevance >= threshold).any():
        return numpy.zeros(len(relevance), bool)
    sessions = [row.session for row in candidates.rows]
    relevant_sessions = {
        session for session, value in zip(sessions, relevance.tolist(), strict=True) if session and value >= threshold
    }
    in_relevant_session = numpy.array([session in relevant_sessions for session in sessions], bool)
    return in_relevant_session | (relevance >= threshold / COMPANION_DIVISOR)


def _reason(candidates: Candidates, index: int) -> str:
    """Why a candidate was found, in words."""
    row = candidates.rows[index]
    features = {name: float(values[index]) for name, values in candidates.features.items()}
    reasons = []
    if features["coverage"] > 0:
        terms = candidates.terms[index]
        reasons.append("says " + ", ".join([word for word in candidates.question.words if stem(word) in terms][:5]))
    if features["meaning"] > 0 and (features["meaning"] >= NOTABLE or not reasons):
        reasons.append(f"near in meaning ({features['meaning']:.2f})")
    if features["standing"]:
        reasons.append("a rule or preference of yours")
    elif features["who"]:
        reasons.append(f"{row.speaker} says it")
    if features["date"]:
        reasons.append(f"said on {row.at[:10]}")
    if features["beside"] >= NOTABLE:
        reasons.append("next to a matching turn")
    if not reasons:
        reasons.append("its session is about it" if features["session"] >= NOTABLE else "several weak matches")
    return "; ".join(reasons)


def _relative(values: Vector, floor: float) -> Vector:
    """Values scaled so that `floor` and less are 0, and the best is 1."""
    import numpy

    best = float(values.max(initial=floor))
    if best - floor < 1e-6:
        return numpy.zeros(len(values), numpy.float32)
    return numpy.asarray(numpy.clip((values - floor) / (best - floor), 0.0, 1.0), numpy.float32)
