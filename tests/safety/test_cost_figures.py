"""What the safety screen shows of costs: money by time, reserved money, and when a cap is reached (SPEC 3.4, 9.1)."""

from datetime import UTC, datetime, timedelta

import pytest

from engine.model import MICRO
from engine.safety.costs import measure_burn
from tests.safety.rails import Rails, make_approval

NOW = datetime(2026, 3, 10, 14, 12, tzinfo=UTC)


def test_reserved_and_spent_money_are_shown_apart(rails: Rails):
    rails.decide(make_approval(estimate=60_000))
    costs = rails.costs
    entry = rails.write(costs.reserve_call, "twin", 50_000)
    rails.write(costs.settle, entry, 10_000)
    burns = [(burn.window, burn.spent, sum(burn.buckets), burn.reserved) for burn in costs.history()]
    assert burns == [(window, 10_000, 10_000, 60_000) for window in ("hour", "day", "month")]
    assert costs.sum_settled_since(rails.clock.now() - timedelta(minutes=1)) == 10_000


def test_the_hour_has_five_minute_buckets_that_end_now():
    spent = [(NOW - timedelta(minutes=61), 9), (NOW - timedelta(hours=1), 1), (NOW - timedelta(minutes=3), 2), (NOW, 4)]
    hour = measure_burn("hour", NOW, spent, 0, MICRO)
    assert hour.buckets == (1, *[0] * 10, 6)
    assert (hour.spent, hour.elapsed) == (7, 12)


@pytest.mark.parametrize("month, days", [(2, 28), (12, 31)])
def test_a_month_has_a_bucket_for_each_day(month: int, days: int):
    assert len(measure_burn("month", NOW.replace(month=month), [], 0, MICRO).buckets) == days


def test_the_time_at_which_a_cap_is_reached_follows_from_the_recent_pace():
    day = measure_burn("day", NOW, [(NOW - timedelta(hours=1), 3 * MICRO)], MICRO, 10 * MICRO)
    assert day.pace == MICRO
    assert day.reached_at == NOW + timedelta(hours=6)
    late = measure_burn("day", NOW, [(NOW - timedelta(hours=1), 3 * MICRO)], MICRO, 14 * MICRO)
    assert late.reached_at is None  # midnight comes first
    assert measure_burn("day", NOW, [], MICRO, MICRO).reached_at == NOW
    assert measure_burn("day", NOW, [], 0, MICRO).reached_at is None
