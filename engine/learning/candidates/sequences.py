"""Finds sequences of commands that agents repeat more often than by chance (SPEC 5.1). Pure; used by `reflection`."""

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

MAX_PROBABILITY = 0.01
"""Maximum probability that any sequence of its length occurs as often by chance."""

DOMINANT_SHARE = 2 / 3
"""A sequence must be in this share of the sessions that have it without its first or its last call: otherwise that
call is only frequent around it."""

EXEC = "exec:"
"""Prefix of calls that run a command, see `events.ToolsUsed`."""

Calls = tuple[str, ...]
Places = Mapping[int, Sequence[int]]
"""The indexes where a sequence begins, by the number of the run."""


@frozen
class CallSequence:
    """A sequence of calls that occurs more often than by chance."""

    calls: Calls
    count: int
    """Number of occurrences without overlaps."""
    expected: float
    """Number of runs that would have it by chance."""
    z: float
    """Standard deviations between the number of runs and `expected`."""
    runs: tuple[int, ...]
    """The numbers of the runs that have it, in ascending order."""


def find_sequences(runs: Sequence[Sequence[str]]) -> Sequence[CallSequence]:
    """The repeated sequences of commands in `runs` (the calls of one session each, in order), highest `z` first. Other
    calls separate sequences, because a flow cannot run them.

    Sessions are counted, not occurrences, so a single session that loops proves nothing. A sequence must occur in more
    of them than if each session's own calls were in random order. The longest comes first; shorter ones are searched in
    the calls that are left.
    """
    # A call that is no command becomes a value that occurs only once, so that no repeated sequence goes through it.
    lines = [
        tuple(call if call.startswith(EXEC) else f"\0{number}:{index}" for index, call in enumerate(run))
        for number, run in enumerate(runs)
    ]
    chance = _Chance(lines)
    places = {length: _find_places(lines, length) for length in range(MIN_LENGTH - 1, MAX_LENGTH + 1)}
    sequences: list[CallSequence] = []
    used: set[tuple[int, int]] = set()
    for length in range(MAX_LENGTH, MIN_LENGTH - 1, -1):
        for calls, starts_by_run in sorted(places[length].items(), key=lambda item: _rank(*item)):
            unused = _find_unused_places(starts_by_run, length, used)
            is_repetition = any(call == following for call, following in pairwise(calls))  # agents often repeat a call
            if len(unused) < MIN_RUNS or is_repetition:
                continue
            if length > MIN_LENGTH and not _is_dominant(calls, len(starts_by_run), places[length - 1]):
                continue
            if sequence := chance.test(calls, unused):
                sequences.append(sequence)
                used |= {
                    (run, index) for run, starts in unused.items() for start in starts
                    for index in range(start, start + length)
                }  # fmt: skip
    return sorted(sequences, key=lambda sequence: (-sequence.z, sequence.calls))


def _is_dominant(calls: Calls, run_count: int, shorter: Mapping[Calls, Places]) -> bool:
    """Whether enough of the runs that have a sequence without its first or its last call have all of it
    (`DOMINANT_SHARE`). `shorter` has the places of all sequences that are one call shorter."""
    most_runs_of_part = max(len(shorter[calls[1:]]), len(shorter[calls[:-1]]))
    return run_count >= DOMINANT_SHARE * most_runs_of_part


def _find_places(lines: Sequence[Calls], length: int) -> dict[Calls, dict[int, list[int]]]:
    """All sequences of a length with their places. If places overlap, only the first of them counts."""
    by_calls: dict[Calls, dict[int, list[int]]] = defaultdict(dict)
    for number, line in enumerate(lines):
        for start in range(len(line) - length + 1):
            starts = by_calls[line[start : start + length]].setdefault(number, [])
            if not starts or start >= starts[-1] + length:
                starts.append(start)
    return by_calls


def _rank(calls: Calls, places: Places) -> tuple[int, float, Calls]:
    """Sort key: the sequence of most runs; of parts of one longer sequence, the earlier one."""
    return -len(places), sum(starts[0] for starts in places.values()) / len(places), calls


def _find_unused_places(places: Places, length: int, used: set[tuple[int, int]]) -> dict[int, list[int]]:
    """The places without calls of a longer sequence. `used` has the (run, index) of those calls."""
    unused: dict[int, list[int]] = {}
    for run, starts in places.items():
        free = [start for start in starts if used.isdisjoint((run, start + step) for step in range(length))]
        if free:
            unused[run] = free
    return unused


class _Chance:
    """Tests sequences against the same calls of each run in random order."""

    def __init__(self, lines: Sequence[Calls]) -> None:
        self._runs = [(Counter(line), len(line)) for line in lines]
        runs_with = Counter(call for counts, _ in self._runs for call in counts)
        self._common_calls = sum(runs >= MIN_RUNS for runs in runs_with.values())

    def test(self, calls: Calls, places: Places) -> CallSequence | None:
        """The sequence with these places if it occurs in more runs than by chance."""
        probabilities = [_estimate_probability(calls, *run) for run in self._runs]
        expected = sum(probabilities)
        spread = math.sqrt(sum(probability * (1 - probability) for probability in probabilities))
        z = (len(places) - expected) / spread if spread else 0.0
        if z < MIN_Z or poisson_tail(len(places), expected) * self._common_calls ** len(calls) > MAX_PROBABILITY:
            return None
        return CallSequence(calls, sum(map(len, places.values())), expected, z, tuple(sorted(places)))


def _estimate_probability(calls: Calls, counts: Mapping[str, int], total: int) -> float:
    """The probability that a run of `total` calls, so many of each, has a sequence in random order."""
    probability, used = 1.0, Counter[str]()
    for index, call in enumerate(calls):
        probability *= max(0, counts.get(call, 0) - used[call]) / max(1, total - index)
        used[call] += 1
    return 1 - (1 - probability) ** max(0, total - len(calls) + 1)


def poisson_tail(count: int, mean: float) -> float:
    """The Poisson probability of `count` or more where `mean` are expected, 0 < `mean` < `count`. This is an upper
    bound for trials with different probabilities."""
    # From the largest term on, which is the first one: nothing cancels, however small the sum is.
    term = math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))
    total = 0.0
    while term > total * 1e-12:
        total += term
        count += 1
        term *= mean / count
    return min(1.0, total)
