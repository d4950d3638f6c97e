"""Runs the jobs of the engine when they are due (SPEC 7.2).

APScheduler checks all jobs twice a minute, and the time of each last run is stored. Therefore a job that was missed
several times runs once, also after the machine slept, and a changed interval counts at once. Nothing heavy is imported
before `start`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

from engine.clock import Clock
from engine.frozen import frozen
from engine.storage import state
from engine.storage.database import Database

log = logging.getLogger(__name__)

CHECK_INTERVAL_S = 30
"""Seconds between two checks of which jobs are due."""

LAST_RUN_PREFIX = "schedule.last_run."
"""Prefix of the keys in the state table: the time of the last run of each job."""

MAX_EARLY = timedelta(seconds=5)
"""A job may begin this much too early, because the next check comes half a minute later."""


@frozen
class ScheduledJob:
    """One job."""

    name: str
    interval: Callable[[], timedelta]
    """The time between two runs. It is asked at each check, because settings change."""
    action: Callable[[], object]
    has_work: Callable[[], bool] = lambda: True
    """Whether the job runs when it is due."""
    is_stored: bool = True
    """Whether the time of the last run is stored. It is not for jobs that run every minute, so that an idle engine
    writes nothing to the disk."""


def compute_next_run(now: datetime, last: datetime | None, interval: timedelta) -> datetime:
    """When a job is due: an interval after its last run, but never in the past. A job that never ran is due now. If the
    last run is in the future, because the clock was set back, it counts as now.
    """
    return now if last is None else max(now, min(last, now) + interval)


class Schedule:
    """Runs jobs in threads of its own between `start` and `close`."""

    def __init__(self, database: Database, clock: Clock, jobs: list[ScheduledJob]) -> None:
        self._database = database
        self._clock = clock
        self._jobs = {job.name: job for job in jobs}
        self._last_runs: dict[str, datetime | None] = {}
        self._lock = threading.Lock()
        self._running: set[str] = set()
        self._to_repeat: set[str] = set()
        """Running jobs that run once more after that."""
        self._scheduler: Any = None
        self._closing = threading.Event()
        self._pool = ThreadPoolExecutor(4, "clawpy-job")

    def start(self) -> None:
        """Import APScheduler and begin."""
        from apscheduler.schedulers.background import BackgroundScheduler

        # Without a handler its log would go to stderr and destroy the screen.
        logging.getLogger("apscheduler").addHandler(logging.NullHandler())
        self._scheduler = BackgroundScheduler(timezone="UTC")
        check = self._scheduler.add_job(
            self._start_due, "interval", seconds=CHECK_INTERVAL_S, coalesce=True, misfire_grace_time=None
        )
        self._scheduler.start()
        threading.Thread(target=self._watch_clock, args=(check,), name="clawpy-clock", daemon=True).start()
        self._start_due()

    def _watch_clock(self, check: Any) -> None:
        """Check at once when the clock was set back: APScheduler would wait for the time of the next check."""
        while not self._closing.wait(CHECK_INTERVAL_S):
            now = datetime.now(UTC)
            if check.next_run_time is not None and check.next_run_time - now > timedelta(seconds=2 * CHECK_INTERVAL_S):
                check.modify(next_run_time=now)

    def close(self) -> None:
        """Stop; waits for a running job. Safe to call twice."""
        with self._lock:
            scheduler, self._scheduler = self._scheduler, None
        self._closing.set()
        if scheduler is not None:
            scheduler.shutdown()
        self._pool.shutdown()

    @property
    def is_running(self) -> bool:
        """Whether it is between `start` and `close`."""
        return self._scheduler is not None

    def find_next_run(self, name: str) -> datetime:
        """When the job runs next."""
        return compute_next_run(self._clock.now(), self.read_last_run(name), self._jobs[name].interval())

    def read_last_run(self, name: str) -> datetime | None:
        """When the job last ran, also before a restart if that is stored."""
        if name not in self._last_runs:  # read once: only this engine writes it
            with self._database.read() as session:
                stored = state.get(session, LAST_RUN_PREFIX + name)
            # A run that began meanwhile has noted its own time, which stays.
            self._last_runs.setdefault(name, datetime.fromisoformat(stored) if stored else None)
        return self._last_runs[name]

    def run_soon(self, name: str) -> None:
        """Run the job as soon as a thread is free, whatever its interval. Does not wait. Thread-safe."""
        with self._lock:
            if name in self._running:
                self._to_repeat.add(name)
            else:
                self._begin(name)

    def run_if_due(self, name: str) -> None:
        """Run the job as soon as a thread is free, if it is due and does not run. Does not wait. Thread-safe."""
        last_run = self.read_last_run(name)
        is_due = self.find_next_run(name) - MAX_EARLY <= self._clock.now()
        with self._lock:
            has_run_meanwhile = self.read_last_run(name) != last_run
            if is_due and name not in self._running and not has_run_meanwhile:
                self._begin(name)

    def _begin(self, name: str) -> None:
        """Run the job in the pool, unless the schedule is closed. Call with the lock held."""
        if self._scheduler is not None:
            self._running.add(name)
            self._pool.submit(self._run_in_pool, name)

    def run(self, name: str) -> bool:
        """Run the job now in this thread, if it has work. Returns whether it ran. Errors are logged."""
        has_work = False
        try:
            has_work = self._jobs[name].has_work()
            if has_work:
                self._note_run(name)
                self._jobs[name].action()
        except Exception:
            log.exception("the job %s failed", name)
        return has_work

    def _note_run(self, name: str) -> None:
        """Remember that the job runs now, and store it if the job says so."""
        now = self._clock.now()
        self._last_runs[name] = now
        if self._jobs[name].is_stored:
            state.put_with_next_write(self._database, LAST_RUN_PREFIX + name, now.isoformat())

    def _start_due(self) -> None:
        """Start every job that is due. An error that keeps one from being started is logged."""
        for name in self._jobs:
            try:
                self.run_if_due(name)
            except Exception:
                log.exception("the job %s was not started", name)

    def _run_in_pool(self, name: str) -> None:
        """Run the job. If `run_soon` was called meanwhile, run it again. Runs of a job never overlap."""
        while True:
            self.run(name)
            with self._lock:
                if name not in self._to_repeat or self._scheduler is None:
                    self._running.discard(name)
                    return
                self._to_repeat.discard(name)
