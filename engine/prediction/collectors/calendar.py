"""The signal `calendar` (SPEC 2.1): a meeting that comes up is something to prepare for. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from engine.prediction.collectors import signal
from engine.prediction.words import plain, span
from engine.values import Signal

AHEAD = timedelta(hours=4)
"""A meeting that begins now weighs all, one in four hours nothing."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """One occurrence: `begins` in the operator's own zone; `before` when the same was held last, None if never."""

    name: str
    begins: datetime
    before: datetime | None = None


def nearest(meetings: Sequence[Meeting], now: datetime) -> Meeting | None:
    """The next one that has not begun, within `AHEAD`."""
    coming = [one for one in meetings if now <= one.begins < now + AHEAD]
    return min(coming, key=lambda one: (one.begins, one.name), default=None)


def calendar_signal(meetings: Sequence[Meeting] | None = None, now: datetime | None = None) -> Signal:
    """1 for a meeting that begins now, evenly less to 0 in four hours; `meetings` None when no calendar is named."""
    if meetings is None or now is None:
        return signal("calendar", 0.0, "no calendar configured")
    one = nearest(meetings, now)
    if one is None:
        return signal("calendar", 0.0, f"no meeting within {span(AHEAD)}")
    wait = one.begins - now
    return signal("calendar", 1.0 - wait / AHEAD, f"{plain(one.name, 50)} in {span(wait)}")
