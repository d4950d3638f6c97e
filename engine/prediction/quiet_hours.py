"""Quiet hours (SPEC 7.3) and spans that do not count them (SPEC 2.7): plain functions over time.

Hours are those of the wall clock, so an hour that the clocks skip or repeat is quiet or not as the clock shows it.
"""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta, tzinfo


def is_quiet(local: datetime, start: int, end: int) -> bool:
    """Is this local time in quiet hours from `start`:00 (included) to `end`:00 (not)? Equal hours: never."""
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


def add_active(instant: datetime, span: timedelta, zone: tzinfo, start: int, end: int) -> datetime:
    """The instant (UTC) by which `span` has passed since `instant`, not counting quiet hours.

    Only real time counts: an hour that the clocks repeat counts twice, one that they skip not at all.
    """
    if start == end:
        return instant.astimezone(UTC) + span
    now, left = instant.astimezone(UTC), span
    while True:
        if is_quiet(now.astimezone(zone), start, end):
            now = _quiet_end(now, zone, start, end)
            continue
        until = next_hour(now, start, zone)
        if now + left <= until:
            return now + left
        left -= until - now
        now = until
        if not is_quiet(now.astimezone(zone), start, end):
            # The clocks skipped the whole of the quiet hours; go on from here.
            continue


def _quiet_end(now: datetime, zone: tzinfo, start: int, end: int) -> datetime:
    while is_quiet(now.astimezone(zone), start, end):
        now = next_hour(now, end, zone) if end != start else now
    return now
