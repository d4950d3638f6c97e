"""The order of candidates, and each one's reasons (SPEC 4.4): a weighted sum of what speaks for them, no model. Pure.

Every recall goes through it. A long memory is judged by its passage that is nearest to the question, so that its length
counts neither for it nor against it. What does not apply (no speakers, no dates, no sessions, no vectors) is 0 for all:
nothing has to be switched on or off for one kind of text or another.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from engine.memory.question import USERS, Question, stem, stems
from engine.model import ScorePart

if TYPE_CHECKING:
    import numpy

    Vector = numpy.ndarray[Any, numpy.dtype[numpy.float32]]
    Matrix = Vector
    Places = numpy.ndarray[Any, numpy.dtype[numpy.int64]]


@dataclass(frozen=True, slots=True)
class Weight:
    """`part` is the part of a score that a person sees."""

    feature: str
    part: str
    weight: float
    why: str


WEIGHTS = (
    Weight("words", "words", 1.15, "how well its words fit, beside the best of all"),
    Weight("names", "words", 0.6, "it names something"),
    Weight("meaning", "meaning", 2.2, "its nearest passage is near to the question"),
    Weight("tokens", "meaning", 5.5, "each word of the question finds a near one in a passage"),
    Weight("beside", "neighbours", 1.6, "the turn before or after it fits: what answers, or was asked"),
    Weight("window", "neighbours", 1.05, "it and the turns beside it have all the words together"),
    Weight("session", "session", 2.9, "its session is about what is asked"),
    Weight("who", "speaker", 2.7, "the one whom the question is about says it"),
    Weight("standing", "speaker", 3.2, "the user's own rule; where advice is asked for, what the user prefers"),
    Weight("date", "date", 4.5, "it was said when the question says"),
    Weight("time", "date", 1.4, "the question asks for a time, and it names one"),
    Weight("recent", "recency", 1.0, "of two that fit alike the newer, above all when the latest is asked for"),
)
"""`tests/benchmarks/refit_recall.py` fits them again on talk and on long chats; the last is set by hand, since no set
asks for it."""

WORDS_SHARE, MEANING_SHARE = 0.4, 0.6
"""Plain fusion of the two searches, by which candidates are chosen and neighbours judged."""

FOUND_MOST = 300
"""So many candidates each search brings; the last of them is the floor of "near in meaning"."""

CLOSE_MOST = 120
"""So many candidates are looked at closely."""

RECENT_DAYS = 14.0

NEAR = 0.27
"""The limit of recall (SPEC 4.3), in `_nearness`: where no line of a question reaches it, nothing is found. Of a line
that shares no word with the question it is a squared L2 of 1.46. `tests/benchmarks/test_recall_unrelated.py` measures
it on three memories: nothing is found for .94 of everyday questions whose answer is in none, and recall@10 of
questions that they answer does not fall.

A line goes along from a third of it, or where a line of its session reaches the whole: what answers a question often
shares neither words nor meaning with it, only its session."""

FAR = 3.0
"""The part of the limit from which a line goes along."""

WORDS_COUNT = 0.3
"""What all of a question's telling words add to a cosine."""

WORDS_ALONE = 0.28
"""The cosine that they stand for where the vector says less: half of the telling words, rare ones counting more, reach
the limit without any vector."""

TELLING = 0.5
"""A feature is named as a reason when it has at least this much of what it could have."""

