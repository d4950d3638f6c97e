"""What is held back, and how a model is measured on it (SPEC 8.4)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.learning.decisions.training_examples import (
    MIN_MEASURED,
    Agreement,
    agreement,
    is_held_back,
    may_replace,
    similarity,
    split,
)
from engine.learning.decisions.training_lines import Preference

NOW = datetime(2026, 1, 5, tzinfo=UTC)


def pair(n: int, context: str = "", chosen: str = "run the tests → koji-core") -> Preference:
    return Preference(n, context or f"situation {n}", chosen, "sum up → garden", NOW)


def test_about_a_fifth_is_held_back_whatever_comes_later() -> None:
    first = [pair(n) for n in range(500)]
    _, apart = split(first)
    assert 70 <= len(apart) <= 130
    _, later = split([*first, *(pair(n) for n in range(500, 900))])
    assert set(apart) <= set(later)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("uvwxyz")), max_size=40))
def test_no_situation_stands_on_both_sides_and_none_changes_sides_later(drawn: list[tuple[str, str]]) -> None:
    every = [pair(n, context, chosen) for n, (context, chosen) in enumerate(drawn)]
    train, apart = split(every)
    assert sorted([*train, *apart], key=lambda one: one.id) == every
    for count in range(len(every)):
        trained_on = {one.context for one in split(every[:count])[0]}
        assert not trained_on & {one.context for one in apart}
    assert all(is_held_back(one.context) for one in apart)


def test_likeness_is_half_the_channel_half_the_words() -> None:
    assert similarity("run the tests → koji-core", "Run the tests → koji-core") == 1.0
    assert similarity("run the tests → garden", "run the tests → koji-core") == 0.5
    assert similarity("run tests → koji-core", "rest → koji-core") == 0.5
    assert similarity("run the tests → koji-core", "run → koji-core") == pytest.approx(0.5 + 0.5 / 3)


def test_agreement_counts_nearer_answers_ties_half_and_silence_none() -> None:
    answers = ["run all tests → koji-core", "sum up the day → garden", "dream → research", None]
    found = agreement([pair(n) for n in range(4)], answers)
    assert found == Agreement((1 + 0 + 0.5 + 0) / 4, 4, 1)


def test_a_new_model_must_be_measured_and_no_worse() -> None:
    old = Agreement(0.6, 50)
    assert may_replace(Agreement(0.6, MIN_MEASURED), old)
    assert not may_replace(Agreement(0.59, 50), old)
    assert not may_replace(Agreement(1.0, MIN_MEASURED - 1), old)
    assert not may_replace(Agreement(0.0, 50, 46), Agreement(0.0, 50, 50))
