"""Time: the clock that services get as an argument, the days and months of costs, parts of the day (SPEC 2.1), and
quiet hours (SPEC 7.3).

Services never ask the operating system for the time, only their `Clock`. Tests and simulations pass a `FakeClock`, so
that a month passes in seconds in the same code.

Costs are counted by `Windows`; in quiet hours nothing runs by itself (`is_quiet`).
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, date, datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Protocol

from engine.frozen import frozen


class Clock(Protocol):
    """The source of time of a service."""

    def now(self) -> datetime:
        """The present instant, aware, in UTC."""

    def local(self) -> datetime:
        """The present instant in the operator's own time zone, aware (quiet hours, calendar days)."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back. Only differences have a meaning."""


def in_utc(instant: datetime) -> datetime:
    """An instant in UTC. One without a time zone is in UTC already."""
    return instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC)


def format_instant(instant: datetime) -> str:
    """An instant as `2026-01-05T09:30:00Z`; with microseconds only if they are not 0."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


class MachineZone(tzinfo):
    """The machine's own time zone with all its daylight-saving changes.

    `datetime.astimezone()` returns a time zone with the fixed offset of that instant, so midnight computed from it is
    an hour wrong on days when the clocks change. This class asks the C library for the offset of each instant.
    """

    def _stamp(self, moment: datetime | None) -> float:
        if moment is None:
            return time.time()
        # `timestamp` of a naive datetime takes it as machine time, including its `fold`.
        return moment.replace(tzinfo=None).timestamp()

    def utcoffset(self, moment: datetime | None) -> timedelta:
        return timedelta(seconds=time.localtime(self._stamp(moment)).tm_gmtoff)

    def dst(self, moment: datetime | None) -> timedelta | None:
        return None

    def tzname(self, moment: datetime | None) -> str:
        return time.localtime(self._stamp(moment)).tm_zone

    def fromutc(self, moment: datetime) -> datetime:
        instant = moment.replace(tzinfo=UTC)
        wall = instant.astimezone().replace(tzinfo=None)
        second_time = wall.timestamp() != instant.timestamp()
        return wall.replace(tzinfo=self, fold=int(second_time))


class SystemClock:
    """The real clock. `zone` is the operator's zone, by default that of the machine."""

    def __init__(self, zone: tzinfo | None = None) -> None:
        self._zone = zone if zone is not None else MachineZone()

    def now(self) -> datetime:
        return datetime.now(UTC)

    def local(self) -> datetime:
        return datetime.now(UTC).astimezone(self._zone)

    def monotonic(self) -> float:
        return time.monotonic()


class FakeClock:
    """A clock that changes only by `advance`. Safe to use from any thread."""

    def __init__(self, start: datetime, zone: tzinfo = UTC) -> None:
        self._now = start.astimezone(UTC)
        self._zone = zone
        self._elapsed = 0.0
        self._lock = threading.Lock()

    def now(self) -> datetime:
        return self._now

    def local(self) -> datetime:
        return self._now.astimezone(self._zone)

    def monotonic(self) -> float:
        return self._elapsed

    def advance(self, span: timedelta) -> None:
        """Move forward by `span`."""
        with self._lock:
            self._now += span
            self._elapsed += span.total_seconds()


HOUR = timedelta(hours=1)


@frozen
class Windows:
    """The instants (UTC) at which the present hour, day and month begin, included. The hour slides: it ends now."""

    hour: datetime
    day: datetime
    month: datetime


def find_windows(local: datetime) -> Windows:
    """The windows at a local time. Its tzinfo must know the clock changes of the zone, as a ZoneInfo does.

    Midnight is a time of the wall clock, so a day may have 23 or 25 hours. If midnight does not exist, the day begins
    with the clock change.
    """
    today, zone = local.date(), local.tzinfo
    return Windows(
        hour=local.astimezone(UTC) - HOUR,
        day=find_midnight(today, zone),
        month=find_midnight(today.replace(day=1), zone),
    )


def find_midnight(day: date, zone: tzinfo | None) -> datetime:
    """The instant (UTC) at which a day begins in a zone."""
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)


def is_quiet(local: datetime, start: int, end: int) -> bool:
    """Whether a local time is in the quiet hours from `start`:00 to before `end`:00. Equal hours mean never."""
    if start <= end:
        return start <= local.hour < end
    return local.hour >= start or local.hour < end


class PartOfDay(StrEnum):
    """The parts of the day: morning review, afternoon deep work, evening summary (SPEC 2.1), and night."""

    MORNING = "morning"  # 05:00-11:59
    AFTERNOON = "afternoon"  # 12:00-17:59
    EVENING = "evening"  # 18:00-22:59
    NIGHT = "night"  # 23:00-04:59


def part_of_day(local: datetime) -> PartOfDay:
    """The part of the day of a local time."""
    if 5 <= local.hour < 12:
        return PartOfDay.MORNING
    if 12 <= local.hour < 18:
        return PartOfDay.AFTERNOON
    if 18 <= local.hour < 23:
        return PartOfDay.EVENING
    return PartOfDay.NIGHT


def is_weekend(local: datetime) -> bool:
    """Whether a local time is on a Saturday or Sunday."""
    return local.weekday() >= 5


QUARTER = timedelta(minutes=15)
"""The step in which quiet hours are counted."""


def add_active_time(instant: datetime, span: timedelta, zone: tzinfo, start: int, end: int) -> datetime:
    """The instant (UTC) at which `span` has passed since `instant`, not counting quiet hours.

    Real time counts: an hour that the clock repeats counts twice, and an hour that it skips does not count. The offsets
    of all zones are whole quarters of an hour, so no change falls within a quarter.
    """
    now, remaining = instant.astimezone(UTC), span
    while True:
        step = QUARTER - timedelta(seconds=now.timestamp() % QUARTER.total_seconds())
        if not is_quiet(now.astimezone(zone), start, end):
            if remaining <= step:
                return now + remaining
            remaining -= step
        now += step
