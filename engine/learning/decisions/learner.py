"""The embedded Twin's model (SPEC 2.3b): an online learner over past decisions, oldest first. Pure.

A proposal becomes a row of features: its relation to the evidence (`look`), what was decided on similar cards
(`Habits`), on those nearest in meaning (`Neighbours`), and when. A Bayesian logistic regression (`Belief`) weighs
them. Each decision is predicted before it is learned from; from these predictions `calibration` learns how far to
trust them.

The same decisions give the same learner. Learning from a decision takes about 0.1 ms, however many came before.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from itertools import pairwise
from statistics import median
from typing import Any
from zlib import crc32

import numpy

from engine.frozen import frozen
from engine.learning.decisions.calibration import Calibration, KindCalibration, logit, squash
from engine.learning.decisions.query import MEANING, NAMES, Query, Seen, unpacked
from engine.model import PartOfDay, PastDecision, prompt_words

Array = Any


class Belief:
    """Weights with their spread."""

    def __init__(self, mean: Array, spread: Array) -> None:
        self.mean = numpy.array(mean, numpy.float64)
        self.covariance = numpy.diag(numpy.array(spread, numpy.float64) ** 2)

    def probability(self, features: Array) -> float:
        """Of a yes, in (0, 1); the less is known, the nearer to a half."""
        about = float(self.mean @ features)
        unsure = float(features @ self.covariance @ features)
        return squash(about / math.sqrt(1 + math.pi * unsure / 8))

    def learn(self, features: Array, yes: bool, weight: float = 1.0) -> None:
        """One case; `weight` in (0, 1] is how loudly it speaks."""
        towards = self.covariance @ features
        variance, about, target = float(features @ towards), float(self.mean @ features), float(yes)
        step = 0.0
        for _ in range(20):  # Newton on the one number that says how far to go; it is concave, so this ends
            expected = squash(about + variance * step)
            error = weight * (target - expected) - step
            slope = 1 + weight * expected * (1 - expected) * variance
            step += error / slope
            if abs(error) < 1e-10:
                break
        expected = squash(about + variance * step)
        self.mean += towards * step
        information = weight * expected * (1 - expected)
        self.covariance -= numpy.outer(towards, towards) * (information / (1 + information * variance))


NEUTRAL = 0.5
"""What is expected of an operator of whom nothing is known."""

STRENGTH = 4.0
"""Number of decisions that the level above counts as."""

RECENT_WINDOW = 8.0
"""The newest decisions of a level, about so many, are what was chosen lately."""

EXPLICIT_WEIGHT = 0.8
"""Signals of at least this weight were said about the very card; only they are told in words."""

USUAL_FROM, USUAL_OF = 5, 101
"""After so many approvals of a kind its usual waiting time is learnt rather than assumed, from at most so many."""

CHANNEL_FROM = 3
"""The Twin names a channel after this many approvals there."""

WORD_BUCKETS = 65_536
"""Marks of words: of a few thousand words that an operator uses hardly two share one."""

Key = tuple[str, ...]


Item = Query | PastDecision
"""What decisions are compared by."""


@dataclass(slots=True)
class Share:
    """Weight chosen of weight decided, altogether and lately; how many were said, and how many of these chosen."""

    chosen: float = 0.0
    decided: float = 0.0
    chosen_lately: float = 0.0
    decided_lately: float = 0.0
    approved: int = 0
    said: int = 0

    def add(self, chosen: bool, weight: float) -> None:
        """Count one decision."""
        fade = math.exp(-weight / RECENT_WINDOW)
        gain = weight if chosen else 0.0
        self.chosen += gain
        self.decided += weight
        self.chosen_lately = self.chosen_lately * fade + gain
        self.decided_lately = self.decided_lately * fade + weight
        if weight >= EXPLICIT_WEIGHT:
            self.approved += chosen
            self.said += 1


def shrunk(chosen: float, decided: float, prior: float, strength: float = STRENGTH) -> float:
    """The share, pulled towards `prior` as if that had been seen in `strength` decisions: it lies between the two."""
    return (prior * strength + chosen) / (strength + decided)


def levels(item: Item) -> tuple[Key, ...]:
    """From the general to the particular: everything, the kind, on this channel, in this workspace."""
    kind, channel = item.kind, item.channel
    return (), ("kind", kind), ("channel", kind, channel), ("workspace", kind, channel, item.workspace)


def times(item: Item) -> tuple[Key, ...]:
    """The kind in this part of the day, on such days of the week, at this hour."""
    part = ("part", item.kind, item.part.value)
    week = ("week", item.kind, item.part.value, "1" if item.weekend else "0")
    return (part, week) if item.hour is None else (part, week, ("hour", *week[1:], str(item.hour)))


def places(item: Item) -> tuple[Key, ...]:
    """Whatever kind: this workspace, this channel."""
    return ("any kind", item.workspace), ("any kind on", item.channel)


def subjects(item: Item) -> tuple[Key, ...]:
    """The words of the prompt, whatever kind says them: a mark of each, so that what is learnt stays small and holds no
    word that somebody wants forgotten (SPEC 4.10)."""
    return tuple(("word", str(mark)) for mark in sorted({crc32(word.encode()) % WORD_BUCKETS for word in item.words}))


class Habits:
    """Counts over past decisions, added one by one, oldest first."""

    def __init__(self) -> None:
        self.shares: dict[Key, Share] = {}
        self.waited: dict[str, deque[float]] = {}

    def add(self, decision: PastDecision) -> None:
        """Count one decision."""
        keys = (*levels(decision), *times(decision), *places(decision), *subjects(decision))
        for key in (*keys, ("in time", decision.kind, decision.channel, decision.part.value)):
            self.shares.setdefault(key, Share()).add(decision.chosen, decision.weight)
        if decision.chosen and decision.weight >= EXPLICIT_WEIGHT and decision.waited_hours is not None:
            self.waited.setdefault(decision.kind, deque(maxlen=USUAL_OF)).append(decision.waited_hours)

    def time(self, item: Item) -> float:
        """How much of the like was approved in this part of the day and week, and at this hour, in [0, 1]."""
        return self.down((*levels(item)[:2], *times(item)))[-1][0]

    def down(self, keys: Iterable[Key], expected: float = NEUTRAL) -> list[tuple[float, float]]:
        """For each level the share altogether and the share lately, each shrunk towards the level above."""
        shares = []
        for key in keys:
            share = self.shares.get(key, Share())
            expected = shrunk(share.chosen, share.decided, expected)
            shares.append((expected, shrunk(share.chosen_lately, share.decided_lately, expected, 2.0)))
        return shares

    def usual(self, kind: str) -> timedelta | None:
        """How long this kind of card usually waits before the operator approves it; None while too little is known."""
        hours = self.waited.get(kind, ())
        return timedelta(hours=max(median(hours), 1 / 60)) if len(hours) >= USUAL_FROM else None

    def channel(self, kind: str, registered: Collection[str]) -> str | None:
        """Where the operator approved most cards of this kind: at least `CHANNEL_FROM`, and most of those there."""
        best = max(
            registered,
            key=lambda channel: (self._explicit_counts(("channel", kind, channel))[0], channel),
            default=None,
        )
        if best is None:
            return None
        approved, decided = self._explicit_counts(("channel", kind, best))
        return best if approved >= CHANNEL_FROM and 2 * approved > decided else None

    def words(self, item: Item) -> tuple[str, ...]:
        """Why, in one line: the closest level on which the operator has said something."""
        kind, channel = item.kind, item.channel
        for key, where in (
            (("in time", kind, channel, item.part.value), f" {_WHEN[item.part]}"),
            (("channel", kind, channel), ""),
            (("kind", kind), " on any channel"),
        ):
            approved, decided = self._explicit_counts(key)
            if decided:
                return (f"you approved {approved} of {decided} like this{where}",)
        return ("you have not decided on anything like this yet",)

    def _explicit_counts(self, key: Key) -> tuple[int, int]:
        share = self.shares.get(key)
        return (share.approved, share.said) if share else (0, 0)


_WHEN = {
    PartOfDay.MORNING: "in the morning",
    PartOfDay.AFTERNOON: "in the afternoon",
    PartOfDay.EVENING: "in the evening",
    PartOfDay.NIGHT: "at night",
}


HASHED = 256
"""Dimensions of the vector of hashed words, which stands in where there is none of meaning."""

MAX_EARLIER = 20
"""Maximum number of lines before the last one that are read."""

STOP_WORDS = frozenset(
    "the and you your for with that this from are can could would will into has have use user".split()  # noqa: SIM905
)

Vector = Any
"""A unit vector, float32."""


@lru_cache(500)
def hashed(words: frozenset[str]) -> Vector:
    """The unit vector of a bag of words; all 0 for none. It is nobody's to change."""
    vector = numpy.zeros(HASHED, numpy.float32)
    for word in words:
        mark = crc32(word.encode())
        vector[mark % HASHED] += 1.0 if mark & 0x80000000 else -1.0
    length = float(numpy.sqrt((vector * vector).sum()))
    return vector / length if length else vector


