"""What the operator's decisions add up to: counts, kept as they come and asked in microseconds (SPEC 2.3b). Pure.

How much was chosen of the like is kept level by level, from the general to the particular, twice: over everything, and
over what came lately. Each level is shrunk towards the one above as if that had been seen in `STRENGTH` decisions (a
Beta prior), so that one lucky morning does not pass for a habit. Signals weigh what SPEC 8.1 says.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import timedelta
from statistics import median
from zlib import crc32

from engine.learning.decisions.query import Query
from engine.model import PartOfDay, PastDecision

INDIFFERENT = 0.5
"""What is expected of an operator of whom nothing is known."""

STRENGTH = 4.0
"""So many decisions' worth is what the level above counts for."""

LATELY = 8.0
"""The newest decisions of a level, about so many, are what was chosen lately."""

SAID = 0.8
"""Signals of at least this weight were said about the very card; only they are told in words."""

USUAL_FROM, USUAL_OF = 5, 101
"""After so many approvals of a kind its usual waiting time is learnt rather than assumed, from at most so many."""

CHANNEL_FROM = 3
"""The Twin names a channel after this many approvals there."""

WORDS = 65_536
"""Marks of words: of a few thousand words that an operator uses hardly two share one."""

Key = tuple[str, ...]


Asked = Query | PastDecision
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
        fade = math.exp(-weight / LATELY)
        gain = weight if chosen else 0.0
        self.chosen += gain
        self.decided += weight
        self.chosen_lately = self.chosen_lately * fade + gain
        self.decided_lately = self.decided_lately * fade + weight
        if weight >= SAID:
            self.approved += chosen
            self.said += 1


def shrunk(chosen: float, decided: float, prior: float, strength: float = STRENGTH) -> float:
    """The share, pulled towards `prior` as if that had been seen in `strength` decisions: it lies between the two."""
    return (prior * strength + chosen) / (strength + decided)


def levels(asked: Asked) -> tuple[Key, ...]:
    """From the general to the particular: everything, the kind, on this channel, in this workspace."""
    kind, channel = asked.kind, asked.channel
    return (), ("kind", kind), ("channel", kind, channel), ("workspace", kind, channel, asked.workspace)


def times(asked: Asked) -> tuple[Key, ...]:
    """The kind in this part of the day, on such days of the week, at this hour."""
    part = ("part", asked.kind, asked.part.value)
    week = ("week", asked.kind, asked.part.value, "1" if asked.weekend else "0")
    return (part, week) if asked.hour is None else (part, week, ("hour", *week[1:], str(asked.hour)))


def places(asked: Asked) -> tuple[Key, ...]:
    """Whatever kind: this workspace, this channel."""
    return ("any kind", asked.workspace), ("any kind on", asked.channel)


def subjects(asked: Asked) -> tuple[Key, ...]:
    """The words of the prompt, whatever kind says them: a mark of each, so that what is learnt stays small and holds no
    word that somebody wants forgotten (SPEC 4.10)."""
    return tuple(("word", str(mark)) for mark in sorted({crc32(word.encode()) % WORDS for word in asked.words}))


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
        if decision.chosen and decision.weight >= SAID and decision.waited_hours is not None:
            self.waited.setdefault(decision.kind, deque(maxlen=USUAL_OF)).append(decision.waited_hours)

    def time(self, asked: Asked) -> float:
        """How much of the like was approved in this part of the day and week, and at this hour, in [0, 1]."""
        return self.down((*levels(asked)[:2], *times(asked)))[-1][0]

    def down(self, keys: Iterable[Key], expected: float = INDIFFERENT) -> list[tuple[float, float]]:
        """For each level the share altogether and the share lately, each shrunk towards the level above."""
        found = []
        for key in keys:
            share = self.shares.get(key, Share())
            expected = shrunk(share.chosen, share.decided, expected)
            found.append((expected, shrunk(share.chosen_lately, share.decided_lately, expected, 2.0)))
        return found

    def usual(self, kind: str) -> timedelta | None:
        """How long this kind of card usually waits before the operator approves it; None while too little is known."""
        hours = self.waited.get(kind, ())
        return timedelta(hours=max(median(hours), 1 / 60)) if len(hours) >= USUAL_FROM else None

    def channel(self, kind: str, registered: Collection[str]) -> str | None:
        """Where the operator approved most cards of this kind: at least `CHANNEL_FROM`, and most of those there."""
        best = max(registered, key=lambda channel: (self._said(("channel", kind, channel))[0], channel), default=None)
        if best is None:
            return None
        approved, said = self._said(("channel", kind, best))
        return best if approved >= CHANNEL_FROM and 2 * approved > said else None

    def words(self, asked: Asked) -> tuple[str, ...]:
        """Why, in one line: the closest level on which the operator has said something."""
        kind, channel = asked.kind, asked.channel
        for key, where in (
            (("in time", kind, channel, asked.part.value), f" {_WHEN[asked.part]}"),
            (("channel", kind, channel), ""),
            (("kind", kind), " on any channel"),
        ):
            approved, said = self._said(key)
            if said:
                return (f"you approved {approved} of {said} like this{where}",)
        return ("you have not decided on anything like this yet",)

    def _said(self, key: Key) -> tuple[int, int]:
        share = self.shares.get(key)
        return (share.approved, share.said) if share else (0, 0)


_WHEN = {
    PartOfDay.MORNING: "in the morning",
    PartOfDay.AFTERNOON: "in the afternoon",
    PartOfDay.EVENING: "in the evening",
    PartOfDay.NIGHT: "at night",
}
