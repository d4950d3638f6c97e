"""Confidence, bands, Wilson's bound and phases (SPEC 2.5, 2.6)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model import Band, CalibrationCheck
from engine.prediction.twin import band_of, confidence_of, phase_of, urgency_of
from engine.statistics import wilson_lower_bound

NOW = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
SHARE = st.floats(0, 1)


def same(score: float) -> float:
    return score


@pytest.mark.parametrize(
    ("confidence", "band"),
    [
        (0.0, Band.DISCARDED),
        (0.299999, Band.DISCARDED),
        (0.3, Band.CARD),
        (0.599999, Band.CARD),
        (0.6, Band.SUGGESTED),
        (0.799999, Band.SUGGESTED),
        (0.8, Band.ACT),
        (1.0, Band.ACT),
    ],
)
def test_bands_include_their_lower_end(confidence: float, band: Band) -> None:
    assert band_of(confidence) is band


def test_the_four_weights() -> None:
    for term, weight in (("twin", 0.4), ("pattern", 0.25), ("urgency", 0.2), ("time", 0.15)):
        terms = dict.fromkeys(("twin", "pattern", "urgency", "time"), 0.0) | {term: 1.0}
        assert confidence_of(**terms, phase=1, calibrate=same).total == pytest.approx(weight)  # type: ignore[arg-type]


def test_a_sum_that_is_a_boundary_in_arithmetic_is_one_in_the_band() -> None:
    for score, band in ((0.3, Band.CARD), (0.6, Band.SUGGESTED), (0.8, Band.ACT)):
        parts = confidence_of(twin=score, pattern=score, urgency=score, time=score, phase=1, calibrate=same)
        assert band_of(parts.total) is band


@given(SHARE, SHARE, SHARE, SHARE, st.sampled_from([0, 1, 2]), st.floats(-2, 2))
def test_confidence_stays_in_its_range(
    twin: float, pattern: float, urgency: float, time: float, phase: int, shift: float
) -> None:
    parts = confidence_of(
        twin=twin, pattern=pattern, urgency=urgency, time=time, phase=phase, calibrate=lambda score: score + shift
    )
    assert 0 <= parts.total <= 1


@pytest.mark.parametrize(("approved", "decided"), [(11, 11), (19, 20), (26, 28)])
def test_enough_approvals_of_like_cards(approved: int, decided: int) -> None:
    assert wilson_lower_bound(approved, decided) >= 0.8


@pytest.mark.parametrize(("approved", "decided"), [(0, 0), (10, 10), (18, 19), (25, 27), (18, 20), (25, 28)])
def test_not_enough_approvals_of_like_cards(approved: int, decided: int) -> None:
    assert wilson_lower_bound(approved, decided) < 0.8


@given(st.integers(1, 400), st.data())
def test_wilson_grows_with_approvals_and_never_passes_the_share(decided: int, data: st.DataObject) -> None:
    approved = data.draw(st.integers(0, decided))
    bound = wilson_lower_bound(approved, decided)
    assert 0 <= bound <= approved / decided
    assert wilson_lower_bound(0, decided) == 0
    assert wilson_lower_bound(approved + 1, decided + 1) >= bound
    assert wilson_lower_bound(approved, decided + 1) <= bound
    if approved:
        assert wilson_lower_bound(approved - 1, decided) <= bound


def test_urgency_is_age_against_the_usual_wait() -> None:
    usual = timedelta(hours=4)
    waited = [timedelta(0), timedelta(hours=1), timedelta(hours=4), timedelta(days=9), timedelta(hours=-1)]
    assert [urgency_of(NOW - age, NOW, usual) for age in waited] == [0.0, 0.25, 1.0, 1.0, 0.0]
    assert urgency_of(None, NOW, usual) == 0.5


@pytest.mark.parametrize(
    ("decisions", "held_out", "holds", "number"),
    [(130, 100, True, 2), (130, 99, True, 1), (130, 100, False, 1), (29, 100, True, 0)],
)
def test_phase_2_needs_a_calibration_that_holds(decisions: int, held_out: int, holds: bool, number: int) -> None:
    assert phase_of(decisions, lambda: CalibrationCheck(held_out, holds, "measured")).number == number
