"""When notifications are sent (SPEC 10.2): collecting windows, quiet hours, urgent ones first."""

from datetime import timedelta
from typing import Any

import pytest

from engine.api.notify.outbox import MAX_BATCH_NOTIFICATIONS, QUIET_POLL_S, NotificationRow, plan_delivery
from tests.conftest import MONDAY_MORNING as NOW


def make_row(number: int, *, urgent: bool = False, collected: bool = False, due: float = 0) -> NotificationRow:
    """A notification that is due `due` seconds after `NOW`."""
    due_at = NOW + timedelta(seconds=due)
    return NotificationRow(id=number, urgent=urgent, is_collected=collected, due_at=due_at)  # type: ignore[call-arg]


NORMAL, URGENT = make_row(1), make_row(2, urgent=True)
COLLECTED, LATER = make_row(1, collected=True, due=300), make_row(2, collected=True, due=420)
MANY = [make_row(number, collected=True) for number in range(MAX_BATCH_NOTIFICATIONS + 3)]


@pytest.mark.parametrize(
    "waiting, after_s, quiet, batch, wait_s",
    [
        ([], 0, False, [], None),
        ([NORMAL, URGENT], 0, False, [URGENT], 0),
        ([NORMAL], 0, False, [NORMAL], 0),
        ([COLLECTED, LATER], 299, False, [], 1),
        ([COLLECTED, LATER], 300, False, [COLLECTED, LATER], 0),
        (MANY, 0, False, MANY[:MAX_BATCH_NOTIFICATIONS], 0),
        ([COLLECTED, URGENT], 300, True, [URGENT], 0),
        ([COLLECTED], 300, True, [], QUIET_POLL_S),
    ],
    ids=["none", "urgent first", "one", "window", "window over", "bound", "quiet, urgent", "quiet"],
)
def test_each_notification_is_sent_when_its_time_has_come(
    waiting: Any, after_s: int, quiet: bool, batch: Any, wait_s: float | None
):
    planned, seconds = plan_delivery(waiting, NOW + timedelta(seconds=after_s), quiet=quiet)
    assert list(planned) == batch
    assert seconds == wait_s
