"""Days and quiet hours across midnight and changes of the clock (SPEC 7.3)."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.clock import add_active_time, find_windows, is_quiet
from tests.support import read_table

TABLE = read_table(__file__)


BERLIN, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")

CLOCK_CHANGES = [
    (BERLIN, datetime(2026, 3, 29, tzinfo=UTC)), (BERLIN, datetime(2026, 10, 25, tzinfo=UTC)),
    (NEW_YORK, datetime(2026, 3, 8, tzinfo=UTC)), (NEW_YORK, datetime(2026, 11, 1, tzinfo=UTC)),
]  # fmt: skip
"""Zones with a day on which their clocks change."""


@pytest.mark.parametrize("zone, day, hours", TABLE["days"])
def test_a_day_lasts_from_midnight_to_midnight(zone: str, day: tuple[int, int, int], hours: int):
    late = datetime(*day, 23, 59, 59, tzinfo=ZoneInfo(zone))
    begin = find_windows(late).day
    following = find_windows((late.astimezone(UTC) + timedelta(seconds=1)).astimezone(ZoneInfo(zone))).day
    assert following - begin == timedelta(hours=hours)
    assert begin.astimezone(ZoneInfo(zone)).strftime("%d %H:%M") == f"{day[2]:02} 00:00"
    assert find_windows(late).month.astimezone(ZoneInfo(zone)).strftime("%m-%d %H") == f"{day[1]:02}-01 00"


@pytest.mark.parametrize("time_of_day, quiet", TABLE["nights"])
def test_the_night_is_quiet(time_of_day: str, quiet: bool):
    local = datetime.fromisoformat(f"2026-01-05T{time_of_day}").replace(tzinfo=BERLIN)
    assert is_quiet(local, 23, 8) is quiet


def test_quiet_hours_may_lie_within_a_day_or_be_none():
    before_two = datetime(2026, 1, 5, 13, 59, tzinfo=BERLIN)
    assert is_quiet(before_two, 12, 14)
    assert not is_quiet(before_two, 14, 15)
    assert not is_quiet(before_two, 13, 13)


@settings(max_examples=60)
@given(
    st.sampled_from(CLOCK_CHANGES),
    st.integers(-36 * 4, 36 * 4),
    st.integers(1, 30 * 4),
    st.integers(0, 23),
    st.integers(0, 23),
)
def test_active_time_agrees_with_a_clock_that_steps_by_quarter_hours(
    change: tuple[ZoneInfo, datetime], offset: int, quarters: int, start: int, end: int
):
    zone, day = change
    begin = day + timedelta(minutes=15 * offset)
    now, remaining = begin, quarters
    while remaining > 0:
        if not is_quiet(now.astimezone(zone), start, end):
            remaining -= 1
        now += timedelta(minutes=15)
    assert add_active_time(begin, timedelta(minutes=15 * quarters), zone, start, end) == now
