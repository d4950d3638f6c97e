"""Each formula of a record's score at its boundaries, and what all of them have in common (SPEC 5.1)."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.learning.candidates import scoring
from engine.learning.candidates.reflection import EXEC, MIN_RUNS, CallSequence, poisson_tail
from engine.learning.candidates.reflection import find_sequences as detect_commands
from engine.learning.candidates.scoring import FULL_COST, OPPORTUNITY, ErrorClass, RecordScore, add_parts, share
from engine.model import Trust


def an_error(points: float, explained: bool, before: int) -> RecordScore:
    return scoring.agent_error(ErrorClass(points, "x", "", explained), before)


AT_THE_LINE: list[tuple[Callable[..., RecordScore], tuple[float, ...], float]] = [
    (scoring.failed_tdd, (2, 0, 2), 59.0),  # one try in vain is no opportunity yet
    (scoring.failed_tdd, (2, 0, 3), 61.0),
    (scoring.failed_tdd, (9, 10 * FULL_COST, 50), 100.0),
    (scoring.repeated_retry, (2, FULL_COST // 5), 60.0),
    (scoring.task_conflict, (4, 1), 60.2),
    (scoring.budget_incident, (999_000, 1_000_000), 60.0),
    (scoring.budget_incident, (1_000_000, 1_000_000), 60.0),
    (scoring.edited_approval, (0.25, 0), 60.0),
    (an_error, (scoring.MISUSED, True, 0), 60.0),
    (an_error, (scoring.MISUSED, False, 2), 60.0),
    (an_error, (scoring.BROKE_OFF, False, 3), 60.0),
    (scoring.guidance_noisy, (0.0,), 60.0),
    (scoring.stale_guidance, (0, 0, 1, 1), 59.0),
    (scoring.stale_guidance, (0, 0, 1, 2), 61.0),
    (scoring.stale_guidance, (360, 180, 0, 0), 60.0),
    (scoring.stale_guidance, (359, 180, 0, 0), 59.9),
    (scoring.stale_guidance, (720, 180, 9, 99), 100.0),
    (scoring.cloud_sync_failure, (9, 0), 58.0),
    (scoring.cloud_sync_failure, (10, 0), 60.0),
    (scoring.cloud_sync_failure, (0, 4), 60.0),
    (scoring.cloud_sync_failure, (99, 99), 100.0),
    (scoring.recall_hit, (3,), 60.0),
    (scoring.tool_sequence, (3, 3.0, 0.1), 60.0),
    (scoring.tool_sequence, (3, 3.0, 0.05), 59.0),
]


@pytest.mark.parametrize(("formula", "arguments", "score"), AT_THE_LINE)
def test_every_formula_at_its_boundaries(
    formula: Callable[..., RecordScore], arguments: tuple[float, ...], score: float
) -> None:
    found = formula(*arguments)
    assert found.score == score
    assert found.reason


COUNTS = st.integers(0, 2_000_000)


@given(COUNTS, COUNTS, COUNTS)
@settings(max_examples=40, deadline=None)
def test_more_of_it_never_weighs_less(attempts: int, cost: int, failing: int) -> None:
    for formula in (scoring.failed_tdd, scoring.successful_heal):
        score = formula(attempts, cost, failing).score
        assert score <= formula(attempts, cost + 1_000, failing).score
        assert score <= formula(attempts, cost, failing + 1).score
    assert scoring.failed_tdd(attempts, cost, failing).score <= scoring.failed_tdd(attempts + 1, cost, failing).score
    assert scoring.repeated_retry(attempts, cost).score <= scoring.repeated_retry(attempts + 1, cost).score
    # A heal at a later try is the weaker repair.
    assert scoring.successful_heal(attempts + 1, cost, 1).score <= scoring.successful_heal(attempts, cost, 1).score


@given(st.lists(st.tuples(st.floats(-200, 200), st.text(min_size=1, max_size=9))))
@settings(max_examples=40, deadline=None)
def test_a_score_is_from_0_to_100(parts: list[tuple[float, str]]) -> None:
    assert 0 <= add_parts(*parts).score <= 100


@given(st.floats(0, 1e9), st.floats(0, 1e9))
@settings(max_examples=40, deadline=None)
def test_a_share_is_from_0_to_1(amount: float, full: float) -> None:
    assert 0 <= share(amount, full) <= 1


def test_what_went_its_way_is_no_opportunity() -> None:
    """However much of it there is: nothing is to be done otherwise."""
    most = [
        scoring.guidance_applied(99, 99),
        scoring.teaching_refresh(99, 0),
        *(scoring.approval(one, "x") for one in (scoring.APPROVED, scoring.PERMISSION, scoring.LASTING_PERMISSION)),
        scoring.landed(99),
    ]
    assert all(one.score < OPPORTUNITY for one in most)


@pytest.mark.parametrize(
    ("trust", "before", "score"),
    [(Trust.QUOTED, 0, 65.0), (Trust.QUOTED, 1, 70.0), (Trust.OPERATOR, 0, 75.0), (Trust.QUOTED, 9, 85.0)],
)
def test_a_kept_fact_weighs_by_whose_words_it_is_and_by_how_many_were_kept_before(
    trust: Trust, before: int, score: float
) -> None:
    assert scoring.kept_fact(trust, before, "x").score == score


def test_a_reason_names_its_parts() -> None:
    assert scoring.repeated_retry(3, FULL_COST).reason == (
        "45.0 another attempt left the same tests failing; +20.0 2 attempts made; +25.0 $0.50 spent on it"
    )


# Sequences of tool calls: planted ones are found, chance makes none, the longest wins over its parts.


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
