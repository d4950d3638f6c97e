"""What speaks for a candidate, as numbers in [0, 1]: one column a feature. Pure.

Each feature is absent (0 for all) where it does not apply: no speakers, no dates, no sessions, no vectors. So nothing
has to be switched on or off for one kind of memories or another; `weights` says what each counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from engine.memory.question import Question, stem

if TYPE_CHECKING:
    import numpy

    Vector = numpy.ndarray[Any, numpy.dtype[numpy.float32]]
    Matrix = Vector
    Places = numpy.ndarray[Any, numpy.dtype[numpy.int64]]

WORDS_SHARE, MEANING_SHARE = 0.4, 0.6
"""Plain fusion of the two searches, by which candidates are chosen and neighbours judged."""

FOUND_MOST = 300
"""So many candidates each search brings; the last of them is the floor of "near in meaning"."""

RECENT_DAYS = 14.0

_TIME = re.compile(
    r"\b(?:yesterday|today|tonight|tomorrow|last|next|ago|week|weekend|month|year|monday|tuesday|wednesday|thursday|"
    r"friday|saturday|sunday|january|february|march|april|may|june|july|august|september|october|november|december|"
    r"morning|evening|recently|soon|since|(?:19|20)\d\d)\b",
    re.IGNORECASE,
)
_NAME = re.compile(r"(?<![.!?]\s)(?<!^)\b[A-Z][a-z]+")
_SECOND = re.compile(r"\b(?:you|your|you['’]re|you['’]ve)\b", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+")
READ = 4_000
"""Characters of a candidate that are looked at for features of its text."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Candidates and their neighbours, column by column.

    `texts` are those of the lines that are looked at closely, and of the lines beside them, at most `READ` characters
    of each; "" for others. `times` may be None. `before` and `after` are the places in the pool of the turn before and
    after in the same session, -1 where there is none. `words` is BM25, 0 where a search by words did not find it;
    `meaning` the cosine with the question, NaN where it is not known.
    """

    texts: list[str]
    speakers: Sequence[str]
    sessions: Sequence[str]
    times: list[datetime | None]
    before: Places
    after: Places
    words: Vector
    meaning: Vector
    now: datetime | None = None

    def __len__(self) -> int:
        return len(self.sessions)

    def around(self, places: Places) -> Places:
        """These places and those beside them."""
        import numpy

        every = numpy.unique(numpy.concatenate([places, self.before[places], self.after[places]]))
        return every[every >= 0]


@dataclass(frozen=True, slots=True)
class FirstLook:
    """What is known of every row of a pool without reading texts: enough to choose whom to look at closely."""

    words: Vector
    fused: Vector
    beside: Vector
    session: Vector
    asked: Vector
    date: Vector

    def order(self) -> Places:
        """Places, the best first."""
        import numpy

        rough = self.fused + 0.4 * self.beside + 0.3 * self.asked + 0.15 * self.date
        return numpy.argsort(-rough, kind="stable")


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
    best = numpy.zeros(len(number), numpy.float32)
    numpy.maximum.at(best, of, fused)
    asked = numpy.array([one.casefold() in question.asked for one in pool.speakers], numpy.float32)
    date = numpy.zeros(len(pool), numpy.float32)
    if question.whens:
        fits: dict[Any, float] = {}
        for place, at in enumerate(pool.times):
            if at is not None:
                day = at.date()
                if day not in fits:
                    fits[day] = max(one.fits(day) for one in question.whens)
                date[place] = fits[day]
    return FirstLook(
        words=words,
        fused=fused,
        beside=numpy.maximum(_from(fused, pool.before), _from(fused, pool.after)),
        session=best[of],
        asked=asked,
        date=date,
    )


def close_look(
    question: Question, pool: Pool, look: FirstLook, places: Places, matched: tuple[Vector, Vector]
) -> dict[str, Vector]:
    """All features of the rows at `places`, by name; `matched` is what `token_vectors.match` says of those rows."""
    import numpy

    texts = [pool.texts[place] for place in places]
    some = question.asked and (question.asked & {one.casefold() for one in pool.speakers})
    asked = look.asked[places]
    other = (1.0 - asked) if some else numpy.zeros_like(asked)
    before, after = pool.before[places], pool.after[places]
    asks = numpy.array([_asks(text) for text in pool.texts], numpy.float32)
    asking = asks[places]
    around = pool.around(places)
    counts = _counted(question, pool.texts, around)
    there = (counts > 0).sum(axis=0)
    worth = numpy.log((len(around) + 1) / (there + 0.5)).clip(0.05).astype(numpy.float32)
    window = counts[places] + _from(counts, before) + _from(counts, after)
    total = float(worth.sum())
    return {
        "words": look.words[places],
        "coverage": ((counts[places] > 0) @ worth) / total,
        "meaning": numpy.clip(numpy.nan_to_num(pool.meaning[places]), 0.0, 1.0),
        "tokens": matched[0],
        "tokens_relative": _relative(matched[0], float(matched[0].min(initial=1.0))),
        "tokens_worst": matched[1],
        "beside_best": look.beside[places],
        "window_coverage": ((window > 0) @ worth) / total,
        "two_before": _from(look.fused, _from_places(pool.before, before)),
        "two_after": _from(look.fused, _from_places(pool.after, after)),
        "answers": _from(asks, before) * _from(look.fused, before),
        "asked": asked,
        "other_of_you": other * _having(_SECOND, texts),
        "other_asks": other * asking,
        "asks": asking,
        "date": look.date[places],
        "when_and_time": _having(_TIME, texts) * float(question.asks_when),
        "names": numpy.array([min(4, len(_NAME.findall(text))) / 4 for text in texts], numpy.float32),
        "session": look.session[places],
        "recent": _recent(pool, places) * (1.0 if question.asks_latest else 0.25),
    }


def not_asked(question: Question) -> frozenset[str]:
    """The features that are 0 for every line, because the question names nobody, no day, or asks for no time."""
    idle: tuple[str, ...] = ()
    if not question.asked:
        idle += ("asked", "other_of_you", "other_asks")
    if not question.whens:
        idle += ("date",)
    if not question.asks_when:
        idle += ("when_and_time",)
    return frozenset(idle)


def _asks(text: str) -> bool:
    return "?" in text[-3:]


def _having(pattern: re.Pattern[str], texts: Sequence[str]) -> Vector:
    import numpy

    return numpy.array([bool(pattern.search(text)) for text in texts], numpy.float32)


def _recent(pool: Pool, places: Places) -> Vector:
    import numpy

    ages = [
        math.inf if at is None or pool.now is None else max(0.0, (pool.now - at).total_seconds() / 86400)
        for at in (pool.times[place] for place in places)
    ]
    return numpy.exp(-numpy.array(ages) / RECENT_DAYS).astype(numpy.float32)


def _counted(question: Question, texts: Sequence[str], places: Places) -> Matrix:
    """How often each of the question's terms is in each of the texts at `places`; 0 for the others."""
    import numpy

    counts = numpy.zeros((len(texts), max(1, len(question.terms))), numpy.float32)
    column = {term: number for number, term in enumerate(question.terms)}
    columns: dict[str, list[int]] = {}  # of what stands between two spaces: most of it comes many times
    for place in places.tolist():
        for piece in texts[place].casefold().split():
            found = columns.get(piece)
            if found is None:
                terms = (stem(word) for word in _WORD.findall(piece))
                found = columns[piece] = [column[term] for term in terms if term in column]
            for at in found:
                counts[place, at] += 1
    return counts


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


def _from_places(values: Places, places: Places) -> Places:
    import numpy

    return numpy.where(places >= 0, values[places], -1)
