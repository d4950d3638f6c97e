"""Decides when notifications are sent (SPEC 10.2). Pure.

Low ones are collected and sent as one. In quiet hours only urgent ones are sent; the rest follows in the morning. A
surface that fails is tried again at growing intervals, for a day.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from engine.api.notify.forms import Urgency
from engine.api.notify.outbox import NotificationRow
from engine.frozen import frozen

BACKOFF_S = (30.0, 120.0, 600.0, 1800.0, 3600.0)
"""Seconds until the next attempt, by the number of failures in a row; the last value for all that follow."""

MAX_TRIES = 8
"""Attempts for one notification."""

MAX_AGE = timedelta(hours=24)
"""A notification that was not sent by then is given up; a fact that was not read by then is skipped."""

QUIET_POLL_S = 60.0
"""Seconds until the next check whether quiet hours are over."""

MAX_BATCH = 50
"""Notifications that are sent as one at most."""


@frozen
class DeliveryPlan:
    """Rows to send now as one, or the seconds after which to look again; None when nothing waits."""

    batch: tuple[NotificationRow, ...] = ()
    wait: float | None = None


def schedule(urgency: Urgency, now: datetime, *, quiet: bool, window: timedelta) -> tuple[bool, datetime]:
    """Whether a new notification is collected, and when it is due."""
    if urgency is Urgency.URGENT:
        return False, now
    if quiet:
        return True, now  # with all others of the night, as soon as it is over
    if urgency is Urgency.LOW and window > timedelta(0):
        return True, now + window
    return False, now


def plan_delivery(waiting: Sequence[NotificationRow], now: datetime, *, quiet: bool) -> DeliveryPlan:
    """Plan the next delivery on a surface: urgent ones first, then by age. Collected ones go together."""
    sendable = sorted((row for row in waiting if row.urgent or not quiet), key=lambda row: (not row.urgent, row.id))
    first = next((row for row in sendable if row.due_at <= now), None)
    if first is not None:
        together = [row for row in sendable if row.gathered] if first.gathered else [first]
        return DeliveryPlan(tuple(together[:MAX_BATCH]))
    waits = [(row.due_at - now).total_seconds() for row in sendable]
    if quiet and len(sendable) < len(waiting):
        waits.append(QUIET_POLL_S)
    return DeliveryPlan(wait=min(waits) if waits else None)


def backoff_s(failures: int) -> float:
    """Seconds that a surface is left alone after so many failures in a row."""
    return BACKOFF_S[min(failures, len(BACKOFF_S)) - 1]


def is_expired(tries: int, age: timedelta) -> bool:
    """Whether a notification of this age and number of attempts is given up."""
    return tries >= MAX_TRIES or age >= MAX_AGE