def look(prompt: str, latest: str, earlier: Sequence[str] = (), vectors: Sequence[Vector | None] | None = None) -> Seen:
    """See a proposal beside its evidence.

    `earlier` is the evidence before `latest`, oldest first. `vectors` are those of meaning of the prompt, the latest
    and each of the earlier; while any is missing, words stand in for all of them.
    """
    earlier = earlier[-MAX_EARLIER:]
    words, latest_words, earlier_words = _words(prompt), _words(latest), [_words(line) for line in earlier]
    candidates = [] if vectors is None else [*vectors[:2], *vectors[2:][-MAX_EARLIER:]]
    available = [vector for vector in candidates if vector is not None]
    if len(available) == 2 + len(earlier):
        rows, low, wide = numpy.stack(available), 0.35, 0.18
    else:
        rows, low, wide = (
            numpy.stack([hashed(part) for part in (words, latest_words, *earlier_words)]),
            0.1,
            0.15,
        )
    near = rows[1:] @ rows[0]
    old = frozenset().union(*earlier_words)
    order = [float(near[0]), *map(float, near[:0:-1])]  # the newest first
    mean = rows[2:].mean(axis=0) if earlier_words else rows[1]
    length = float(numpy.sqrt((mean * mean).sum()))
    numbers = (
        (order[0] - low) / wide,
        (float(mean @ rows[0]) / length - low if length else 0.0) / wide,
        (max(order) - low) / wide,
        order.index(max(order)) / len(order) * 2 - 0.5,
        (_share(words, latest_words) - 0.15) / 0.15,
        (_share(words, old | latest_words) - 0.3) / 0.2,
        (math.log1p(len(prompt)) - 4.2) / 0.5,
        (math.log1p(len(latest)) - 4.4) / 0.5,
        (math.log1p(len(earlier)) - 2.0),
        _share(latest_words, latest_words - old) * 2 - 1,
    )
    first = vectors[0] if vectors else None
    return Seen(tuple(min(max(number, -3.0), 3.0) for number in numbers), b"" if first is None else small(first))


