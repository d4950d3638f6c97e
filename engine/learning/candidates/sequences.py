"""Finds sequences of tool calls that agents repeat in the same order (SPEC 5.1, 5.2). Pure.

A sequence has 3 to 5 consecutive calls. It must occur in more sessions than if each session's own calls were in random
order. Sessions are counted, not occurrences, so a single session that loops proves nothing. A longer sequence must
also be more than a shorter one followed by a frequent call; if it is, it replaces the shorter ones in the places it
covers.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from engine.frozen import frozen

MIN_LENGTH, MAX_LENGTH = 3, 5
"""Calls of a sequence."""

MIN_RUNS = 3
"""Minimum number of distinct sessions that must have a sequence."""

MIN_Z = 3.0
"""Minimum number of standard deviations above the sessions expected by chance."""

CHANCE = 0.01
"""At most so probable that chance makes anything of its length look like it, among all the sequences there could be."""

DOMINANT_SHARE = 2 / 3
"""A longer one that so large a share of the runs with a part of it have stands for that part, whatever chance says."""

EXEC = "exec:"
"""What calls begin with that run a command, see `events.ToolsUsed`."""

Gram = tuple[str, ...]
Places = dict[int, list[int]]
"""By the number of a run, where in it a sequence begins."""


@frozen
class FoundSequence:
    """A sequence. `count`: how often it occurs in all, without overlaps; `runs`: the numbers of the runs that have it,
    rising. By chance `expected` runs would; `z`: by so many standard deviations there are more."""

    calls: tuple[str, ...]
    count: int
    expected: float
    z: float
    runs: tuple[int, ...]


def detect(runs: Sequence[Sequence[str]]) -> Sequence[FoundSequence]:
    """The sequences of commands in `runs` (the calls of one session each, in order), the surest first. What is no
    command parts them: no flow could take it, so nothing would come of a sequence that has it."""
    calls = _CallIndex(
        [
            [call if call.startswith(EXEC) else f"\0{number}:{place}" for place, call in enumerate(run)]
            for number, run in enumerate(runs)
        ]
    )
    sequences: list[FoundSequence] = []
    for length in range(MAX_LENGTH, MIN_LENGTH - 1, -1):
        # An overlap is given to the one that is surer of its place; of equals, to what comes first.
        surprising = {gram: places for gram, places in calls.promising(length).items() if calls.surprises(gram, places)}
        for gram in sorted(surprising, key=lambda gram: (-len(surprising[gram]), calls.first(surprising[gram]), gram)):
            places = calls.free(gram, surprising[gram])
            if len(places) < MIN_RUNS or not calls.surprises(gram, places):
                continue
            expected, z = calls.score(gram, len(places))
            if z >= MIN_Z:
                sequences.append(
                    FoundSequence(gram, sum(map(len, places.values())), expected, z, tuple(sorted(places)))
                )
                calls.take(length, places)
    return sorted(sequences, key=lambda sequence: (-sequence.z, sequence.calls))


class _CallIndex:
    """What was called, and which places are taken."""

    def __init__(self, runs: Sequence[Sequence[str]]) -> None:
        self._runs = [tuple(run) for run in runs]
        self._counts: list[Mapping[str, int]] = [Counter(run) for run in self._runs]
        self._runs_with: dict[str, set[int]] = defaultdict(set)
        for number, counts in enumerate(self._counts):
            for call in counts:
                self._runs_with[call].add(number)
        # Only what so many runs call can be of a sequence; which calls those are says nothing of their order.
        self._words = sum(len(who) >= MIN_RUNS for who in self._runs_with.values())
        self._taken: dict[int, set[int]] = defaultdict(set)
        self._places: dict[int, dict[Gram, Places]] = {}
        self._chances: dict[Gram, Sequence[float]] = {}

    def places(self, length: int) -> dict[Gram, Places]:
        """Everything of a length, and where it stands; of what overlaps itself the first."""
        if length not in self._places:
            by_gram: dict[Gram, Places] = {}
            for number, run in enumerate(self._runs):
                for start in range(len(run) - length + 1):
                    starts = by_gram.setdefault(run[start : start + length], {}).setdefault(number, [])
                    if not starts or start >= starts[-1] + length:
                        starts.append(start)
            self._places[length] = by_gram
        return self._places[length]

    def promising(self, length: int) -> dict[Gram, Places]:
        """What so many runs have, each step another than the one before: agents do the same a few times on end, and
        that alone is no sequence of steps."""
        return {
            gram: places
            for gram, places in self.places(length).items()
            if len(places) >= MIN_RUNS and all(call != following for call, following in pairwise(gram))
        }

    def surprises(self, gram: Gram, places: Places) -> bool:
        """Whether chance alone does not make it, nor chance around a part of it."""
        length, runs = len(gram), len(places)
        if tail(runs, sum(self._likely(gram))) * self._words**length > CHANCE:
            return False
        for less in range(1, length - 1):
            for at in range(less + 1):
                part, rest = gram[at : at + length - less], gram[:at] + gram[at + length - less :]
                most = runs >= DOMINANT_SHARE * len(self.places(length - less)[part])
                if not most and tail(runs, self._continued(part, rest)) * self._words**less > CHANCE:
                    return False
        return True

    def score(self, gram: Gram, runs: int) -> tuple[float, float]:
        """How many runs would have it by chance, and z of so many that have it."""
        likely = self._likely(gram)
        expected = sum(likely)
        spread = math.sqrt(sum(chance * (1 - chance) for chance in likely))
        return expected, (runs - expected) / spread if spread else 0.0

    def first(self, places: Places) -> tuple[float, int]:
        """How early it stands, on the mean; what decides between windows on one longer sequence."""
        return sum(starts[0] for starts in places.values()) / len(places), min(places)

    def free(self, gram: Gram, places: Places) -> Places:
        """Its places of which nothing is taken by a sequence found before."""
        free = {
            number: [at for at in starts if self._taken[number].isdisjoint(range(at, at + len(gram)))]
            for number, starts in places.items()
        }
        return {number: starts for number, starts in free.items() if starts}

    def take(self, length: int, places: Places) -> None:
        """These places belong to a sequence now."""
        for number, starts in places.items():
            for at in starts:
                self._taken[number].update(range(at, at + length))

    def _likely(self, gram: Gram) -> Sequence[float]:
        """For each run that could, how probable it has `gram` somewhere, its own calls being in an order of chance."""
        key = tuple(sorted(gram))
        if key not in self._chances:
            runs = set.intersection(*(self._runs_with[call] for call in set(gram)))
            self._chances[key] = [self._once(key, number) for number in sorted(runs)]
        return self._chances[key]

    def _once(self, key: Gram, number: int) -> float:
        counts, calls = self._counts[number], len(self._runs[number])
        if calls < len(key):
            return 0.0
        share, counted = 1.0, Counter[str]()
        for place, call in enumerate(key):
            share *= max(0, counts[call] - counted[call]) / (calls - place)
            counted[call] += 1
        return -math.expm1((calls - len(key) + 1) * math.log1p(-share)) if share < 1 else 1.0

    def _continued(self, part: Gram, rest: Gram) -> float:
        """So many runs would have `part` with `rest` around it as it is asked about, if what is around it were any of
        the other calls of the run."""
        expected = 0.0
        for number, starts in self.places(len(part))[part].items():
            counts, remaining = self._counts[number], len(self._runs[number]) - len(part)
            share, counted = 1.0, Counter(part)
            for place, call in enumerate(rest):
                share *= max(0, counts[call] - counted[call]) / (remaining - place) if remaining > place else 0.0
                counted[call] += 1
            expected += 1 - (1 - share) ** len(starts)
        return expected


def tail(count: int, mean: float) -> float:
    """How probable `count` or more are, where `mean` are expected (Poisson; for trials of different probability it is
    no less than the truth above the mean)."""
    if count <= mean:
        return 1.0
    if mean <= 0:
        return 0.0
    # From the largest term on, which is the first one: nothing cancels, however small the sum is.
    term = math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))
    total, at = 0.0, count
    while term > total * 1e-12:
        total += term
        at += 1
        term *= mean / at
    return min(1.0, total)
