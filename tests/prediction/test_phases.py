"""Phases are derived from what is stored (SPEC 2.6)."""

from __future__ import annotations

import pytest

from engine.model import CalibrationCheck
from engine.prediction.twin import phase_of
from tests.prediction.deciding import IdentityCalibrator


@pytest.mark.parametrize(("decisions", "number"), [(0, 0), (29, 0), (30, 1), (5000, 1)])
def test_thirty_decisions_and_no_calibration(decisions: int, number: int) -> None:
    phase = phase_of(decisions, IdentityCalibrator().check)
    assert phase.number == number
    assert phase.decisions == decisions


def test_it_says_what_is_missing() -> None:
    assert phase_of(28, IdentityCalibrator().check).learning == "Learning: 28 of 30"
    assert phase_of(0, IdentityCalibrator().check).learning == ""
    assert phase_of(30, IdentityCalibrator().check).learning == ""
    assert "not calibrated yet" in phase_of(30, IdentityCalibrator().check).reason


@pytest.mark.parametrize(
    ("decisions", "held_out", "holds", "number"),
    [(130, 100, True, 2), (130, 99, True, 1), (130, 100, False, 1), (29, 100, True, 0)],
)
def test_phase_2_needs_a_calibration_that_holds(decisions: int, held_out: int, holds: bool, number: int) -> None:
    assert phase_of(decisions, lambda: CalibrationCheck(held_out, holds, "measured")).number == number
