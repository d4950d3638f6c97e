"""Counts what the operator chose on similar cards: by kind, channel and workspace, by time, and by word. Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import timedelta
from statistics import median
from zlib import crc32

from engine.frozen import frozen
from engine.learning.decisions.card_features import CardFeatures, PastDecision
from engine.model import PartOfDay

NEUTRAL = 0.5
"""Share that is expected to be approved before the first decision."""

STRENGTH = 4.0
"""Number of decisions that the level above counts as."""

RECENT_WINDOW = 8.0
"""About how many of the newest decisions of a level are recent."""

EXPLICIT_WEIGHT = 0.8
"""Signals of at least this weight were given on the card itself; only they are explained in words."""

MIN_WAITS = 5
"""Number of approvals of a kind from which on its usual waiting time is learnt rather than assumed."""

MAX_WAITS = 101
"""Maximum number of waiting times that are kept for each kind."""

MIN_CHANNEL_APPROVALS = 3
"""The Twin names a channel after this many approvals there."""

WORD_BUCKETS = 65_536
"""Number of hashes of words. Hardly any two of the few thousand words that an operator uses share one."""

Key = tuple[str, ...]
"""A feature by which decisions are counted: a name and its values."""


@dataclass(slots=True)
class Counts:
    """Decisions under one key. `chosen` and `decided` are sums of weights; the explicit ones are plain numbers."""

    chosen: float = 0.0
    decided: float = 0.0
    recent_chosen: float = 0.0
    recent_decided: float = 0.0
    explicit_approved: int = 0
    explicit_decided: int = 0

    def add(self, chosen: bool, weight: float) -> None:
        """Count one decision."""
        fade = math.exp(-weight / RECENT_WINDOW)
        gain = weight if chosen else 0.0
        self.chosen += gain
        self.decided += weight
        self.recent_chosen = self.recent_chosen * fade + gain
        self.recent_decided = self.recent_decided * fade + weight
        if weight >= EXPLICIT_WEIGHT:
            self.explicit_approved += chosen
            self.explicit_decided += 1


@frozen
class Shares:
    """Shares chosen under one key, overall and of the recent decisions, in (0, 1)."""

    overall: float
    recent: float


def shrink_share(chosen: float, decided: float, prior: float, strength: float = STRENGTH) -> float:
    """The share chosen, drawn towards `prior`, which weighs as much as `strength` decisions."""
    return (prior * strength + chosen) / (strength + decided)


def level_keys(card: CardFeatures) -> tuple[Key, ...]:
    """From the general to the particular: everything, the kind, on this channel, in this workspace."""
    kind, channel = card.kind, card.channel
    return (), ("kind", kind), ("channel", kind, channel), ("workspace", kind, channel, card.workspace)


def time_keys(card: CardFeatures) -> tuple[Key, ...]:
    """The kind in this part of the day, on such days of the week, at this hour."""
    part = ("part", card.kind, card.part.value)
    week = ("week", card.kind, card.part.value, "1" if card.weekend else "0")
    return (part, week) if card.hour is None else (part, week, ("hour", *week[1:], str(card.hour)))


def place_keys(card: CardFeatures) -> tuple[Key, ...]:
    """All kinds in this workspace, and all kinds on this channel."""
    return ("any kind", card.workspace), ("any kind on", card.channel)


def word_keys(card: CardFeatures) -> tuple[Key, ...]:
    """The words of the prompt in all kinds: a hash of each, so that the counts stay small and hold no word that the
    operator wants forgotten (SPEC 4.10)."""
    hashes = {crc32(word.encode()) % WORD_BUCKETS for word in card.words}
    return tuple(("word", str(word_hash)) for word_hash in sorted(hashes))


class Habits:
    """Counts of past decisions, which are added one by one, oldest first."""

    def __init__(self) -> None:
        self.counts: dict[Key, Counts] = {}
        self.waiting_hours: dict[str, deque[float]] = {}

    def add(self, decision: PastDecision) -> None:
        """Count one decision."""
        card = decision.card
        keys = (*level_keys(card), *time_keys(card), *place_keys(card), *word_keys(card))
        for key in (*keys, ("in time", card.kind, card.channel, card.part.value)):
            self.counts.setdefault(key, Counts()).add(decision.chosen, decision.weight)
        if decision.chosen and decision.weight >= EXPLICIT_WEIGHT and decision.waited_hours is not None:
            self.waiting_hours.setdefault(card.kind, deque(maxlen=MAX_WAITS)).append(decision.waited_hours)

    def time_share(self, card: CardFeatures) -> float:
        """The share approved of this kind in this part of the day and week, and at this hour, in [0, 1]."""
        return self.shares_of((*level_keys(card)[:2], *time_keys(card)))[-1].overall

    def shares_of(self, keys: Iterable[Key], prior: float = NEUTRAL) -> list[Shares]:
        """The shares of each key, the first drawn towards `prior` and each other one towards the key before it."""
        shares = []
        for key in keys:
            counts = self.counts.get(key, Counts())
            prior = shrink_share(counts.chosen, counts.decided, prior)
            shares.append(Shares(prior, shrink_share(counts.recent_chosen, counts.recent_decided, prior, 2.0)))
        return shares

    def usual_wait(self, kind: str) -> timedelta | None:
        """How long this kind of card usually waits before the operator approves it; None after too few approvals."""
        hours = self.waiting_hours.get(kind, ())
        return timedelta(hours=max(median(hours), 1 / 60)) if len(hours) >= MIN_WAITS else None

    def usual_channel(self, kind: str, registered: Collection[str]) -> str | None:
        """The channel with the most approvals of this kind, if these are at least `MIN_CHANNEL_APPROVALS`, and more
        than half of what was decided there; else None."""

        def approvals(channel: str) -> tuple[int, str]:
            return self._explicit_counts(("channel", kind, channel))[0], channel

        best = max(registered, key=approvals, default=None)
        if best is None:
            return None
        approved, decided = self._explicit_counts(("channel", kind, best))
        return best if approved >= MIN_CHANNEL_APPROVALS and 2 * approved > decided else None

    def explain(self, card: CardFeatures) -> tuple[str, ...]:
        """The reason of an estimate in one line, from the closest level on which the operator decided anything."""
        kind, channel = card.kind, card.channel
        for key, where in (
            (("in time", kind, channel, card.part.value), f" {_WHEN[card.part]}"),
            (("channel", kind, channel), ""),
            (("kind", kind), " on any channel"),
        ):
            approved, decided = self._explicit_counts(key)
            if decided:
                return (f"you approved {approved} of {decided} like this{where}",)
        return ("you have not decided on anything like this yet",)

    def _explicit_counts(self, key: Key) -> tuple[int, int]:
        counts = self.counts.get(key, Counts())
        return counts.explicit_approved, counts.explicit_decided


_WHEN = {
    PartOfDay.MORNING: "in the morning",
    PartOfDay.AFTERNOON: "in the afternoon",
    PartOfDay.EVENING: "in the evening",
    PartOfDay.NIGHT: "at night",
}
