"""When what is sent: windows, quiet hours, back-off. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from engine.api.notify.forms import Urgency
from engine.api.notify.outbox import NotificationRow
from engine.api.notify.timing import (
    BACKOFF_S,
    MAX_AGE,
    MAX_BATCH,
    MAX_TRIES,
    QUIET_POLL_S,
    DeliveryPlan,
    backoff_s,
    is_expired,
    plan_delivery,
    schedule,
)

NOW = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
WINDOW = timedelta(minutes=5)


def item(number: int, *, urgent: bool = False, gathered: bool = False, due: float = 0) -> NotificationRow:
    due_at = NOW + timedelta(seconds=due)
    return NotificationRow(id=number, urgent=urgent, gathered=gathered, due_at=due_at)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("urgency", "quiet", "gathered", "minutes"),
    [
        (Urgency.LOW, False, True, 5),
        (Urgency.NORMAL, False, False, 0),
        (Urgency.URGENT, False, False, 0),
        (Urgency.LOW, True, True, 0),
        (Urgency.NORMAL, True, True, 0),
        (Urgency.URGENT, True, False, 0),
    ],
)
def test_an_entry(urgency: Urgency, quiet: bool, gathered: bool, minutes: int) -> None:
    assert schedule(urgency, NOW, quiet=quiet, window=WINDOW) == (gathered, NOW + timedelta(minutes=minutes))


def test_one_by_one_the_urgent_first() -> None:
    waiting = [item(1), item(2, urgent=True), item(3)]
    assert plan_delivery(waiting, NOW, quiet=False).batch == (waiting[1],)
    assert plan_delivery([waiting[0], waiting[2]], NOW, quiet=False).batch == (waiting[0],)


def test_gathered_ones_wait_for_the_window_of_the_first_and_go_together() -> None:
    waiting = [item(1, gathered=True, due=300), item(2, gathered=True, due=420)]
    assert plan_delivery(waiting, NOW + timedelta(seconds=299), quiet=False) == DeliveryPlan(wait=1.0)
    assert plan_delivery(waiting, NOW + timedelta(seconds=300), quiet=False).batch == tuple(waiting)


def test_one_digest_has_a_bound() -> None:
    waiting = [item(number, gathered=True) for number in range(MAX_BATCH + 3)]
    assert plan_delivery(waiting, NOW, quiet=False).batch == tuple(waiting[:MAX_BATCH])


def test_in_quiet_hours_only_what_is_urgent_goes() -> None:
    waiting = [item(1, gathered=True), item(2, urgent=True)]
    assert plan_delivery(waiting, NOW, quiet=True).batch == (waiting[1],)
    assert plan_delivery(waiting[:1], NOW, quiet=True) == DeliveryPlan(wait=QUIET_POLL_S)
    assert plan_delivery(waiting[:1], NOW, quiet=False).batch == (waiting[0],)


def test_a_failing_surface_is_left_alone_ever_longer() -> None:
    assert [backoff_s(failures) for failures in range(1, 7)] == [*BACKOFF_S, BACKOFF_S[-1]]


def test_when_it_is_given_up() -> None:
    assert not is_expired(MAX_TRIES - 1, MAX_AGE - timedelta(seconds=1))
    assert is_expired(MAX_TRIES, timedelta(0))
    assert is_expired(0, MAX_AGE)
