"""The stopwatch of a session (SPEC 3.8)."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from engine.clock import FakeClock
from engine.execution.live_session import Stopwatch


class WatchedClock(FakeClock):
    """Calls `watch` whenever it is read."""

    watch: Callable[[], None] = staticmethod(lambda: None)

    def monotonic(self) -> float:
        self.watch()
        return super().monotonic()


def test_a_pause_ends_only_once_its_time_is_left_out():
    """Another thread that finds a stopwatch running again must find its seconds without the pause."""
    clock = WatchedClock(datetime(2026, 1, 5, 9, tzinfo=UTC))
    stopwatch = Stopwatch(clock, on_pause=lambda: None)
    states = []
    with stopwatch.pause():
        clock.advance(timedelta(minutes=5))
        clock.watch = lambda: states.append(stopwatch.is_paused)
    assert states == [True]
    assert (stopwatch.is_paused, stopwatch.seconds) == (False, 0.0)