def small(vector: Vector) -> bytes:
    """A unit vector in signed bytes; its direction is kept to about a hundredth."""
    return bytes(numpy.clip(numpy.rint(numpy.asarray(vector) * 512), -127, 127).astype(numpy.int8).tobytes())


def _words(text: str) -> frozenset[str]:
    return prompt_words(text) - STOP_WORDS


def _share(words: frozenset[str], others: frozenset[str]) -> float:
    """Which share of `words` is also in the other."""
    return len(words & others) / len(words) if words else 0.0


RING_SIZE, NEAREST, SIMILAR_FROM = 512, 20, 0.4
"""Pattern match looks at the 20 most similar of the newest 512 decisions that are at least this similar."""

FIELD_WEIGHTS = numpy.array([0.4, 0.15, 0.15, 0.1], numpy.float32)
"""What the same kind, channel, workspace and flow count for; the text's nearness, in [0, 1], counts 0.2."""


class Neighbours:
    """A ring of the newest decisions."""

    def __init__(self) -> None:
        self.count = 0
        self.marks = numpy.zeros((RING_SIZE, 4), numpy.int64)
        self.words = numpy.zeros((RING_SIZE, HASHED), numpy.float32)
        self.meaning = numpy.zeros((RING_SIZE, MEANING), numpy.float32)
        self.known = numpy.zeros(RING_SIZE, numpy.bool_)
        self.label = numpy.zeros((RING_SIZE, 2), numpy.float32)

    def add(self, decision: PastDecision, features: Seen) -> None:
        """Take in the newest; the oldest of `RING_SIZE` goes."""
        place = self.count % RING_SIZE
        self.marks[place] = _marks(decision)
        self.words[place] = hashed(decision.words)
        self.meaning[place] = _large(features.meaning)
        self.known[place] = bool(features.meaning)
        self.label[place] = (decision.chosen, decision.weight)
        self.count += 1

    def pattern(self, query: Query, prior: float) -> float:
        """The share chosen among the most similar, weighted by similarity and shrunk to `prior`; in [0, 1]."""
        many = min(self.count, RING_SIZE)
        if not many:
            return prior
        like = (self.marks[:many] == _marks(query)) @ FIELD_WEIGHTS + 0.2 * self._text(query, many)
        like[like < SIMILAR_FROM] = 0.0
        if many > NEAREST:
            like[like < numpy.partition(like, many - NEAREST)[many - NEAREST]] = 0.0
        loud = like * self.label[:many, 1]
        return shrunk(float((loud * self.label[:many, 0]).sum()), float(loud.sum()), prior)

    def by_meaning(self, query: Query, prior: float) -> float:
        """The share chosen of what was near in meaning alone, whatever its kind."""
        many = min(self.count, RING_SIZE)
        if not many:
            return prior
        near = numpy.maximum(self._text(query, many) - 0.3, 0.0) ** 2 * 4
        loud = near * self.label[:many, 1]
        return shrunk(float((loud * self.label[:many, 0]).sum()), float(loud.sum()), prior)

    def _text(self, query: Query, many: int) -> Any:
        """How near the texts are, in [0, 1]: by meaning where both have a vector of it, else by words."""
        near = self.words[:many] @ hashed(query.words)
        if query.seen.meaning:
            near = numpy.where(self.known[:many], self.meaning[:many] @ _large(query.seen.meaning), near)
        return numpy.clip(near, 0.0, 1.0)


