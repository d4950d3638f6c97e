"""Sequences of tool calls: planted ones are found, chance makes none, the longest wins over its parts."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.learning.candidates.sequences import EXEC, MIN_RUNS, CallSequence, poisson_tail
from engine.learning.candidates.sequences import find_sequences as detect_commands


def find_sequences(runs: Sequence[Sequence[str]]) -> Sequence[CallSequence]:
    """Of letters, each of which stands for a command."""
    if any(call.startswith(EXEC) for run in runs for call in run):
        return detect_commands(runs)
    found = detect_commands([[EXEC + call for call in run] for run in runs])
    return [replace(one, calls=tuple(call.removeprefix(EXEC) for call in one.calls)) for one in found]


WORDS = [f"exec:tool{number}" for number in range(12)]


def made_up(seed: int, *, planted: Sequence[str] = (), share: float = 0.4, sticky: float = 0.0) -> list[list[str]]:
    """30 sessions of 20 calls, some frequent and some rare; `planted` somewhere in a `share` of them."""
    chance = random.Random(seed)
    runs = []
    for _ in range(30):
        run: list[str] = []
        while len(run) < 20:
            again = run and chance.random() < sticky
            run.append(run[-1] if again else WORDS[min(int(chance.expovariate(0.25)), 11)])
        if planted and chance.random() < share:
            at = chance.randrange(len(run) + 1)
            run[at:at] = planted
        runs.append(run)
    return runs


def test_what_is_planted_is_found_and_chance_makes_nothing() -> None:
    """The small table: 20 worlds for each length that is planted, and 20 with nothing in them."""
    found = {0: 0, 3: 0, 4: 0, 5: 0}
    others = dict.fromkeys(found, 0)
    for length in found:
        for seed in range(20):
            planted = tuple(random.Random(seed).sample(WORDS, length))
            said = [one.calls for one in find_sequences(made_up(seed, planted=planted))]
            found[length] += planted in said
            others[length] += len(said) - (planted in said)
    assert all(found[length] >= least for length, least in ((3, 16), (4, 18), (5, 20))), found
    assert others[0] <= 1, others
    assert max(others.values()) <= 4, others


@pytest.mark.parametrize("sticky", [0.3, 0.6])
def test_doing_the_same_on_end_is_no_sequence(sticky: float) -> None:
    assert sum(len(find_sequences(made_up(seed, sticky=sticky))) for seed in range(10)) == 0


def test_the_longest_wins_and_a_part_only_by_what_is_its_own() -> None:
    whole = [["p", "a", "b", "c", "d", "e", "q"]] * 8
    assert [one.calls for one in find_sequences(whole)] == [("p", "a", "b", "c", "d")], "of equals, what comes first"
    noise = []
    for number in range(12):
        around = random.Random(number).sample(["n1", "n2", "n3", "n4", "n5", "n6"], 6)
        noise.append([*around[:3], "b", "c", "d", *around[3:]])
    said = {one.calls: one.runs for one in find_sequences([*whole, *noise])}
    assert said[("b", "c", "d")] == tuple(range(8, 20)), "only where the longer one is not"


def test_three_sessions_are_the_least() -> None:
    surroundings = [[f"{number}{place}" for place in "abcdefgh"] for number in range(4)]
    runs = [[*around[:4], "x", "y", "z", *around[4:]] for around in surroundings]
    assert find_sequences(runs[:MIN_RUNS])
    assert not find_sequences(runs[: MIN_RUNS - 1])
    assert not find_sequences([runs[0] * 20, *runs[1:2]]), "one session that goes in circles proves nothing"


@given(st.lists(st.lists(st.sampled_from("abcde"), max_size=14), max_size=14))
@settings(max_examples=80, deadline=None)
def test_whatever_is_found_stands_there(runs: list[list[str]]) -> None:
    for one in find_sequences(runs):
        assert 3 <= len(one.calls) <= 5
        assert MIN_RUNS <= len(one.runs) <= one.count
        assert all(before != after for before, after in pairwise(one.calls))
        assert one.expected < len(one.runs)
        assert one.z >= 3
        for number in one.runs:
            starts = [
                at for at in range(len(runs[number])) if tuple(runs[number][at : at + len(one.calls)]) == one.calls
            ]
            assert starts
    assert find_sequences(runs) == find_sequences([tuple(run) for run in runs])


def test_commands_are_taken_out_of_what_stands_around_them() -> None:
    """An agent reads and writes around the commands that it runs every time; those alone can become a flow."""
    steps = ["read", "exec:git status", "exec:git diff", "exec:pytest", "write", "read", "edit", "grep"]
    assert [one.calls for one in find_sequences([steps] * 8)] == [("exec:git status", "exec:git diff", "exec:pytest")]
    assert detect_commands([["read", "edit", "write", "grep"]] * 8) == [], "no flow could take it"
    assert find_sequences([]) == []


@given(st.permutations(range(6)))
@settings(max_examples=20, deadline=None)
def test_the_order_of_sessions_does_not_matter(order: list[int]) -> None:
    runs = [["s", "a", "b", "c", f"n{number}", f"m{number}"] for number in range(6)]
    (found,) = find_sequences([runs[number] for number in order])
    assert found.calls == ("s", "a", "b", "c")
    assert len(found.runs) == 6


@given(st.integers(1, 30), st.floats(0.01, 20))
@settings(max_examples=40, deadline=None)
def test_the_tail_is_that_of_poisson(count: int, mean: float) -> None:
    below = sum(math.exp(number * math.log(mean) - mean - math.lgamma(number + 1)) for number in range(count))
    assert count <= mean or poisson_tail(count, mean) == pytest.approx(1 - below, abs=1e-9)
