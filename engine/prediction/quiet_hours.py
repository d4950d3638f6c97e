"""Quiet hours (SPEC 7.3), and the end of time spans that do not count them. Pure.

Hours are those of the local clock, also when it skips or repeats an hour.
"""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta, tzinfo


def is_quiet(local: datetime, start: int, end: int) -> bool:
    """Whether a local time is in the quiet hours from `start`:00 to before `end`:00. Equal hours mean never."""
    if start <= end:
        return start <= local.hour < end
    return local.hour >= start or local.hour < end


def next_hour(instant: datetime, hour: int, zone: tzinfo) -> datetime:
    """The first instant after `instant` (UTC) at which the wall clock comes to `hour`:00.

    On the day the clocks skip that hour, the moment they change.
    """
    local = instant.astimezone(zone)
    for days in range(3):
        day = local.date() + timedelta(days=days)
        for fold in (0, 1):
            candidate = datetime.combine(day, time(hour, fold=fold), tzinfo=zone).astimezone(UTC)
            if candidate > instant:
                return candidate
    raise AssertionError("a clock comes to every hour within three days")


def add_active_time(instant: datetime, span: timedelta, zone: tzinfo, start: int, end: int) -> datetime:
    """The instant (UTC) when `span` without quiet hours has passed since `instant`.

    Real time counts: an hour that the clock repeats counts twice, one that it skips not at all.
    """
    now, remaining = instant.astimezone(UTC), span
    if start == end:
        return now + remaining
    while True:
        if is_quiet(now.astimezone(zone), start, end):
            now = next_hour(now, end, zone)
            continue
        until = next_hour(now, start, zone)
        if now + remaining <= until:
            return now + remaining
        remaining -= until - now
        now = until
