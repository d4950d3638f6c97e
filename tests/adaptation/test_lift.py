"""Lift: what is said of an effect, when nothing is said, and whether the interval holds what it claims."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.adaptation.lift import HARM, LEAST, Arms, harm_of, lift, withheld

COUNTS = st.tuples(st.integers(0, 120), st.integers(0, 120)).map(lambda one: (max(one), min(one)))
"""Runs, and how many of them were good."""


@given(COUNTS, COUNTS)
@settings(deadline=None)
def test_what_always_holds(told: tuple[int, int], untold: tuple[int, int]) -> None:
    found = lift("over_1", Arms(*told, *untold))
    assert -1 <= found.low <= found.difference <= found.high <= 1
    assert 0 <= found.harm <= 1
    mirrored = lift("over_1", Arms(*untold, *told))
    assert mirrored.harm == pytest.approx(1 - found.harm, abs=1e-9)
    assert mirrored.difference == pytest.approx(-found.difference)
    assert mirrored.low == pytest.approx(-found.high, abs=0.02)


@given(COUNTS, COUNTS)
@settings(deadline=None)
def test_one_more_good_run_with_it_never_speaks_for_harm(told: tuple[int, int], untold: tuple[int, int]) -> None:
    runs, good = told
    if good < runs:
        assert lift("o", Arms(runs, good + 1, *untold)).harm < lift("o", Arms(runs, good, *untold)).harm + 1e-12


@pytest.mark.parametrize(
    ("arms", "verdict"),
    [
        (Arms(), "not enough evidence"),
        (Arms(9, 0, 10, 10), "not enough evidence"),  # 10 an arm are the least
        (Arms(10, 0, 9, 9), "not enough evidence"),
        (Arms(10, 0, 10, 10), "harms"),
        (Arms(10, 10, 10, 0), "helps"),
        (Arms(10, 5, 10, 5), "not enough evidence"),  # no difference was seen, but one of any size could be there
        (Arms(2000, 1000, 2000, 1000), "makes no difference"),
    ],
)
def test_verdicts(arms: Arms, verdict: str) -> None:
    assert lift("over_1", arms).verdict == verdict


def test_harm_begins_above_nine_tenths() -> None:
    by_good = {good: lift("o", Arms(40, good, 40, 20)) for good in range(41)}
    for found in by_good.values():
        assert (found.verdict == "harms") is (found.harm > 0.9)
        assert (found.verdict == "helps") is (1 - found.harm > 0.9)
    last, first = (
        max(g for g, f in by_good.items() if f.harm > 0.9),
        min(g for g, f in by_good.items() if f.harm <= 0.9),
    )
    assert first == last + 1


def test_harm_is_exact() -> None:
    # P(X < Y) for X ~ Beta(1, 2), Y ~ Beta(2, 1): 5/6 by hand.
    assert lift("o", Arms(1, 0, 1, 1)).harm == pytest.approx(5 / 6)
    assert lift("o", Arms()).harm == pytest.approx(0.5)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    """The shares are drawn as the prior has them; then 95 % of the intervals hold the true difference."""
    chance, held, worlds = random.Random(20), 0, 2000
    known = cache(lambda good, without: lift("o", Arms(14, good, 10, without)))  # few counts come again and again
    for _ in range(worlds):
        true_with, true_without = chance.random(), chance.random()
        found = known(*(sum(chance.random() < p for _ in range(n)) for p, n in ((true_with, 14), (true_without, 10))))
        held += found.low <= true_with - true_without <= found.high
    assert held / worlds == pytest.approx(0.95, abs=0.015)  # three standard deviations


def test_planted_harm_is_found_and_what_is_good_is_kept() -> None:
    """300 sessions, a fifth of them without; 30 worlds each."""

    def worlds(share_with: float, share_without: float) -> list[str]:
        said = []
        for seed in range(30):
            chance = random.Random(seed)
            told = [chance.random() < share_with for _ in range(240)]
            untold = [chance.random() < share_without for _ in range(60)]
            said.append(lift("o", Arms(240, sum(told), 60, sum(untold))).verdict)
        return said

    assert worlds(0.5, 0.75).count("harms") >= 29
    good = worlds(0.75, 0.5)
    assert good.count("helps") >= 29
    assert good.count("harms") == 0
    assert worlds(0.7, 0.7).count("harms") <= 7, "one look at what makes no difference is wrong in a tenth of all cases"


def test_however_often_one_looks_what_helps_is_seldom_called_harmful() -> None:
    """A look after each of 200 sessions, 60 worlds: what harms is found early, what helps is left alone."""

    def ever(share_with: float, share_without: float) -> int:
        found = 0
        for seed in range(60):
            chance, arms = random.Random(f"world {seed}"), Arms()
            for number in range(200):
                if withheld(f"{seed}_{number}", "over_1", 0.2):
                    good = arms.without_good + (chance.random() < share_without)
                    arms = replace(arms, without_runs=arms.without_runs + 1, without_good=good)
                else:
                    good = arms.with_good + (chance.random() < share_with)
                    arms = replace(arms, with_runs=arms.with_runs + 1, with_good=good)
                if min(arms.with_runs, arms.without_runs) >= LEAST and harm_of(arms) > HARM:
                    found += 1
                    break
        return found

    assert ever(0.5, 0.75) >= 56
    assert ever(0.75, 0.6) <= 6
    assert ever(0.7, 0.7) <= 24


@given(st.floats(0, 1), st.integers(0, 10**6))
@settings(deadline=None)
def test_the_same_run_always_gets_the_same_answer(share: float, run: int) -> None:
    first = withheld(f"ses_{run}", "over_1", share)
    assert first is withheld(f"ses_{run}", "over_1", share)
    assert not withheld(f"ses_{run}", "over_1", 0.0)
    assert withheld(f"ses_{run}", "over_1", 1.0)
    if first:
        assert withheld(f"ses_{run}", "over_1", min(1.0, share + 0.1))


def test_a_fifth_goes_without_and_overlays_are_drawn_apart() -> None:
    runs = [f"ses_{number}" for number in range(5000)]
    one = {run for run in runs if withheld(run, "over_1", 0.2)}
    other = {run for run in runs if withheld(run, "over_2", 0.2)}
    assert len(one) / 5000 == pytest.approx(0.2, abs=0.02)
    assert len(one & other) / 5000 == pytest.approx(0.04, abs=0.01)


def test_counts_that_cannot_be_are_told() -> None:
    for wrong in (Arms(1, 2, 0, 0), Arms(0, 0, 1, -1)):
        with pytest.raises(ValueError, match="cannot be"):
            lift("o", wrong)
