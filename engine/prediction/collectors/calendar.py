"""The signal `calendar` (SPEC 2.1): a meeting that comes up is something to prepare for. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from engine.git.calendars import AHEAD, Meeting, nearest
from engine.model import Signal
from engine.model.words import plain, span
from engine.prediction.collectors import signal


def calendar_signal(meetings: Sequence[Meeting] | None = None, now: datetime | None = None) -> Signal:
    """1 for a meeting that begins now, evenly less to 0 in four hours; `meetings` None when no calendar is named."""
    if meetings is None or now is None:
        return signal("calendar", 0.0, "no calendar configured")
    one = nearest(meetings, now)
    if one is None:
        return signal("calendar", 0.0, f"no meeting within {span(AHEAD)}")
    wait = one.begins - now
    return signal("calendar", 1.0 - wait / AHEAD, f"{plain(one.name, 50)} in {span(wait)}")
