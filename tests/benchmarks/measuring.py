"""Measures time for benchmarks: seconds of calls, the slowest of them, stalls of the process; prints tables."""

import math
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

BEAT_S = 0.005
"""Seconds that the thread of `measure_stalls` sleeps each time."""

T = TypeVar("T")


class Measured(Generic[T]):
    """The result of a call, and the seconds that it took: on the wall clock, and of the processor."""

    def __init__(self, work: Callable[[], T]):
        began, used = time.perf_counter(), time.process_time()
        self.result = work()
        self.seconds, self.processor = time.perf_counter() - began, time.process_time() - used


def time_call(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds that `work` takes. With the clock `time.thread_time`: seconds of the processor in this thread, which
    other programs on the machine do not change."""
    began = clock()
    work()
    return clock() - began


def time_in_turns(ways: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each way. They are called in turns, so that what else the machine does slows all of them down."""
    seconds = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            seconds[name].append(time_call(way))
    return seconds


def compute_p95(values: Sequence[float]) -> float:
    """The value below which 95 % of `values` lie; nearest rank."""
    return sorted(values)[math.ceil(95 * len(values) / 100) - 1]


def print_table(title: str, rows: Mapping[str, Sequence[float]], *, baseline: str = ""):
    """Print a table of rows of seconds. With `baseline`, also how many times the median of that row each median is."""
    print(f"\n{title:<52} fastest      p50      p95  slowest ms")
    for name, seconds in rows.items():
        median = statistics.median(seconds)
        cells = "".join(f"{value * 1e3:9.2f}" for value in (min(seconds), median, compute_p95(seconds), max(seconds)))
        ratio = f"   x {median / statistics.median(rows[baseline]):.2f}" if baseline else ""
        print(f"  {name:<50}{cells}{ratio}")


@contextmanager
def measure_stalls() -> Iterator[list[float]]:
    """Sleep `BEAT_S` seconds again and again in a thread. Yields the seconds by which it woke up too late each time, as
    a screen of this process would: at least one, however short the measured work is."""
    delays, over = [], threading.Event()

    def run():
        while not delays or not over.is_set():
            delays.append(time_call(lambda: time.sleep(BEAT_S)) - BEAT_S)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield delays
    finally:
        over.set()
        thread.join()
