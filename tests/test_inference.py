"""Statistics: the interval of a difference by its numbers, and the error of stated probabilities."""

import random

import pytest

from engine.inference import Arms, compute_calibration_bound, compute_calibration_error, compute_difference_interval


def test_the_interval_of_a_difference_by_its_numbers():
    assert compute_difference_interval([Arms(9, 9, 1, 0)], 0.1) == pytest.approx((0.5758, -0.2093, 1.0), abs=1e-4)
    assert compute_difference_interval([Arms(40, 10, 10, 9)], 0.05) == pytest.approx((-0.5714, -1.0, -0.1244), abs=1e-4)
    assert compute_difference_interval([Arms(9, 9, 0, 0)], 0.1) == (0.0, -1.0, 1.0), "there is nothing to compare with"


def test_the_calibration_error_is_the_weighted_distance_of_the_bins():
    assert compute_calibration_error([0.25, 0.25, 0.25, 0.25], [True, False, False, False]) == 0
    assert compute_calibration_error([0.9, 0.9, 0.1, 0.1], [False, True, False, False]) == pytest.approx(0.25)
    assert compute_calibration_error([], []) == 0


def test_perfectly_calibrated_scores_are_below_the_bound_in_about_95_of_100_cases():
    chance = random.Random(1)
    scores = [chance.random() for _ in range(150)]
    bound = compute_calibration_bound(scores)
    below = sum(
        compute_calibration_error(scores, [chance.random() < score for score in scores]) <= bound for _ in range(400)
    )
    assert 0.9 <= below / 400 <= 0.99
