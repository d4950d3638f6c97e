"""What became of guided work, and what that says of the guidance (SPEC 1.10, 5.1). Pure.

Guidance is *noisy* when an agent's work goes worse with it than without, by more than chance makes of so few sessions;
it is *stale* when it is older than what its kind holds, or speaks of files that are gone.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from engine.values import LeaderDecision, Pattern
from engine.values.shares import difference_lower_bound

LEAST = 10
"""So many sessions with, and as many without, before anything is said of an item."""

Z = 2.326
"""One-sided 99 %: dozens of items are looked at again with every session, so chance is given little room."""

RECENT = timedelta(days=90)
"""Sessions that ended longer ago count no more."""

FRESH = timedelta(days=30)
"""A recent decision is one for so long."""

LASTING = timedelta(days=180)
"""What works is told so long after it was last written or found out anew."""

_PATH = re.compile(r"(?<![\w/.~-])(?:[\w.-]+/)+[\w.-]*\w\.[A-Za-z]\w{0,5}(?![\w/])")


@dataclass(frozen=True, slots=True)
class Guided:
    """A session that was guided and ended well or badly. `items` are what it was told, with their wording."""

    agent: str
    items: Mapping[str, str]
    bad: bool


@dataclass(frozen=True, slots=True)
class Told:
    """An item in one wording, as one agent was told it."""

    agent: str
    ref: str
    wording: str


@dataclass(frozen=True, slots=True)
class Tally:
    """Sessions of an agent with an item and without it, and how many of them ended badly."""

    told: int = 0
    told_bad: int = 0
    untold: int = 0
    untold_bad: int = 0

    @property
    def harm(self) -> float:
        """By how much more of the sessions with it end badly, at least (99 %); -1 while there are too few."""
        if min(self.told, self.untold) < LEAST:
            return -1.0
        return difference_lower_bound(self.told_bad, self.told, self.untold_bad, self.untold, Z)

    @property
    def noisy(self) -> bool:
        """Whether it does harm."""
        return self.harm > 0


def tallies(sessions: Iterable[Guided]) -> dict[Told, Tally]:
    """How each agent did with and without each thing it was told."""
    number: dict[str, int] = defaultdict(int)
    bad: dict[str, int] = defaultdict(int)
    told: dict[Told, list[int]] = defaultdict(lambda: [0, 0])
    for one in sessions:
        number[one.agent] += 1
        bad[one.agent] += one.bad
        for ref, wording in one.items.items():
            counted = told[Told(one.agent, ref, wording)]
            counted[0] += 1
            counted[1] += one.bad
    return {
        item: Tally(count, hits, number[item.agent] - count, bad[item.agent] - hits)
        for item, (count, hits) in told.items()
    }


@dataclass(frozen=True, slots=True)
class Age:
    """How old something is, in whole days, and how old its kind may be."""

    days: int
    most: int


def outlived(one: Pattern | LeaderDecision, now: datetime) -> Age | None:
    """How far an item is past its time; None for one that is not, or that has no date."""
    most = LASTING if isinstance(one, Pattern) else FRESH
    if one.at is None or now - one.at <= most:
        return None
    return Age((now - one.at).days, most.days)


def paths(text: str) -> tuple[str, ...]:
    """What in a text looks like files of a repository: with a folder and an ending."""
    return tuple(dict.fromkeys(_PATH.findall(text)))
