"""Drift: calibrated decisions show none, a changed taste is named, and too few say nothing."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.feedback.drift import FROM, OF, Stated, chance_of, drift


def as_stated(count: int, seed: int, kind: str = "run_tests") -> list[Stated]:
    """Decisions whose confidences come true."""
    draw = random.Random(seed)
    chances = [0.2 + 0.7 * draw.random() for _ in range(count)]
    return [Stated(kind, chance, draw.random() < chance) for chance in chances]


def test_below_the_least_number_nothing_is_said() -> None:
    found = drift(as_stated(FROM - 1, 1))
    assert (found.decisions, found.changed, found.surprise) == (FROM - 1, False, None)
    assert found.words.startswith("1 more decision on")
    assert drift(as_stated(FROM, 1)).surprise is not None


def test_confidence_that_comes_true_is_called_a_change_in_few_of_a_hundred() -> None:
    assert sum(drift(as_stated(OF, seed)).changed for seed in range(100)) <= 12


def test_a_taste_that_turned_is_named_with_what_was_usual_before() -> None:
    before = [Stated("garden", 0.8, number % 5 > 0) for number in range(60)]
    steady = as_stated(30, 3)
    turned = [Stated("garden", 0.8, number == 7) for number in range(20)]
    found = drift([*before, *itertools.chain.from_iterable(zip(steady, turned, strict=False)), *steady[20:]])
    [shift] = found.shifts
    assert found.changed
    assert "taste changed" in found.words
    assert (shift.kind, shift.approved, shift.decided, shift.before) == ("garden", 1, 20, 0.8)
    assert shift.expected == pytest.approx(16)


def test_what_was_always_so_is_no_change_but_yet_to_be_learnt() -> None:
    found = drift([Stated("garden", 0.6, number % 12 > 0) for number in range(OF + 40)])
    [shift] = found.shifts
    assert (shift.changed, found.changed) == (False, False)
    assert shift.before is not None
    assert shift.before >= 0.9
    assert "yet to learn" in found.words
    assert not drift([Stated("garden", 0.6, True)] * OF).changed  # nothing is known of before


def test_surprise_without_a_kind_is_told_as_such() -> None:
    decisions = [Stated(f"kind {number}", 0.9, number % 2 == 0) for number in range(OF)]
    assert not drift(decisions).changed  # a beginner's mistakes
    found = drift([*as_stated(60, 5), *decisions])
    assert found.changed
    assert not found.shifts
    assert found.surprise is not None
    assert found.high is not None
    assert found.surprise > found.high


def test_a_half_stated_hides_nothing() -> None:
    found = drift([Stated("garden", 0.5, False)] * OF)
    assert [one.kind for one in found.shifts] == ["garden"]  # the log-loss alone is blind here


@given(st.lists(st.floats(0.01, 0.99), min_size=1, max_size=12), st.data())
def test_the_chance_of_a_count_is_the_exact_one(confidences: list[float], data: st.DataObject) -> None:
    approved = data.draw(st.integers(0, len(confidences)))
    likely = [0.0] * (len(confidences) + 1)
    for outcome in itertools.product((False, True), repeat=len(confidences)):
        chance = 1.0
        for came, confidence in zip(outcome, confidences, strict=True):
            chance *= confidence if came else 1 - confidence
        likely[sum(outcome)] += chance
    expected = sum(one for one in likely if one <= likely[approved] * (1 + 1e-9))
    assert chance_of(confidences, approved) == pytest.approx(expected, rel=1e-3, abs=1e-6)