def _marks(item: Item) -> Any:
    return numpy.array(
        [crc32(name.encode()) for name in (item.kind, item.channel, item.workspace, item.flow)], numpy.int64
    )


def _large(small: bytes) -> Any:
    if not small:
        return numpy.zeros(MEANING, numpy.float32)
    vector = numpy.frombuffer(small, numpy.int8).astype(numpy.float32)
    length = float(numpy.sqrt((vector * vector).sum()))
    return vector / length if length else vector


FEATURES: tuple[tuple[str, float, float], ...] = (
    ("always", 0.0, 0.3),
    *((name, 0.0, 0.3) for name in NAMES),
    ("altogether", 1.0, 0.2),
    ("kind", 1.0, 0.3),
    ("channel", 0.7, 0.3),
    ("workspace", 0.7, 0.3),
    ("altogether lately", 0.2, 0.2),
    ("kind lately", 0.6, 0.3),
    ("channel lately", 0.2, 0.2),
    ("workspace lately", 0.2, 0.2),
    ("part of the day", 0.7, 0.3),
    ("day of the week", 0.7, 0.3),
    ("hour", 0.7, 0.3),
    ("this workspace", 0.3, 0.3),
    ("this channel", 0.3, 0.3),
    ("near in meaning", 0.7, 0.3),
    ("what its words were chosen for", 0.4, 0.3),
    ("what its best word was chosen for", 0.3, 0.3),
    ("what its worst word was chosen for", 0.3, 0.3),
)
"""Name, what its weight is expected to be before the first decision, and how far that may be off. All but those of the
evidence are log-odds, what a level adds to the one above; so the first expectation is what the counts say."""


