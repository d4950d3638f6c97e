"""The windows of the cost caps, and the spending in them (SPEC 3.4, 9.1). Pure.

The hour slides; day and month begin at local midnight. `burn` computes the figures of a window for the safety screen.
Money is in micro-dollars.
"""

from __future__ import annotations

from bisect import bisect_right
from calendar import monthrange
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from math import ceil

from engine.frozen import frozen
from engine.model import Burn

HOUR = timedelta(hours=1)


@frozen
class Windows:
    """The instants (UTC) at which the three windows begin, included."""

    hour: datetime
    day: datetime
    month: datetime


def cost_windows(local: datetime) -> Windows:
    """The windows at a local time. Its tzinfo must know the clock changes of the zone, as a ZoneInfo does.

    Midnight is a time of the wall clock, so a day may have 23 or 25 hours. If midnight does not exist, the day begins
    with the clock change.
    """
    today = local.date()
    return Windows(local.astimezone(UTC) - HOUR, _midnight(today, local), _midnight(today.replace(day=1), local))


BUCKET_LENGTH = timedelta(minutes=5)
PACE_SPAN = {"hour": timedelta(minutes=15), "day": timedelta(hours=3), "month": timedelta(days=7)}
"""The span of time over which the pace of a window is measured. It may begin before the window."""

Spent = tuple[datetime, int]
"""A settled price: (time, micro-dollars)."""


def bucket_edges(window: str, local: datetime) -> list[datetime]:
    """The beginnings of the buckets of `window` and the end of the last one, in UTC.

    The hour ends now; day and month end at local midnight, so a day of 23 or 25 hours has as many buckets.
    """
    windows, today = cost_windows(local), local.date()
    if window == "hour":
        return [windows.hour + number * BUCKET_LENGTH for number in range(13)]
    if window == "day":
        end = _midnight(today + timedelta(days=1), local)
        hours = ceil((end - windows.day) / HOUR)
        return [*(windows.day + number * HOUR for number in range(hours)), end]
    _, days = monthrange(today.year, today.month)
    return [_midnight(today.replace(day=1) + timedelta(days=number), local) for number in range(days + 1)]


def burn(window: str, local: datetime, spent: Sequence[Spent], reserved: int, cap: int) -> Burn:
    """The burn rate of a window. `spent` are settled prices, oldest first, at least since the beginning of the window
    and of the span of its pace."""
    now, edges = local.astimezone(UTC), bucket_edges(window, local)
    buckets = [0] * (len(edges) - 1)
    for at, amount in spent:
        if at >= edges[0]:
            buckets[min(bisect_right(edges, at), len(buckets)) - 1] += amount
    span = PACE_SPAN[window]
    recent_spending = sum(amount for at, amount in spent if now - span < at)
    total, pace = sum(buckets), int(recent_spending / (span / HOUR))
    end = now + HOUR if window == "hour" else edges[-1]
    reached_at = _reached_at(now, cap - total - reserved, pace)
    reached_at = reached_at if reached_at is not None and reached_at < end else None
    elapsed = sum(mark <= now for mark in edges[:-1])
    return Burn(window, edges[0], edges[-1], total, reserved, cap, tuple(buckets), elapsed, pace, reached_at)


def _reached_at(now: datetime, remaining: int, pace: int) -> datetime | None:
    """When `remaining` is spent at `pace`; `now` if nothing remains, None for never."""
    if remaining <= 0:
        return now
    hours = remaining / pace if pace > 0 else float("inf")
    return now + hours * HOUR if hours < 24 * 366 else None


def _midnight(day: date, local: datetime) -> datetime:
    return datetime.combine(day, time.min, tzinfo=local.tzinfo).astimezone(UTC)