_TIME = re.compile(
    r"\b(?:yesterday|today|tonight|tomorrow|last|next|ago|week|weekend|month|year|monday|tuesday|wednesday|thursday|"
    r"friday|saturday|sunday|january|february|march|april|may|june|july|august|september|october|november|december|"
    r"morning|evening|recently|soon|since|(?:19|20)\d\d)\b",
    re.IGNORECASE,
)
_NAME = re.compile(r"(?<![.!?]\s)(?<!^)\b[A-Z][a-z]+")
_RULE = re.compile(r"^\W*(?:please )?(?:always|never|from now on)\b|\bwhen(?:ever)? i ask\b", re.IGNORECASE)
_PREFERS = re.compile(
    r"\bi(?:['’]d| would| do| usually| generally| always| really)? (?:prefer|like to|rather|tend to)\b|"
    r"\bmy preference\b|\bi never\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Pool:
    """Candidates and the turns beside them, column by column.

    `before` and `after` are the places in the pool of the turn before and after in the same session, -1 where there is
    none. `words` is BM25, 0 where a search by words did not find it; `meaning` the cosine of the nearest passage with
    the question, NaN where it is not known.
    """

    speakers: Sequence[str]
    sessions: Sequence[str]
    times: Sequence[datetime | None]
    before: Places
    after: Places
    words: Vector
    meaning: Vector
    now: datetime

    def around(self, places: Places) -> Places:
        """These places and those beside them."""
        import numpy

        every = numpy.unique(numpy.concatenate([places, self.before[places], self.after[places]]))
        return every[every >= 0]


@dataclass(frozen=True, slots=True)
class FirstLook:
    """What is known of every row of a pool without reading texts: enough to choose whom to look at closely."""

    words: Vector
    beside: Vector
    session: Vector
    who: Vector
    date: Vector
    best: Places
    """The places to look at closely, the best first."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """A candidate's place in the pool and its score, the sum of its parts' `value * weight`: in [0, 1]."""

    place: int
    score: float
    parts: tuple[ScorePart, ...]
    reason: str


def first_look(question: Question, pool: Pool) -> FirstLook:
    """Fuse both searches and look at sessions, speakers and dates."""
    import numpy

    words = _relative(pool.words, 0.0)
    known = ~numpy.isnan(pool.meaning)
    meaning = numpy.where(known, pool.meaning, 0.0).astype(numpy.float32)
    floor = float(numpy.sort(meaning[known])[::-1][:FOUND_MOST][-1]) if known.any() else 0.0
    near = numpy.where(known, _relative(meaning, floor), 0.0)
    fused: Vector = (WORDS_SHARE * words + MEANING_SHARE * near).astype(numpy.float32)
    number: dict[str, int] = {}
    # A line without a session is a session of its own.
    of = numpy.array(
        [number.setdefault(one or f"\x00{place}", len(number)) for place, one in enumerate(pool.sessions)], numpy.int64
    )
    session = numpy.zeros(len(number), numpy.float32)
    numpy.maximum.at(session, of, fused)
    beside = numpy.maximum(_from(fused, pool.before), _from(fused, pool.after))
    who = numpy.array([one.casefold() in question.asked for one in pool.speakers], numpy.float32)
    date = numpy.zeros(len(who), numpy.float32)
    if question.whens:
        for place, at in enumerate(pool.times):
            if at is not None:
                date[place] = max(one.fits(at.date()) for one in question.whens)
    rough = fused + 0.3 * beside + 0.3 * who + 0.15 * date
    best = numpy.argsort(-rough, kind="stable")[:CLOSE_MOST]
    return FirstLook(words, beside, session[of], who, date, best)


def close_look(
    question: Question, pool: Pool, look: FirstLook, texts: Mapping[int, str], tokens: Vector
) -> dict[str, Vector]:
    """All features of the rows at `look.best`, by name, and "coverage", the share of the question's words that each
    has, rare ones counting more. `texts` are what was read by place, of those rows and of the turns beside them;
    `tokens` is what `token_vectors.match` says of those rows."""
    import numpy

    places = look.best
    own = [texts[place] for place in places.tolist()]
    there = _present(question, len(pool.sessions), texts)
    worth = numpy.log((len(texts) + 1) / (there.sum(axis=0) + 0.5)).clip(0.05).astype(numpy.float32)
    worth /= worth.sum()
    window = numpy.maximum(
        there[places], numpy.maximum(_from(there, pool.before[places]), _from(there, pool.after[places]))
    )
    users = [pool.speakers[place].casefold() in USERS for place in places.tolist()]
    standing = [
        user and bool(_RULE.search(text) or (question.asks_advice and _PREFERS.search(text)))
        for user, text in zip(users, own, strict=True)
    ]
    coverage = there[places] @ worth
    meaning = numpy.clip(numpy.nan_to_num(pool.meaning[places]), 0.0, 1.0)
    ages = [
        math.inf if at is None else max(0.0, (pool.now - at).total_seconds() / 86400)
        for at in (pool.times[place] for place in places.tolist())
    ]
    return {
        "coverage": coverage,
        "words": look.words[places],
        "names": numpy.array([min(4, len(_NAME.findall(text))) / 4 for text in own], numpy.float32),
        "meaning": meaning,
        # Of another embedder no tokens are known: then the vector, and without any the words themselves.
        "tokens": numpy.where(tokens > 0, tokens, numpy.maximum(meaning, coverage)),
        "beside": look.beside[places],
        "window": window @ worth,
        "session": look.session[places],
        "who": look.who[places],
        "standing": numpy.array(standing, numpy.float32),
        "date": look.date[places],
        "time": numpy.array([question.asks_when and bool(_TIME.search(text)) for text in own], numpy.float32),
        "recent": numpy.exp(-numpy.array(ages) / RECENT_DAYS).astype(numpy.float32)
        * (1.0 if question.asks_latest else 0.25),
    }


def rank(
    question: Question,
    pool: Pool,
    look: FirstLook,
    texts: Mapping[int, str],
    tokens: Vector,
    *,
    most: int | None = None,
) -> list[Ranked]:
    """The rows at `look.best`, best first, at most `most`; see `close_look`. Rows that score the same stay in their
    order."""
    import numpy

    places = look.best
    if not len(places):
        return []
    found = close_look(question, pool, look, texts, tokens)
    # What is not asked for no line can have: it is not counted, so that one that has all there is to have stands beside
    # what other layers find as what it is. What a line could have and has not lowers its score, even if none has it.
    idle = {"who"} if not question.asked else set()
    idle |= ({"date"} if not question.whens else set()) | ({"time"} if not question.asks_when else set())
    idle |= {"standing"} if not found["standing"].any() else set()
    counted = [one for one in WEIGHTS if one.feature not in idle]
    total = sum(one.weight for one in counted)
    shares = dict.fromkeys((one.part for one in counted), 0.0)
    parts: dict[str, Vector] = {part: numpy.zeros(len(places), numpy.float32) for part in shares}
    for one in counted:
        shares[one.part] += one.weight / total
        parts[one.part] = parts[one.part] + one.weight / total * found[one.feature]
    order = numpy.argsort(-numpy.sum(list(parts.values()), axis=0), kind="stable")
    order = order[_near_enough(_nearness(found), [pool.sessions[place] for place in places.tolist()])[order]][:most]
    ranked = []
    for row in order.tolist():
        mine = tuple(
            ScorePart(part, min(1.0, max(0.0, float(parts[part][row]) / share)), share)
            for part, share in shares.items()
        )
        place = int(places[row])
        score = sum(one.value * one.weight for one in mine)
        ranked.append(Ranked(place, score, mine, _reason(question, pool, texts[place], found, row, place)))
    return ranked


def _nearness(found: dict[str, Vector]) -> Vector:
    """How near each line is to the question, from its cosine and the question's telling words that it has."""
    import numpy

    coverage = found["coverage"]
    return numpy.asarray(numpy.maximum(found["meaning"], WORDS_ALONE * coverage) + WORDS_COUNT * coverage)


def _near_enough(near: Vector, sessions: Sequence[str]) -> Any:
    """Which lines are near enough to be found; see `NEAR`."""
    import numpy

    least = NEAR - 1e-6  # float32
    about = {session for session, value in zip(sessions, near.tolist(), strict=True) if session and value >= least}
    beside = numpy.array([session in about for session in sessions], bool)
    return (near >= least).any() & (beside | (near >= least / FAR))


def _reason(question: Question, pool: Pool, text: str, found: dict[str, Vector], row: int, place: int) -> str:
    """Why, in words."""
    said = []
    if found["coverage"][row] > 0:
        present = set(stems(text))
        words = [word for word in question.words if stem(word) in present]
        said.append("says " + ", ".join(words[:5]))
    if found["meaning"][row] > 0 and (found["meaning"][row] >= TELLING or not said):
        said.append(f"near in meaning ({found['meaning'][row]:.2f})")
    if found["standing"][row]:
        said.append("a rule or preference of yours")
    elif found["who"][row]:
        said.append(f"{pool.speakers[place]} says it")
    if found["date"][row]:
        at = pool.times[place]
        said.append(f"said on {at.date().isoformat()}" if at else "said then")
    if found["beside"][row] >= TELLING:
        said.append("next to a matching turn")
    if not said:
        said.append("its session is about it" if found["session"][row] >= TELLING else "several weak matches")
    return "; ".join(said)


def _present(question: Question, size: int, texts: Mapping[int, str]) -> Matrix:
    """Which of the question's terms are in each text: a row for each place, a column for each term."""
    import numpy

    there = numpy.zeros((size, max(1, len(question.terms))), numpy.float32)
    lower = {place: text.casefold() for place, text in texts.items()}
    for column, term in enumerate(question.terms):
        # A word begins as its stem does, but for a y that became an i: few texts have to be read.
        start = term.removesuffix("i") or term
        words = re.compile(rf"(?<![^\W_]){re.escape(start)}[^\W_]*")
        for place, text in lower.items():
            if start in text and any(stem(word) == term for word in words.findall(text)):
                there[place, column] = 1
    return there


def _relative(values: Vector, floor: float) -> Vector:
    """Between the floor (0) and the best (1)."""
    import numpy

    best = float(values.max(initial=floor))
    if best - floor < 1e-6:
        return numpy.zeros(len(values), numpy.float32)
    return numpy.asarray(numpy.clip((values - floor) / (best - floor), 0.0, 1.0), numpy.float32)


def _from(values: Vector, places: Places) -> Vector:
    """The values (or rows) at other places, 0 where there is none."""
    import numpy

    there = (places >= 0) if values.ndim == 1 else (places >= 0)[:, None]
    return numpy.asarray(numpy.where(there, values[places], 0.0), numpy.float32)
