"""How far the operator's decisions carry (SPEC 2.6). Derived from what is stored, never configured. Pure."""

from __future__ import annotations

from collections.abc import Callable

from engine.model import CalibrationCheck, Phase

TWIN_FROM = 30
"""Phase 1 begins with this many decisions of the operator."""

HELD_OUT_FROM = 100
"""Phase 2 needs a calibration that holds on this many held-out decisions."""


def phase_of(decisions: int, check: Callable[[], CalibrationCheck]) -> Phase:
    """The phase, and in words what comes next. How far it is to phase 1 is said in one place: `Phase.learning`."""
    if decisions < TWIN_FROM:
        return Phase(0, decisions, f"the Twin starts after {TWIN_FROM} of your decisions", TWIN_FROM)
    calibration = check()  # not before: it loads the Twin
    if calibration.holds and calibration.held_out >= HELD_OUT_FROM:
        return Phase(2, decisions, f"its calibration holds on {calibration.held_out} held-out decisions")
    return Phase(1, decisions, f"the Twin has {decisions} decisions to learn from; {calibration.reason}")
