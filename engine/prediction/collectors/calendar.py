"""The signal `calendar` (SPEC 2.1). No calendar can be configured yet, so that it says, and weighs nothing."""

from __future__ import annotations

from engine.prediction.collectors import signal
from engine.values import Signal


def calendar_signal() -> Signal:
    """Relevance 0 until calendars can be read."""
    return signal("calendar", 0.0, "no calendar configured")
