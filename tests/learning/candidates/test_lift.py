"""Lift: how much better sessions go with an effect, and when there is no verdict (SPEC 5.7)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.learning.candidates.overlays import ERROR_RATE, is_withheld, measure_lift
from engine.statistics import Arms, difference_interval

COUNTS = st.tuples(st.integers(0, 120), st.integers(0, 120)).map(lambda pair: (max(pair), min(pair)))
"""Runs, and how many of them were good."""


@given(COUNTS, COUNTS)
@settings(max_examples=50, deadline=None)
def test_the_interval_is_symmetric_and_more_good_runs_never_lower_the_difference(
    with_counts: tuple[int, int], without_counts: tuple[int, int]
) -> None:
    arms = Arms(*with_counts, *without_counts)
    lift = measure_lift("over_1", [arms])
    assert -1 <= lift.low <= lift.difference <= lift.high <= 1
    mirrored = measure_lift("over_1", [Arms(*without_counts, *with_counts)])
    assert mirrored.difference == pytest.approx(-lift.difference)
    assert (mirrored.low, mirrored.high) == pytest.approx((-lift.high, -lift.low))
    assert (lift.verdict == "harms") is (difference_interval([arms], ERROR_RATE)[2] < 0)
    assert difference_interval([arms], ERROR_RATE / 2)[2] >= lift.high, "more certainty is a wider interval"
    if with_counts[1] < with_counts[0]:
        better = measure_lift("over_1", [replace(arms, with_good=with_counts[1] + 1)])
        assert better.difference >= lift.difference


@pytest.mark.parametrize(
    ("arms", "verdict"),
    [
        (Arms(), "not enough evidence"),
        (Arms(40, 0, 0, 0), "not enough evidence"),  # nothing to compare with
        (Arms(4, 0, 1, 1), "not enough evidence"),
        (Arms(8, 0, 4, 4), "harms"),
        (Arms(40, 10, 10, 9), "harms"),
        (Arms(10, 10, 10, 0), "helps"),
        (Arms(40, 28, 10, 7), "not enough evidence"),  # no difference was seen, but one of any size could be there
        (Arms(2000, 1000, 500, 250), "makes no difference"),
        (Arms(40, 20, 10, 7), "not enough evidence"),  # what chance does at one of many looks
    ],
)
def test_verdicts(arms: Arms, verdict: str) -> None:
    assert measure_lift("over_1", [arms]).verdict == verdict


def test_the_interval_by_its_numbers() -> None:
    assert difference_interval([Arms(9, 9, 1, 0)], 0.1) == pytest.approx((0.5758, -0.2093, 1.0), abs=1e-4)
    assert difference_interval([Arms(40, 10, 10, 9)], 0.05) == pytest.approx((-0.5714, -1.0, -0.1244), abs=1e-4)


def test_runs_with_another_probability_are_a_stratum_of_their_own() -> None:
    """Work got easier, and at the same time more runs went without: all of them together would look like harm."""
    hard, easy = Arms(90, 27, 10, 3), Arms(50, 45, 50, 45)
    assert measure_lift("o", [Arms(140, 72, 60, 48)]).verdict == "harms"
    lift = measure_lift("o", [hard, easy])
    assert lift.verdict == "not enough evidence"
    assert (lift.with_runs, lift.with_good, lift.without_runs, lift.without_good) == (140, 72, 60, 48)
    assert lift.difference == pytest.approx(0, abs=0.02)


@given(st.floats(0, 1), st.integers(0, 10**6))
@settings(deadline=None)
def test_a_run_always_draws_the_same(share: float, run: int) -> None:
    first = is_withheld(f"ses_{run}", "over_1", share)
    assert first is is_withheld(f"ses_{run}", "over_1", share)
    assert not is_withheld(f"ses_{run}", "over_1", 0.0)
    assert is_withheld(f"ses_{run}", "over_1", 1.0)
    if first:
        assert is_withheld(f"ses_{run}", "over_1", min(1.0, share + 0.1))
