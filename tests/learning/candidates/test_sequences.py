"""Sequences of commands that agents repeat, found among random calls (SPEC 5.1)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.learning.candidates.reflection import EXEC, MIN_RUNS, CallSequence
from engine.learning.candidates.reflection import find_sequences as detect_commands


def find_sequences(runs: Sequence[Sequence[str]]) -> Sequence[CallSequence]:
    """The sequences in runs of letters, each of which stands for a command."""
    if any(call.startswith(EXEC) for run in runs for call in run):
        return detect_commands(runs)
    sequences = detect_commands([[EXEC + call for call in run] for run in runs])
    return [
        replace(sequence, calls=tuple(call.removeprefix(EXEC) for call in sequence.calls)) for sequence in sequences
    ]


WORDS = [f"exec:tool{number}" for number in range(12)]


def random_runs(seed: int, *, planted: Sequence[str] = (), share: float = 0.4, sticky: float = 0.0) -> list[list[str]]:
    """30 sessions of 20 calls, some frequent and some rare; `planted` somewhere in a `share` of them."""
    chance = random.Random(seed)
    runs = []
    for _ in range(30):
        run: list[str] = []
        while len(run) < 20:
            repeats = run and chance.random() < sticky
            run.append(run[-1] if repeats else WORDS[min(int(chance.expovariate(0.25)), 11)])
        if planted and chance.random() < share:
            at = chance.randrange(len(run) + 1)
            run[at:at] = planted
        runs.append(run)
    return runs


def test_planted_sequences_are_found_and_random_calls_have_none() -> None:
    """20 random histories for each planted length, and 20 with nothing planted."""
    found = {0: 0, 3: 0, 4: 0, 5: 0}
    others = dict.fromkeys(found, 0)
    for length in found:
        for seed in range(20):
            planted = tuple(random.Random(seed).sample(WORDS, length))
            calls = [sequence.calls for sequence in find_sequences(random_runs(seed, planted=planted))]
            found[length] += planted in calls
            others[length] += len(calls) - (planted in calls)
    assert all(found[length] >= least for length, least in ((3, 16), (4, 18), (5, 20))), found
    assert others[0] <= 1, others
    assert max(others.values()) <= 4, others


def test_the_longest_sequence_wins_over_its_parts() -> None:
    whole = [["p", "a", "b", "c", "d", "e", "q"]] * 8
    assert [sequence.calls for sequence in find_sequences(whole)] == [("p", "a", "b", "c", "d")], "of equals the first"
    noise = []
    for number in range(12):
        around = random.Random(number).sample(["n1", "n2", "n3", "n4", "n5", "n6"], 6)
        noise.append([*around[:3], "b", "c", "d", *around[3:]])
    runs_by_calls = {sequence.calls: sequence.runs for sequence in find_sequences([*whole, *noise])}
    assert runs_by_calls[("b", "c", "d")] == tuple(range(8, 20)), "only where the longer one does not occur"


def test_a_sequence_must_occur_in_three_sessions() -> None:
    surroundings = [[f"{number}{place}" for place in "abcdefgh"] for number in range(4)]
    runs = [[*around[:4], "x", "y", "z", *around[4:]] for around in surroundings]
    assert find_sequences(runs[:MIN_RUNS])
    assert not find_sequences(runs[: MIN_RUNS - 1])
    assert not find_sequences([runs[0] * 20, *runs[1:2]]), "one session that loops proves nothing"


@given(st.lists(st.lists(st.sampled_from("abcde"), max_size=14), max_size=14))
@settings(max_examples=80, deadline=None)
def test_sequences_occur_in_their_runs_more_often_than_by_chance(runs: list[list[str]]) -> None:
    for sequence in find_sequences(runs):
        assert 3 <= len(sequence.calls) <= 5
        assert MIN_RUNS <= len(sequence.runs) <= sequence.count
        assert all(before != after for before, after in pairwise(sequence.calls))
        assert sequence.expected < len(sequence.runs)
        assert sequence.z >= 3
        for number in sequence.runs:
            starts = [
                at
                for at in range(len(runs[number]))
                if tuple(runs[number][at : at + len(sequence.calls)]) == sequence.calls
            ]
            assert starts
    assert find_sequences(runs) == find_sequences([tuple(run) for run in runs])


def test_sequences_consist_of_commands_only() -> None:
    steps = ["read", "exec:git status", "exec:git diff", "exec:pytest", "write", "read", "edit", "grep"]
    assert [sequence.calls for sequence in find_sequences([steps] * 8)] == [
        ("exec:git status", "exec:git diff", "exec:pytest")
    ]
    assert detect_commands([["read", "edit", "write", "grep"]] * 8) == [], "a flow cannot run them"
    assert find_sequences([]) == []