@frozen
class Estimate:
    """The learner's answer: a probability that the operator approves, before and after calibration, in (0, 1)."""

    raw: float
    probability: float


class Learner:
    """All that was learnt from decisions up to `upto`; see the module."""

    def __init__(self) -> None:
        self.habits = Habits()
        self.neighbours = Neighbours()
        self._belief = Belief([mean for _, mean, _ in FEATURES], [spread for _, _, spread in FEATURES])
        self.trust = Calibration(level=0.0, slope=0.3)
        """How far the Twin's own probability may be believed."""
        self.sums = KindCalibration()
        """How far the whole confidence may be believed (SPEC 8.6)."""
        self.upto = 0

    def score(self, query: Query) -> Estimate:
        """What is expected of the operator."""
        return self._estimate(self._row(query))

    def learn(self, decision: PastDecision) -> Estimate:
        """Take in one decision, younger than all before; returns what was expected of it."""
        features = unpacked(decision.seen)
        query = Query(
            decision.kind, decision.channel, decision.workspace, decision.flow, decision.words, decision.part,
            decision.weekend, decision.at, decision.hour, features,
        )  # fmt: skip
        row = self._row(query)
        expected = self._estimate(row)
        if decision.weight >= EXPLICIT_WEIGHT:
            self.trust.learn(expected.raw, decision.chosen, decision.weight)
            if decision.raw is not None:
                self.sums.learn(decision.kind, decision.raw, decision.chosen, decision.weight)
        self._belief.learn(row, decision.chosen, decision.weight)
        self.habits.add(decision)
        self.neighbours.add(decision, features)
        self.upto = max(self.upto, decision.id)
        return expected

    def pattern(self, query: Query) -> float:
        """The shrunk share approved among the most similar past decisions (SPEC 2.5), in [0, 1]."""
        return self.neighbours.pattern(query, self.habits.down([()])[0][0])

    def _estimate(self, row: Any) -> Estimate:
        raw = self._belief.probability(row)
        return Estimate(raw, self.trust.apply(raw))

    def _row(self, query: Query) -> Any:
        habits = self.habits
        down = habits.down(levels(query))
        long = [logit(share) for share, _ in down]
        kind = down[1][0]
        in_time = [long[1], *(logit(share) for share, _ in habits.down(times(query), kind))]
        in_time += [in_time[-1]] * (4 - len(in_time))
        whole = down[0][0]
        words = [logit(habits.down([key], whole)[0][1]) - long[0] for key in subjects(query)] or [0.0]
        row = [
            1.0,
            *query.seen.numbers,
            *(level - above for level, above in zip(long, [0.0, *long], strict=False)),
            *(logit(lately) - level for (_, lately), level in zip(down, long, strict=True)),
            *(level - above for above, level in pairwise(in_time)),
            *(logit(habits.down([key], whole)[0][0]) - long[0] for key in places(query)),
            logit(self.neighbours.by_meaning(query, kind)) - long[1],
            sum(words) / len(words) ** 0.5,
            max(words),
            min(words),
        ]
        return numpy.array(row)
