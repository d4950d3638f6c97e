"""Sequences of commands that an agent repeats over many sessions, more often than by chance (SPEC 5.1), and the
commands that it ran for one (5.2). Pure.

Sessions are counted, not occurrences, so a single session that loops proves nothing. By chance means that each
session's own calls are in random order.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from engine.frozen import frozen
from engine.learning.candidates.effects import needs_shell
from engine.model import TranscriptLine
from engine.model.sessions import CALL_FAILED_MARK, CALL_REFUSED_MARK

MIN_LENGTH, MAX_LENGTH = 3, 5
"""Minimum and maximum number of calls of a sequence."""

MIN_RUNS = 3
"""Minimum number of distinct sessions that must have a sequence."""

DOMINANT_SHARE = 2 / 3
"""A sequence must be in this share of the sessions that have it without its first or its last call: otherwise that
call is only frequent around it."""

MIN_DEVIATIONS = 3.0
"""Minimum number of standard deviations above the sessions expected by chance."""

MAX_PROBABILITY = 0.01
"""Maximum probability that any sequence of its length occurs as often by chance."""

EXEC_PREFIX = "exec:"
"""Prefix of calls that run a command, see `events.ToolsUsed`."""

Calls = tuple[str, ...]
"""The calls of a sequence or of a run, in order."""

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
    calls separate sequences, because a flow cannot run them. The longest comes first; shorter ones are searched in the
    calls that are left."""
    lines = [_separate_commands(run, number) for number, run in enumerate(runs)]
    counts = [Counter(line) for line in lines]
    places = {length: _find_places(lines, length) for length in range(MIN_LENGTH - 1, MAX_LENGTH + 1)}
    sequences: list[CallSequence] = []
    used_calls: set[tuple[int, int]] = set()  # (number of the run, index of the call)
    for length in range(MAX_LENGTH, MIN_LENGTH - 1, -1):
        for calls in _select_repeated(places, length):
            unused_places = _leave_out(places[length][calls], length, used_calls)
            if sequence := _test_against_chance(calls, unused_places, counts):
                sequences.append(sequence)
                used_calls |= {
                    (run, start + step)
                    for run, starts in unused_places.items()
                    for start in starts
                    for step in range(length)
                }
    return sorted(sequences, key=lambda sequence: (-sequence.z, sequence.calls))


def _separate_commands(run: Sequence[str], number: int) -> Calls:
    """The calls of a run. A call that is no command becomes a value that occurs only once, so that no repeated sequence
    goes through it."""
    return tuple(call if call.startswith(EXEC_PREFIX) else f"\0{number}:{index}" for index, call in enumerate(run))


def _find_places(lines: Sequence[Calls], length: int) -> dict[Calls, dict[int, list[int]]]:
    """All sequences of a length with their places. If places overlap, only the first of them counts."""
    by_calls: dict[Calls, dict[int, list[int]]] = defaultdict(dict)
    for number, line in enumerate(lines):
        for start in range(len(line) - length + 1):
            starts = by_calls[line[start : start + length]].setdefault(number, [])
            if not starts or start >= starts[-1] + length:
                starts.append(start)
    return by_calls


def _select_repeated(places: Mapping[int, Mapping[Calls, Places]], length: int) -> list[Calls]:
    """The sequences of a length that are in enough runs: those in most runs first, and of parts of one longer sequence
    the earlier one. `places` has the places of all sequences, by length."""

    def rank(calls: Calls) -> tuple[int, float, Calls]:
        starts_by_run = places[length][calls]
        mean_start = sum(starts[0] for starts in starts_by_run.values()) / len(starts_by_run)
        return -len(starts_by_run), mean_start, calls

    repeated = [
        calls
        for calls, starts_by_run in places[length].items()
        if len(starts_by_run) >= MIN_RUNS
        and not any(call == following for call, following in pairwise(calls))  # agents often repeat a call
    ]
    if length > MIN_LENGTH:
        repeated = [calls for calls in repeated if _is_dominant(calls, places)]
    return sorted(repeated, key=rank)


