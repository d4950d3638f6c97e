"""What scores are worth by their outcomes: those of the Twin (SPEC 2.6), and those of kinds of card (8.6)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.learning.decisions.calibration import KindCalibration, TwinCalibration

SCORE = st.floats(0, 1)
CASES = st.lists(st.tuples(st.sampled_from(["tests", "lint", "docs"]), SCORE, st.booleans()), max_size=60)
"""(kind, score, whether it was approved) of decisions."""


def learn_kinds(cases: list[tuple[str, float, bool]]) -> KindCalibration:
    """The calibration of kinds after these decisions."""
    calibration = KindCalibration()
    for kind, score, approved in cases:
        calibration.learn(kind, score, approved)
    return calibration


@pytest.mark.parametrize("outcomes, is_credible", [(11, False), (12, True)])
def test_a_high_score_is_credible_after_twelve_that_came_true(outcomes: int, is_credible: bool):
    calibration = TwinCalibration()
    for _ in range(outcomes):
        calibration.learn(0.9, True)
    assert (calibration.calibrate(0.9) >= 0.8) is is_credible


@settings(max_examples=60)
@given(CASES, st.sampled_from(["tests", "lint", "docs", "never seen"]), SCORE, SCORE)
def test_calibration_keeps_the_order_of_scores_within_a_kind(
    cases: list[tuple[str, float, bool]], kind: str, first: float, second: float
):
    calibration = learn_kinds(cases)
    low, high = (calibration.calibrate(kind, score) for score in sorted((first, second)))
    assert 0 < low <= high + 1e-9 < 1


@given(st.lists(SCORE, min_size=1, max_size=40), CASES, SCORE)
def test_a_low_score_never_lowers_a_kind_that_was_always_approved(
    scores: list[float], others: list[tuple[str, float, bool]], score: float
):
    calibration = learn_kinds([*others, *(("bisect", earlier_score, True) for earlier_score in scores)])
    weight = sum(0.9592**number for number in range(len(scores)))  # with each decision the others count 4 % less
    share = (weight + 3 * calibration.base_rate) / (weight + 3)
    assert calibration.calibrate("bisect", score) >= share - 0.001
