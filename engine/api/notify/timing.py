"""When what is sent (SPEC 10.2). Pure.

Low ones wait for the like and go as one. In quiet hours only what is urgent goes; the rest goes in the morning, as one.
What a surface did not take is tried again, ever more seldom; after a day it is given up.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from engine.api.notify.matrix import Urgency
from engine.api.notify.outbox import NotificationRow
from engine.frozen import frozen

BACKOFF = (30.0, 120.0, 600.0, 1800.0, 3600.0)
"""Seconds until a surface that failed is tried again, by how often it failed in a row; the last for all that follow."""

TRIES = 8
"""So often one notification is tried."""

OLDEST = timedelta(hours=24)
"""What could not be delivered by then is given up; what was not read by then is not told at all."""

QUIET_LOOK = 60.0
"""Seconds after which it is looked again whether quiet hours are over."""

TOGETHER = 50
"""At most so many go as one."""


@frozen
class Plan:
    """What goes now, as one, and else after how many seconds to look again; None when nothing waits."""

    batch: tuple[NotificationRow, ...] = ()
    wait: float | None = None


def entry(urgency: Urgency, now: datetime, *, quiet: bool, window: timedelta) -> tuple[bool, datetime]:
    """Whether a new one is gathered, and when it is due."""
    if urgency is Urgency.URGENT:
        return False, now
    if quiet:
        return True, now  # with all others of the night, as soon as it is over
    if urgency is Urgency.LOW and window > timedelta(0):
        return True, now + window
    return False, now


def plan(waiting: Sequence[NotificationRow], now: datetime, *, quiet: bool) -> Plan:
    """What goes next to one surface: what is urgent first, then by age; a gathered one takes all gathered along."""
    sendable = sorted((row for row in waiting if row.urgent or not quiet), key=lambda row: (not row.urgent, row.id))
    first = next((row for row in sendable if row.due_at <= now), None)
    if first is not None:
        together = [row for row in sendable if row.gathered] if first.gathered else [first]
        return Plan(tuple(together[:TOGETHER]))
    waits = [(row.due_at - now).total_seconds() for row in sendable]
    if quiet and len(sendable) < len(waiting):
        waits.append(QUIET_LOOK)
    return Plan(wait=min(waits) if waits else None)


def pause(failures: int) -> float:
    """Seconds that a surface is left alone after it failed so often in a row."""
    return BACKOFF[min(failures, len(BACKOFF)) - 1]


def given_up(tries: int, age: timedelta) -> bool:
    """Whether a notification of this age that was tried so often is tried no further."""
    return tries >= TRIES or age >= OLDEST
