"""The Twin: what this operator would say (SPEC 2.3b, 2.5). Pure but for reading the history.

The embedded Twin counts. Its probability of approval is the share the operator chose, level by level from the general
to the particular: everything → the kind of card → on this channel → in this part of the day. Each level is shrunk
towards the one above as if that had been seen in `STRENGTH` decisions (a Beta prior), so that one lucky morning does
not pass for a habit. At the top stands `INDIFFERENT`. Signals weigh what SPEC 8.1 says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from statistics import median
from typing import Protocol

from engine.values import PartOfDay, PastDecision, Source

INDIFFERENT = 0.5
"""What is expected of an operator of whom nothing is known."""

STRENGTH = 4.0
"""So many decisions' worth is what the level above counts for."""

SIMILAR_FROM, SIMILAR_MOST, SIMILAR_AMONG = 0.4, 20, 400
"""Pattern match looks at the 20 most similar of the newest 400 decisions that are at least this similar."""

SAID = 0.8
"""Signals of at least this weight were said about the very card; only they are told in words."""

USUAL_FROM = 5
"""After so many decisions on a kind its usual waiting time is learnt rather than assumed."""

CHANNEL_FROM = 3
"""The Twin names a channel after this many approvals there."""


@dataclass(frozen=True, slots=True)
class Query:
    """The card that is asked about; `part` and `weekend` are of the operator's own time."""

    kind: str
    channel: str
    workspace: str
    flow: str
    words: frozenset[str]
    part: PartOfDay
    weekend: bool


@dataclass(frozen=True, slots=True)
class TwinWord:
    """A Twin's answer: the probability, in [0, 1], that the operator approves, and why."""

    probability: float
    words: tuple[str, ...] = ()


class Twin(Protocol):
    """Who predicts approval; the embedded one below, later a model behind an endpoint."""

    @property
    def source(self) -> Source:
        """What cards of this Twin say they come from."""

    def channel(self, kind: str, registered: Collection[str]) -> str | None:
        """The channel it would send this kind of card to, one of `registered`, or None."""

    def predict(self, query: Query) -> TwinWord:
        """Its word on one card."""


class PastDecisions(Protocol):
    """Where past decisions come from; `version` changes whenever they do."""

    @property
    def version(self) -> int: ...

    def past(self, limit: int = 2000) -> list[PastDecision]: ...


@dataclass(slots=True)
class Share:
    """Weight chosen of weight decided."""

    chosen: float = 0.0
    decided: float = 0.0

    def add(self, decision: PastDecision) -> None:
        """Count one decision."""
        self.decided += decision.weight
        self.chosen += decision.weight if decision.chosen else 0.0


def shrunk(share: Share, prior: float, strength: float = STRENGTH) -> float:
    """The share, pulled towards `prior` as if that had been seen in `strength` decisions: it lies between the two."""
    return (prior * strength + share.chosen) / (strength + share.decided)


def similarity(query: Query, past: PastDecision) -> float:
    """How like a past decision is, in [0, 1]: kind 0.4, words 0.2 (Jaccard), channel and workspace 0.15, flow 0.1."""
    together = len(query.words | past.words)
    return (
        0.4 * (query.kind == past.kind)
        + 0.2 * (len(query.words & past.words) / together if together else 0.0)
        + 0.15 * (query.channel == past.channel)
        + 0.15 * (query.workspace == past.workspace)
        + 0.1 * (query.flow == past.flow)
    )


