"""Measures time for benchmarks: seconds of a call, percentiles, stalls of the process; formats a row of a table."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Sequence

BEAT = 0.005
"""Seconds that the thread of `StallMeter` sleeps each time."""


def time_call(work: Callable[[], object]) -> float:
    """Seconds that `work` takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0..1) of `values` lie; nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(share * len(ordered) + 0.5) - 1))]


def format_row(label: str, values: Sequence[float], unit: str = "ms") -> str:
    """One line of a table: smallest, median, p95, largest."""
    return (
        f"{label:<44} min {min(values):8.1f}  median {statistics.median(values):8.1f}  "
        f"p95 {percentile(values, 0.95):8.1f}  max {max(values):8.1f} {unit}"
    )


class StallMeter:
    """A thread that sleeps `BEAT` seconds again and again. `delays` are the seconds by which it woke up too late, as a
    screen of this process would."""

    def __init__(self) -> None:
        self.delays: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> StallMeter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        self._measure_delay()  # also where what is measured is over at once
        while not self._over.is_set():
            self._measure_delay()

    def _measure_delay(self) -> None:
        self.delays.append(time_call(lambda: time.sleep(BEAT)) - BEAT)
