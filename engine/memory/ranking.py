"""The order of candidates, and each one's reasons (SPEC 4.4): a weighted sum of features, no model. Pure.

This is recall's re-ranker: every recall goes through it. Of what both searches bring, the `CLOSE_MOST` best are read
and compared with the question word by word, by vectors of their tokens that were kept when they were remembered; so it
runs no model either. What finds without it is dense search alone (`vectors.Vectors.search`): the neighbours of a task's
summary, and what benchmarks compare with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.memory.features import FirstLook, Pool, close_look, not_asked
from engine.memory.question import Question, stem, stems
from engine.memory.weights import WEIGHTS, Weight
from engine.values import ScorePart

if TYPE_CHECKING:
    from engine.memory.features import Places, Vector

CLOSE_MOST = 120
"""So many candidates are looked at closely."""

NEAR = 0.29
"""The limit of recall (SPEC 4.3), in `nearness`: where no line of a question reaches it, nothing is found. Of a line
that shares no word with the question it is a squared L2 of 1.42. `tests/benchmarks/test_recall_unrelated.py` measures
it on three memories: nothing is found for .96 of 120 everyday questions whose answer is in none (.54 with the limit of
before, a squared L2 of 1.5 or one shared word), and recall@10 of questions that they answer falls by .006.

A line goes along from half of it, or where a line of its session reaches the whole: what answers a question often
shares neither words nor meaning with it, only its session."""

WORDS_COUNT = 0.3
"""What all of a question's telling words add to a cosine."""

WORDS_ALONE = 0.28
"""The cosine that they stand for where the vector says less: half of the telling words, rare ones counting more, reach
the limit without any vector."""

TELLING = 0.5
"""A part is named as a reason when it has at least this share of what it could have."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """A candidate's place in the pool and its score, the sum of its parts' `value * weight`: in [0, 1]."""

    place: int
    score: float
    parts: tuple[ScorePart, ...]
    reason: str


def rank(
    question: Question,
    pool: Pool,
    look: FirstLook,
    places: Places,
    matched: tuple[Vector, Vector],
    *,
    most: int | None = None,
    weights: Sequence[Weight] = WEIGHTS,
) -> list[Ranked]:
    """The rows at `places`, best first, at most `most`. `matched` is what `token_vectors.match` says of them.

    Rows that score the same stay in their order.
    """
    import numpy

    if not len(places):
        return []
    found = close_look(question, pool, look, places, matched)
    # What is not asked for no line can have: it is not counted, so that one that has all there is to have stands beside
    # what other layers find as what it is. What a line could have and has not lowers its score, even if none has it.
    idle = not_asked(question)
    counted = [one for one in weights if one.feature not in idle]
    groups = list(dict.fromkeys(one.group for one in counted))
    total = sum(abs(one.weight) for one in counted) or 1.0
    shares = {group: sum(abs(one.weight) for one in counted if one.group == group) / total for group in groups}
    parts: dict[str, Vector] = {group: numpy.zeros(len(places), numpy.float32) for group in groups}
    for one in counted:
        value = found[one.feature]
        parts[one.group] = parts[one.group] + abs(one.weight) / total * (value if one.weight >= 0 else 1.0 - value)
    scores = numpy.sum(list(parts.values()), axis=0)
    sent = _sent(nearness(found), [pool.sessions[place] for place in places.tolist()])
    order = numpy.argsort(-scores, kind="stable")
    order = order[sent[order]][:most]
    ranked = []
    for at in order:
        row = int(at)
        mine = tuple(
            ScorePart(group, min(1.0, max(0.0, float(parts[group][row]) / shares[group])), shares[group])
            for group in groups
            if shares[group]
        )
        score = sum(part.value * part.weight for part in mine)
        ranked.append(Ranked(int(places[row]), score, mine, _reason(question, pool, found, row, int(places[row]))))
    return ranked


def nearness(found: Mapping[str, Vector]) -> Vector:
    """How near each line is to the question, from its cosine and the question's telling words that it has."""
    import numpy

    coverage = found["coverage"]
    return numpy.asarray(numpy.maximum(found["meaning"], WORDS_ALONE * coverage) + WORDS_COUNT * coverage)


def _sent(near: Vector, sessions: Sequence[str]) -> Any:
    """Which lines are near enough to be found; see `NEAR`."""
    import numpy

    least = NEAR - 1e-6  # float32
    about = {session for session, value in zip(sessions, near.tolist(), strict=True) if session and value >= least}
    beside = numpy.array([session in about for session in sessions], bool)
    return (near >= least).any() & (beside | (near >= least / 2))


def _reason(question: Question, pool: Pool, found: Mapping[str, Vector], row: int, place: int) -> str:
    """Why, in words."""
    text = pool.texts[place]
    said = []
    if found["coverage"][row] > 0:
        present = set(stems(text))
        words = [word for word in question.words if stem(word) in present]
        said.append("says " + ", ".join(words[:5]))
    if found["meaning"][row] > 0 and (found["meaning"][row] >= TELLING or not said):
        said.append(f"near in meaning ({found['meaning'][row]:.2f})")
    if found["asked"][row]:
        said.append(f"{pool.speakers[place]} says it")
    if found["date"][row]:
        at = pool.times[place]
        said.append(f"said on {at.date().isoformat()}" if at else "said then")
    if found["answers"][row] >= TELLING:
        said.append("answers a matching turn")
    elif found["beside_best"][row] >= TELLING:
        said.append("next to a matching turn")
    if not said:
        said.append("its session is about it" if found["session"][row] >= TELLING else "several weak matches")
    return "; ".join(said)