def _is_dominant(calls: Calls, places: Mapping[int, Mapping[Calls, Places]]) -> bool:
    """Whether enough of the runs that have a sequence without its first or its last call have all of it
    (`DOMINANT_SHARE`)."""
    shorter = places[len(calls) - 1]
    most_runs_of_part = max(len(shorter[calls[1:]]), len(shorter[calls[:-1]]))
    return len(places[len(calls)][calls]) >= DOMINANT_SHARE * most_runs_of_part


def _leave_out(places: Places, length: int, used_calls: set[tuple[int, int]]) -> Places:
    """The places of a sequence of this length that have no call of a longer sequence."""
    unused = {
        run: [start for start in starts if used_calls.isdisjoint((run, start + step) for step in range(length))]
        for run, starts in places.items()
    }
    return {run: starts for run, starts in unused.items() if starts}


def _test_against_chance(calls: Calls, places: Places, runs: Sequence[Counter[str]]) -> CallSequence | None:
    """The sequence with these places if it occurs in more `runs` than by chance. `runs` are the numbers of each call in
    each run: by chance means that they are in random order."""
    if len(places) < MIN_RUNS:
        return None
    probabilities = [_estimate_probability(calls, run) for run in runs]
    expected = sum(probabilities)
    spread = math.sqrt(sum(probability * (1 - probability) for probability in probabilities))
    z = (len(places) - expected) / spread if spread else 0.0
    if z < MIN_DEVIATIONS:
        return None
    runs_with = Counter(call for run in runs for call in run)
    possible_sequences = sum(number >= MIN_RUNS for number in runs_with.values()) ** len(calls)
    if compute_poisson_tail(len(places), expected) * possible_sequences > MAX_PROBABILITY:
        return None
    return CallSequence(calls, sum(map(len, places.values())), expected, z, tuple(sorted(places)))


def _estimate_probability(calls: Calls, run: Counter[str]) -> float:
    """The probability that a run with these numbers of each call has a sequence in random order."""
    probability, total = 1.0, run.total()
    for index, call in enumerate(calls):
        probability *= max(0, run[call] - calls[:index].count(call)) / max(1, total - index)
    return 1 - (1 - probability) ** max(0, total - len(calls) + 1)


def compute_poisson_tail(count: int, mean: float) -> float:
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


# -- the commands of a sequence


def find_common_commands(transcripts: Sequence[Sequence[TranscriptLine]], calls: Sequence[str]) -> tuple[str, ...]:
    """The commands that most of these sessions ran for a sequence of calls, such as `exec:git status`. () if no session
    ran all of them without a shell."""
    command_words = [call.partition(":")[2].split() for call in calls]
    counts: Counter[tuple[str, ...]] = Counter()
    for lines in transcripts:
        runs_of_tools = (line.text.partition(" ") for line in lines if line.kind == "tool")
        commands = [command.strip() if tool == "exec" else "" for tool, _, command in runs_of_tools]
        starts = range(len(commands) - len(command_words) + 1)
        runs = (tuple(commands[start : start + len(command_words)]) for start in starts)
        counts.update({run for run in runs if all(map(_is_call_of, run, command_words))})
    return min(counts, key=lambda run: (-counts[run], sum(map(len, run)), run), default=())


def _is_call_of(command: str, call_words: Sequence[str]) -> bool:
    """Whether a command succeeded, needs no shell, and has the program and the subcommand of a call."""
    tokens = command.split()
    if not call_words or not tokens or has_failed(command) or needs_shell(command):
        return False
    has_subcommand = len(call_words) == 1 or call_words[1] in tokens[1:]
    return has_subcommand and _find_program_name(tokens[0]) == _find_program_name(call_words[0])


def has_failed(call: str) -> bool:
    """Whether a call failed or was refused."""
    return CALL_FAILED_MARK in call or CALL_REFUSED_MARK in call


def _find_program_name(word: str) -> str:
    """The name of a program without path and version: `python` for `/usr/bin/python3.12`."""
    name = word.rsplit("/", 1)[-1]
    return name.rstrip("0123456789.") or name
