"""What became of guided work, and what that says of the guidance (SPEC 1.10, 5.1). Pure.

Guidance is *noisy* when an agent's work goes worse with it than without, by more than chance makes of so few sessions,
however often one looks; it is *stale* when it is older than what its kind holds, or speaks of files that are gone.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from engine.model import LeaderDecision, Pattern
from engine.model.confidence_sequence import Arms, evidence, upper_end

LEAST = 10
"""So many sessions with, and as many without, before anything is said of an item."""

DOUBT = 0.05
"""In so many of all cases, at most, is an item that does no harm called noisy at any look at the sessions of `RECENT`:
half of what an effect on trial is granted, for there are dozens of items. Measured over 200 sessions: of items that
change nothing 0 to 1 in a hundred, where a bound for one look (99 %) made it 2 to 9; of those that make three sessions
in four bad instead of one all, half of them by the 35th session where every other is told."""

RECENT = timedelta(days=90)
"""Sessions that ended longer ago count no more."""

FRESH = timedelta(days=30)
"""A recent decision is one for so long."""

LASTING = timedelta(days=180)
"""What works is told so long after it was last written or found out anew."""

_PATH = re.compile(r"(?<![\w/.~-])(?:[\w.-]+/)+[\w.-]*\w\.[A-Za-z]\w{0,5}(?![\w/])")


@dataclass(frozen=True, slots=True)
class Tally:
    """Sessions of an agent with an item and without it, and how many of them ended badly."""

    told: int = 0
    told_bad: int = 0
    untold: int = 0
    untold_bad: int = 0

    @property
    def harm(self) -> float:
        """By how much more of the sessions with it end badly, at least (95 % sure at every look); -1 while there are
        too few."""
        return -1.0 if self._few else -upper_end([self._arms], DOUBT)

    @property
    def noisy(self) -> bool:
        """Whether it does harm."""
        return not self._few and evidence([self._arms], 0.0) >= math.log(1 / DOUBT)

    @property
    def _few(self) -> bool:
        return min(self.told, self.untold) < LEAST

    @property
    def _arms(self) -> Arms:
        """Nobody drew which sessions are told it: leaders say it or do not."""
        return Arms(None, self.told, self.told - self.told_bad, self.untold, self.untold - self.untold_bad)


def tallies(sessions: Iterable[tuple[Mapping[str, str], bool]]) -> dict[tuple[str, str], Tally]:
    """How an agent did with and without each thing it was told, by item and wording. A session is what it was told, by
    item, and whether it ended badly."""
    every = list(sessions)
    bad = sum(ended for _, ended in every)
    told, hits = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for items, ended in every:
        told.update(items.items())
        hits.update(dict.fromkeys(items.items(), int(ended)))
    return {one: Tally(told[one], hits[one], len(every) - told[one], bad - hits[one]) for one in told}


def outlived(one: Pattern | LeaderDecision, now: datetime) -> tuple[int, int] | None:
    """How old an item is that is past its time, and how old its kind may be, in whole days; None for one that is not,
    or that has no date."""
    most = LASTING if isinstance(one, Pattern) else FRESH
    return None if one.at is None or now - one.at <= most else ((now - one.at).days, most.days)


def paths(text: str) -> tuple[str, ...]:
    """What in a text looks like files of a repository: with a folder and an ending."""
    return tuple(dict.fromkeys(_PATH.findall(text)))
