"""Lift: what is said of an effect, when nothing is said, and whether the interval holds what it claims."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.learning.candidates.overlays import ERROR_RATE, is_withheld, measure_lift
from engine.model.confidence_sequence import Arms, evidence

SHARES = st.sampled_from([0.05, 0.2, 0.5])

COUNTS = st.tuples(st.integers(0, 120), st.integers(0, 120)).map(lambda pair: (max(pair), min(pair)))
"""Runs, and how many of them were good."""


@given(SHARES, COUNTS, COUNTS)
@settings(max_examples=10, deadline=None)
def test_what_always_holds(share: float, told: tuple[int, int], untold: tuple[int, int]) -> None:
    arms = Arms(share, *told, *untold)
    found = measure_lift("over_1", [arms])
    assert -1 <= found.low <= found.difference <= found.high <= 1
    mirrored = measure_lift("over_1", [Arms(1 - share, *untold, *told)])
    assert mirrored.difference == pytest.approx(-found.difference)
    assert (mirrored.low, mirrored.high) == pytest.approx((-found.high, -found.low), abs=1e-6)
    assert (found.verdict == "harms") is (evidence([arms], 0.0) >= math.log(1 / ERROR_RATE))


@given(SHARES, COUNTS, COUNTS, st.lists(st.floats(-0.999, 0.999), min_size=2, max_size=2).map(sorted))
@settings(max_examples=25, deadline=None)
def test_what_is_given_up_takes_all_above_with_it(
    share: float, told: tuple[int, int], untold: tuple[int, int], bounds: list[float]
) -> None:
    """So that an interval says all there is: nothing above its upper end would be kept."""
    arms, given_up = [Arms(share, *told, *untold)], math.log(1 / ERROR_RATE)
    if evidence(arms, bounds[0]) >= given_up:
        assert evidence(arms, bounds[1]) >= given_up


@given(SHARES, COUNTS, COUNTS)
@settings(max_examples=25, deadline=None)
def test_one_more_good_run_with_it_never_speaks_for_harm(
    share: float, told: tuple[int, int], untold: tuple[int, int]
) -> None:
    runs, good = told
    if good < runs:
        arms = Arms(share, runs, good, *untold)
        assert evidence([replace(arms, with_good=good + 1)], 0.0) <= max(0.0, evidence([arms], 0.0)) + 1e-9


@pytest.mark.parametrize("counts", [(1, 2, 0, 0), (0, 0, 1, -1)])
def test_counts_that_cannot_be_are_refused(counts: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="cannot be"):
        Arms(0.2, *counts)


@pytest.mark.parametrize(
    ("arms", "verdict"),
    [
        (Arms(0.2), "not enough evidence"),
        (Arms(0.2, 40, 0, 0, 0), "not enough evidence"),  # nothing to compare with
        (Arms(0.2, 4, 0, 1, 1), "not enough evidence"),
        (Arms(0.2, 5, 0, 3, 3), "harms"),
        (Arms(0.2, 40, 10, 10, 9), "harms"),
        (Arms(0.2, 10, 10, 10, 0), "helps"),
        (Arms(0.2, 40, 28, 10, 7), "not enough evidence"),  # no difference was seen, but one of any size could be there
        (Arms(0.2, 2000, 1000, 500, 250), "makes no difference"),
        (Arms(0.2, 40, 20, 10, 7), "not enough evidence"),  # what chance does at one of many looks
    ],
)
def test_verdicts(arms: Arms, verdict: str) -> None:
    assert measure_lift("over_1", [arms]).verdict == verdict


def test_evidence_is_by_hand_what_it_says() -> None:
    """One run with it that failed, one without that went well, half drawn to go without. Against no harm each pair of
    shares bets (1 - told) * untold against the middle of the two, for both."""
    shares = [(number + 0.5) / 20 for number in range(20)]
    bets = {
        (told, untold): (1 - told) * untold / ((1 - (told + untold) / 2) * (told + untold) / 2)
        for told in shares
        for untold in shares
        if told < untold
    }
    weights = {pair: math.exp(-(((pair[1] - pair[0] - 0.3) / 0.15) ** 2) / 2) for pair in bets}
    found = evidence([Arms(0.5, 1, 0, 1, 1)], 0.0)
    weighed = sum(weights[pair] * bet for pair, bet in bets.items()) / sum(weights.values())
    assert math.exp(found) == pytest.approx(weighed)


@pytest.mark.parametrize("bound", [-0.3, 0.0, 0.2])
@pytest.mark.parametrize("share", [0.2, 0.5])
def test_no_bet_is_won_on_average_while_the_effect_is_as_good(share: float, bound: float) -> None:
    """Exactly, over everything that four runs can come to, however they were drawn: what the claim rests on."""
    for untold in (0.31, 0.5, 0.62):
        told = untold + bound + 0.04
        expected = 0.0
        for arms, chance in _all(share, told, untold, 4):
            expected += chance * math.exp(evidence([arms], bound))
        assert expected <= 1 + 1e-9


@pytest.mark.parametrize("bound", [-0.3, 0.0, 0.2])
@pytest.mark.parametrize("runs", [(3, 2), (1, 4), (4, 1)])
def test_where_nobody_drew_no_bet_is_won_on_average_either(runs: tuple[int, int], bound: float) -> None:
    """Exactly, over everything that so many runs with it and without can come to."""
    for untold in (0.31, 0.5, 0.62):
        expected = 0.0
        for good in product(range(runs[0] + 1), range(runs[1] + 1)):
            chance = 1.0
            for count, of, share in zip(good, runs, (untold + bound + 0.04, untold), strict=True):
                chance *= math.comb(of, count) * share**count * (1 - share) ** (of - count)
            expected += chance * math.exp(evidence([Arms(None, runs[0], good[0], runs[1], good[1])], bound))
        assert expected <= 1


def _all(share: float, told: float, untold: float, runs: int) -> Iterator[tuple[Arms, float]]:
    for without in range(runs + 1):
        for with_good in range(runs - without + 1):
            for without_good in range(without + 1):
                chance = math.comb(runs, without) * share**without * (1 - share) ** (runs - without)
                for good, all_of_them, p in ((with_good, runs - without, told), (without_good, without, untold)):
                    chance *= math.comb(all_of_them, good) * p**good * (1 - p) ** (all_of_them - good)
                yield Arms(share, runs - without, with_good, without, without_good), chance


def test_runs_that_were_drawn_with_another_chance_are_compared_among_themselves() -> None:
    """Work got easier, and at the same time more runs went without: all of them together would look like harm."""
    hard, easy = Arms(0.1, 90, 27, 10, 3), Arms(0.5, 50, 45, 50, 45)
    together = Arms(0.3, 140, 72, 60, 48)
    assert measure_lift("o", [together]).verdict == "harms"
    found = measure_lift("o", [hard, easy])
    assert found.verdict == "not enough evidence"
    assert (found.with_runs, found.with_good, found.without_runs, found.without_good) == (140, 72, 60, 48)
    assert found.difference == pytest.approx(0, abs=0.02)


@given(st.floats(0, 1), st.integers(0, 10**6))
@settings(deadline=None)
def test_the_same_run_always_gets_the_same_answer(share: float, run: int) -> None:
    first = is_withheld(f"ses_{run}", "over_1", share)
    assert first is is_withheld(f"ses_{run}", "over_1", share)
    assert not is_withheld(f"ses_{run}", "over_1", 0.0)
    assert is_withheld(f"ses_{run}", "over_1", 1.0)
    if first:
        assert is_withheld(f"ses_{run}", "over_1", min(1.0, share + 0.1))
