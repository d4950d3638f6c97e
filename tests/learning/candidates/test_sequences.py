"""Which repeated commands of an agent are sequences (SPEC 5.1)."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.learning.candidates.sequences import EXEC_PREFIX, MIN_RUNS, find_sequences


def run_commands(*names: str) -> list[str]:
    """The calls of a run that consist of these commands."""
    return [EXEC_PREFIX + name for name in names]


def test_a_sequence_must_occur_in_three_sessions():
    own_commands = [[f"{number}{letter}" for letter in "abcdefgh"] for number in range(MIN_RUNS)]
    runs = [run_commands(*own[:4], "x", "y", "z", *own[4:]) for own in own_commands]
    assert find_sequences(runs)
    assert not find_sequences(runs[:-1])
    assert not find_sequences([runs[0] * 20, runs[1]]), "one session that loops proves nothing"


@given(st.lists(st.lists(st.sampled_from(run_commands(*"abcde")), max_size=14), max_size=14))
@settings(max_examples=80)
def test_sequences_occur_in_their_runs_more_often_than_by_chance(runs: list[list[str]]):
    for sequence in find_sequences(runs):
        assert 3 <= len(sequence.calls) <= 5
        assert MIN_RUNS <= len(sequence.runs) <= sequence.count
        assert all(before != after for before, after in pairwise(sequence.calls))
        assert sequence.expected < len(sequence.runs)
        assert sequence.z >= 3
        for number in sequence.runs:
            assert " ".join(sequence.calls) in " ".join(runs[number])
