"""How fast money goes (SPEC 3.4, 9.1): the pure part. Buckets of a window, the pace of late, when the cap comes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from itertools import accumulate

from engine.model import Burn
from engine.safety import cost

HOUR = timedelta(hours=1)
STEP = timedelta(minutes=5)
OF_LATE = {"hour": timedelta(minutes=15), "day": timedelta(hours=3), "month": timedelta(days=7)}
"""The span whose spending is the pace of a window; it may begin before the window does."""

Spent = tuple[datetime, int]
"""A settled price: when, and micro-dollars."""


def edges(window: str, local: datetime) -> list[datetime]:
    """Where the buckets of `window` begin and the last one ends, in UTC.

    The hour ends now; day and month end at local midnight, so a day of 23 or 25 hours has as many buckets.
    """
    begin = cost.windows(local)
    if window == "hour":
        return [begin.hour + number * STEP for number in range(13)]
    today = local.date()
    if window == "day":
        end = _midnight(today + timedelta(days=1), local)
        steps = -(-(end - begin.day) // HOUR)
        return [*(begin.day + number * HOUR for number in range(steps)), end]
    first = today.replace(day=1)
    days = (first.replace(day=28) + timedelta(days=4)).replace(day=1) - first
    return [_midnight(first + timedelta(days=number), local) for number in range(days.days + 1)]


def burn(window: str, local: datetime, spent: Sequence[Spent], reserved: int, cap: int) -> Burn:
    """The window as it burns. `spent` are settled prices, oldest first, at least since the window began and for the
    span of its pace; others do not matter."""
    now, marks = local.astimezone(UTC), edges(window, local)
    buckets = [0] * (len(marks) - 1)
    for at, amount in spent:
        if at >= marks[0]:
            buckets[min(bisect_right(marks, at), len(buckets)) - 1] += amount
    span = OF_LATE[window]
    late = sum(amount for at, amount in spent if now - span < at)
    total, pace = sum(buckets), int(late / (span / HOUR))
    if window == "hour":
        reached = _sliding(now, [one for one in spent if one[0] >= marks[0]], reserved, cap, pace)
    else:
        reached = _at(now, cap - total - reserved, pace)
        reached = reached if reached is not None and reached < marks[-1] else None
    elapsed = sum(mark <= now for mark in marks[:-1])
    return Burn(window, marks[0], marks[-1], total, reserved, cap, tuple(buckets), elapsed, pace, reached)


def _at(now: datetime, left: int, pace: int) -> datetime | None:
    """When `left` is used up at `pace`; now when nothing is left, None when it never is."""
    if left <= 0:
        return now
    hours = left / pace if pace > 0 else float("inf")
    return now + hours * HOUR if hours < 24 * 366 else None


def _sliding(now: datetime, spent: Sequence[Spent], reserved: int, cap: int, pace: int) -> datetime | None:
    """The same for the sliding hour: what was spent leaves it an hour later, so the sum falls between payments."""
    counted = reserved + sum(amount for _, amount in spent)
    left_by = [0, *accumulate(amount for _, amount in spent)]
    leaves = [*(at + HOUR for at, _ in spent), now + HOUR]
    for gone, until in zip(left_by, leaves, strict=True):
        reached = _at(now, cap - counted + gone, pace)
        if reached is not None and reached <= until:
            return reached
    return None


def _midnight(day: date, local: datetime) -> datetime:
    return datetime.combine(day, time.min, tzinfo=local.tzinfo).astimezone(UTC)
