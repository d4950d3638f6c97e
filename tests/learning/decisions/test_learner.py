"""Scores made before their outcome, and how far they may be believed (SPEC 2.6, 8.6)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.learning.decisions.calibration import (
    MIN_UNANIMOUS,
    KindCalibration,
    TwinCalibration,
    calibration_bound,
    calibration_error,
)
from engine.learning.decisions.decisions import CardFeatures, PastDecision
from engine.learning.decisions.learner import Habits
from engine.model import PartOfDay

# What decisions add up to: shrunk shares, levels, time, words (SPEC 2.3b, 2.5).


NOW = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
ASKED = CardFeatures(
    "run_tests", "koji-core", "/shop", "run_tests", frozenset({"run", "tests"}), PartOfDay.MORNING, False, NOW, 9
)
YES = PastDecision(ASKED, True, 1.0, 2.0)
NO = replace(YES, chosen=False)
CARDS = st.builds(
    replace,
    st.just(ASKED),
    kind=st.sampled_from(["run_tests", "lint", "bisect"]),
    channel=st.sampled_from(["koji-core", "garden"]),
    part=st.sampled_from(PartOfDay),
    weekend=st.booleans(),
)
ANY = st.builds(PastDecision, CARDS, st.booleans(), st.sampled_from([0.3, 0.5, 0.7, 0.8, 1.0]), st.just(2.0))


def of(past: Sequence[PastDecision]) -> Habits:
    habits = Habits()
    for decision in past:
        habits.add(decision)
    return habits


def test_time_relevance_knows_part_of_day_week_and_hour() -> None:
    evenings = [replace(NO, card=replace(ASKED, part=PartOfDay.EVENING, hour=20))] * 10
    weekends = [replace(NO, card=replace(ASKED, weekend=True))] * 10
    habits = of([YES] * 10 + evenings + weekends)
    assert habits.time_share(ASKED) > 0.6 > habits.time_share(replace(ASKED, part=PartOfDay.EVENING, hour=20))
    assert habits.time_share(ASKED) > 0.6 > habits.time_share(replace(ASKED, weekend=True, hour=None))
    early = of([YES] * 10 + [replace(NO, card=replace(ASKED, hour=6))] * 10)
    assert early.time_share(ASKED) > 0.6 > 0.4 > early.time_share(replace(ASKED, hour=6))


def test_the_usual_wait_is_learnt_from_five_approvals_on() -> None:
    assert of([YES] * 4).usual_wait("run_tests") is None
    assert of([YES] * 5).usual_wait("run_tests") == timedelta(hours=2)


@pytest.mark.parametrize(("there", "against", "named"), [(2, 0, None), (3, 0, "garden"), (3, 3, None)])
def test_a_channel_is_named_after_enough_approvals_there(there: int, against: int, named: str | None) -> None:
    garden = replace(YES, card=replace(ASKED, channel="garden"))
    habits = of([garden] * there + [replace(garden, chosen=False)] * against)
    assert habits.usual_channel("run_tests", ["koji-core", "garden"]) == named
    assert habits.usual_channel("run_tests", ["koji-core"]) is None


SCORE = st.floats(0, 1)
CASES = st.lists(st.tuples(st.sampled_from(["tests", "lint", "docs"]), SCORE, st.booleans()), max_size=60)


@pytest.mark.parametrize(("outcomes", "is_credible"), [(11, False), (12, True)])
def test_a_high_score_is_credible_after_twelve_that_came_true(outcomes: int, is_credible: bool) -> None:
    calibration = TwinCalibration()
    for _ in range(outcomes):
        calibration.learn(0.9, True)
    assert (calibration.calibrate(0.9) >= 0.8) is is_credible


def by_kind(cases: list[tuple[str, float, bool]]) -> KindCalibration:
    calibration = KindCalibration()
    for kind, score, yes in cases:
        calibration.learn(kind, score, yes)
    return calibration


@settings(max_examples=5, deadline=None)
@given(st.lists(st.tuples(SCORE, SCORE), min_size=60, max_size=60), SCORE)
def test_sixty_approvals_and_sixty_dismissals_are_told_apart_whatever_the_scores(
    scores: list[tuple[float, float]], score: float
) -> None:
    calibration = by_kind([case for up, down in scores for case in (("lint", up, True), ("docs", down, False))])
    assert calibration.calibrate("lint", score) > 0.9
    assert calibration.calibrate("docs", score) < 0.1
    assert calibration.base_rate == pytest.approx(0.5)


@settings(max_examples=60)
@given(CASES, st.sampled_from(["tests", "lint", "docs", "never seen"]), SCORE, SCORE)
def test_within_a_kind_a_higher_score_never_comes_out_lower(
    cases: list[tuple[str, float, bool]], kind: str, one: float, other: float
) -> None:
    calibration = by_kind(cases)
    low, high = (calibration.calibrate(kind, score) for score in sorted((one, other)))
    assert 0 < low <= high + 1e-9 < 1


@given(st.lists(SCORE, min_size=1, max_size=40), CASES, SCORE)
def test_a_low_score_never_lowers_what_was_always_approved(
    scores: list[float], others: list[tuple[str, float, bool]], score: float
) -> None:
    calibration = by_kind([*others, *(("bisect", one, True) for one in scores)])
    weight = sum(0.9592**number for number in range(len(scores)))  # each newer decision counts the others 4 % less
    share = (weight + 3 * calibration.base_rate) / (weight + 3)
    assert calibration.calibrate("bisect", score) >= share - 0.001


@pytest.mark.parametrize(("dismissed", "raised"), [(MIN_UNANIMOUS - 1, True), (MIN_UNANIMOUS, False)])
def test_a_high_score_raises_what_was_dismissed_only_until_a_dozen_agree(dismissed: int, raised: bool) -> None:
    calibration = by_kind([("lint", 0.3, False)] * dismissed)
    assert (calibration.calibrate("lint", 0.9) > calibration.calibrate("lint", 0.3)) is raised


def test_new_kinds_are_expected_to_go_as_the_first_decisions_on_kinds_did() -> None:
    cases = [(f"kind {number}", 0.5, number % 4 > 0) for number in range(40)]
    assert by_kind(cases).base_rate == pytest.approx(0.75, abs=0.03)
    known = [("kind 1", 0.5, False)] * 30  # only the first three decisions on a kind say something of new ones
    assert by_kind([*cases, *known]).base_rate == by_kind([*cases, *known[:2]]).base_rate


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