class Habits:
    """What was learnt from past decisions: counts, made once and asked in microseconds."""

    def __init__(self, past: Sequence[PastDecision]) -> None:
        self._newest = past[:SIMILAR_AMONG]
        self._shares: defaultdict[tuple[object, ...], Share] = defaultdict(Share)
        self._said: defaultdict[tuple[object, ...], list[int]] = defaultdict(lambda: [0, 0])
        waited: defaultdict[str, list[float]] = defaultdict(list)
        for decision in past:
            kind, channel, part = decision.kind, decision.channel, decision.part
            levels = [(), (kind,), (kind, channel), (kind, channel, part)]
            in_time = [("part", kind, part), ("week", kind, part, decision.weekend)]
            for key in (*levels, *in_time):
                self._shares[key].add(decision)
            if decision.weight >= SAID:
                for key in levels:
                    self._said[key][0] += decision.chosen
                    self._said[key][1] += 1
                if decision.chosen and decision.waited_hours is not None:
                    waited[kind].append(decision.waited_hours)
        self._usual = {
            kind: timedelta(hours=max(median(hours), 1 / 60))
            for kind, hours in waited.items()
            if len(hours) >= USUAL_FROM
        }

    def approval(self, query: Query) -> float:
        """The probability that the operator approves, in [0, 1]."""
        levels = [(), (query.kind,), (query.kind, query.channel), (query.kind, query.channel, query.part)]
        return self._down(levels)

    def time(self, query: Query) -> float:
        """How much of the like was approved in this part of the day and week, in [0, 1]."""
        part = ("part", query.kind, query.part)
        return self._down([(), (query.kind,), part, ("week", query.kind, query.part, query.weekend)])

    def pattern(self, query: Query) -> float:
        """Share approved among the most similar past decisions, weighted by similarity and shrunk to the mean."""
        scored = [(similarity(query, past), past) for past in self._newest]
        nearest = sorted(
            ((score, past) for score, past in scored if score >= SIMILAR_FROM), key=lambda pair: pair[0], reverse=True
        )[:SIMILAR_MOST]
        share = Share(
            chosen=sum(score * past.weight for score, past in nearest if past.chosen),
            decided=sum(score * past.weight for score, past in nearest),
        )
        return shrunk(share, self._down([()]))

    def usual(self, kind: str) -> timedelta | None:
        """How long this kind of card usually waits before the operator approves it; None while too little is known."""
        return self._usual.get(kind)

    def channel(self, kind: str, registered: Collection[str]) -> str | None:
        """Where the operator approved most cards of this kind: at least `CHANNEL_FROM`, and most of those there."""
        best = max(registered, key=lambda channel: (self._said_of(kind, channel)[0], channel), default=None)
        if best is None:
            return None
        approved, decided = self._said_of(kind, best)
        return best if approved >= CHANNEL_FROM and 2 * approved > decided else None

    def words(self, query: Query) -> tuple[str, ...]:
        """Why, in one line: the closest level on which the operator has said something."""
        like_this = (query.kind, query.channel, query.part)
        for key, where in (
            (like_this, f" {_WHEN[query.part]}"),
            (like_this[:2], ""),
            (like_this[:1], " on any channel"),
        ):
            approved, decided = self._said.get(key, (0, 0))
            if decided:
                return (f"you approved {approved} of {decided} like this{where}",)
        return ("you have not decided on anything like this yet",)

    def _said_of(self, *key: object) -> tuple[int, int]:
        approved, decided = self._said.get(key, (0, 0))
        return approved, decided

    def _down(self, levels: Iterable[tuple[object, ...]]) -> float:
        expected = INDIFFERENT
        for key in levels:
            share = self._shares.get(key)
            if share is not None:
                expected = shrunk(share, expected)
        return expected


_WHEN = {
    PartOfDay.MORNING: "in the morning",
    PartOfDay.AFTERNOON: "in the afternoon",
    PartOfDay.EVENING: "in the evening",
    PartOfDay.NIGHT: "at night",
}


class EmbeddedTwin:
    """The Twin that needs no key and no network. Learns anew when a decision was made since it was last asked."""

    source = Source.EMBEDDED_TWIN

    def __init__(self, history: PastDecisions) -> None:
        self._history = history
        self._learnt: tuple[int, Habits] | None = None

    @property
    def habits(self) -> Habits:
        """What it knows now. One query after a decision was made, otherwise none."""
        version = self._history.version
        if self._learnt is None or self._learnt[0] != version:
            self._learnt = (version, Habits(self._history.past()))
        return self._learnt[1]

    def channel(self, kind: str, registered: Collection[str]) -> str | None:
        return self.habits.channel(kind, registered)

    def predict(self, query: Query) -> TwinWord:
        habits = self.habits
        return TwinWord(habits.approval(query), habits.words(query))
