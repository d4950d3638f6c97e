"""Scores made before their outcome, and how far they may be believed (SPEC 2.6, 8.6)."""

from __future__ import annotations

import random

import pytest

from engine.calibration import CARE, Calibration, calibration_bound, calibration_error


def fitted(truth: float, score: float, many: int, calibration: Calibration | None = None) -> Calibration:
    calibration = calibration or Calibration(level=0.5, slope=0.5, places=True)
    for number in range(many):
        calibration.learn(score, (number * truth) % 1 + truth >= 1)
    return calibration


def test_before_the_first_case_scores_up_to_care_stay_as_they_are() -> None:
    calibration = Calibration(level=0.0, slope=0.0, places=True)
    assert [calibration.apply(score) for score in (0.1, 0.5, CARE)] == pytest.approx([0.1, 0.5, CARE])
    assert calibration.apply(0.95) == CARE


@pytest.mark.parametrize(("cases", "believed"), [(11, False), (12, True)])
def test_twelve_that_came_true_make_a_high_score_believed(cases: int, believed: bool) -> None:
    calibration = Calibration(level=0.0, slope=0.0, places=False)
    for _ in range(cases):
        calibration.learn(0.9, True)
    assert (calibration.apply(0.9) >= 0.8) is believed


@pytest.mark.parametrize(("truth", "score"), [(0.25, 0.5), (0.75, 0.4), (0.5, 0.9)])
def test_what_was_off_is_put_right(truth: float, score: float) -> None:
    assert fitted(truth, score, 200).apply(score) == pytest.approx(truth, abs=0.05)


@pytest.mark.parametrize(("truth", "believed"), [(0.875, 0.875), (0.8125, 0.8125), (0.625, CARE)])
def test_after_many_outcomes_a_high_score_is_believed_as_far_as_it_came_true(truth: float, believed: float) -> None:
    only_the_cap = Calibration(level=0.0, slope=0.0, places=False)
    assert fitted(truth, 0.95, 200, only_the_cap).apply(0.95) == pytest.approx(believed, abs=0.005)


def test_a_state_is_restored_whole() -> None:
    one = fitted(0.3, 0.6, 50)
    other = Calibration(level=0.5, slope=0.5, places=True)
    other.restore(one.state())
    assert other.state() == one.state()
    assert other.apply(0.42) == one.apply(0.42)


def test_the_error_is_the_weighted_distance_of_the_bins() -> None:
    assert calibration_error([0.25, 0.25, 0.25, 0.25], [True, False, False, False]) == 0
    assert calibration_error([0.9, 0.9, 0.1, 0.1], [False, True, False, False]) == pytest.approx(0.25)
    assert calibration_error([], []) == 0


def test_perfectly_calibrated_scores_stay_below_the_bound_in_about_95_of_100_cases() -> None:
    chance = random.Random(1)
    scores = [chance.random() for _ in range(150)]
    bound = calibration_bound(scores)
    below = sum(calibration_error(scores, [chance.random() < score for score in scores]) <= bound for _ in range(400))
    assert 0.9 <= below / 400 <= 0.99
