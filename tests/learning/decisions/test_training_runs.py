"""Which pairs are held back from training, how a model is measured on them, and when it may replace another (SPEC
8.4)."""

from datetime import UTC, datetime

from engine.learning.decisions.decisions import Preference
from engine.learning.decisions.training_runs import MIN_MEASURED, Agreement, may_replace, measure_agreement, split_pairs

NOW = datetime(2026, 1, 5, tzinfo=UTC)


def make_pair(number: int) -> Preference:
    return Preference(number, f"situation {number}", "run the tests → koji-core", "sum up → garden", NOW)


def test_about_a_fifth_of_the_situations_is_held_back_for_good():
    _, held_back = split_pairs(map(make_pair, range(500)))
    assert 70 <= len(held_back) <= 130
    _, held_back_later = split_pairs(map(make_pair, range(900)))
    assert set(held_back) <= set(held_back_later)


def test_agreement_counts_nearer_answers_and_half_of_the_ties():
    answers = ["run all tests → koji-core", "sum up the day → garden", "dream → research", None]
    measured = measure_agreement([make_pair(n) for n in range(4)], answers)
    assert measured == Agreement((1 + 0 + 0.5 + 0) / 4, 4, 1)


def test_a_new_model_must_answer_enough_and_agree_as_often():
    old = Agreement(0.6, 50)
    assert may_replace(Agreement(0.6, MIN_MEASURED), old)
    assert not may_replace(Agreement(0.59, 50), old)
    assert not may_replace(Agreement(1.0, MIN_MEASURED - 1), old)
    assert not may_replace(Agreement(0.0, 50, 46), Agreement(0.0, 50, 50))
