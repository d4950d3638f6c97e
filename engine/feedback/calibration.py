"""Calibration of confidence on the operator's own decisions (SPEC 2.5, 2.6, 8.6).

Until a calibrator is fitted there is the one that changes nothing. It never claims to hold, which keeps phase 2 out
of reach: a score that nobody compared with what happened justifies no threshold.
"""

from __future__ import annotations

from engine.values import CalibrationCheck

HELD_OUT_NEEDED = 100
"""Phase 2 needs a calibration that holds on at least so many held-out decisions (SPEC 2.6)."""


class IdentityCalibrator:
    """Passes every confidence through as it is."""

    def apply(self, score: float) -> float:
        """`score` itself; in [0, 1]."""
        return score

    def check(self) -> CalibrationCheck:
        """Never holds: nothing was fitted, so there is nothing to hold out decisions from."""
        return CalibrationCheck(
            held_out=0,
            holds=False,
            reason=f"confidence is not calibrated yet; phase 2 needs that on {HELD_OUT_NEEDED} held-out decisions",
        )
