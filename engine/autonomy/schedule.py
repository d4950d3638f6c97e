"""Scheduled jobs (SPEC 7.2), by APScheduler with a memory store; the time of each last run is stored here.

A job that was missed, however often, runs once. The scheduler is woken every 30 seconds, because after a suspend of the
machine no timer fires. Nothing heavy is imported before `start`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from engine.clock import Clock
from engine.frozen import frozen
from engine.storage import state
from engine.storage.database import Database

log = logging.getLogger(__name__)

HEARTBEAT = 30.0
"""Seconds between two wake-ups."""

MAX_DELAY = timedelta(seconds=5)
"""A job is planned from the end of its last run and due from the beginning: up to this difference it is not planned
again."""


@frozen
class Job:
    """One job."""

    name: str
    interval: Callable[[], timedelta]
    """Read after each run and every 30 seconds, since settings change."""
    action: Callable[[], object]
    has_work: Callable[[], bool] = lambda: True
    """Whether to run now."""
    is_stored: bool = True
    """Whether the time of the last run is stored. Not for jobs that run every minute, so that an idle engine does not
    write to the disk."""


def next_run(now: datetime, last: datetime | None, interval: timedelta) -> datetime:
    """When a job is due: an interval after its last run, but not in the past; at once if it never ran.

    A last run in the future (the clock was set back) counts as now.
    """
    return now if last is None else max(now, min(last, now) + interval)


class Schedule:
    """Runs jobs in threads of its own between `start` and `close`."""

    def __init__(self, database: Database, clock: Clock, jobs: list[Job]) -> None:
        self._database = database
        self._clock = clock
        self._jobs = {job.name: job for job in jobs}
        self._last: dict[str, datetime | None] = {}
        self._lock = threading.Lock()
        self._soon: set[str] = set()
        """Jobs that will run soon; a running one runs once more after that."""
        self._running: set[str] = set()
        self._planned: dict[str, datetime] = {}
        self._scheduler: Any = None
        self._closing = threading.Event()
        self._heart: threading.Thread | None = None

    def start(self) -> None:
        """Import APScheduler and begin."""
        from apscheduler.executors.pool import ThreadPoolExecutor
        from apscheduler.schedulers.background import BackgroundScheduler

        # Without a handler its log would go to stderr and destroy the screen.
        logging.getLogger("apscheduler").addHandler(logging.NullHandler())
        self._scheduler = BackgroundScheduler(
            executors={"default": ThreadPoolExecutor(4)},
            # There, a job whose last run is just ending counts as running, and would be skipped for a whole interval.
            # `_fire` prevents overlapping runs instead.
            job_defaults={"coalesce": True, "max_instances": 4, "misfire_grace_time": None},
            timezone="UTC",
        )
        for job in self._jobs.values():
            self._plan(job)
        self._scheduler.start()
        self._heart = threading.Thread(target=self._beat, name="clawpy-heartbeat", daemon=True)
        self._heart.start()

    def close(self) -> None:
        """Stop; waits for a running job. Safe to call twice."""
        with self._lock:  # planning the next run is either finished, or sees that there is no scheduler
            self._closing.set()
            scheduler, self._scheduler = self._scheduler, None
        if scheduler is not None:
            scheduler.shutdown(wait=True)
        if self._heart is not None:
            self._heart.join()
            self._heart = None

    @property
    def running(self) -> bool:
        """Whether it is between `start` and `close`."""
        return self._scheduler is not None

    def due(self, name: str) -> datetime:
        """When the job runs next."""
        return next_run(self._clock.now(), self.last_run(name), self._jobs[name].interval())

    def last_run(self, name: str) -> datetime | None:
        """When the job last ran, also before a restart if that is stored."""
        if name not in self._last:  # read once: only this engine writes it
            with self._database.read() as session:
                stored = state.get(session, _key(name))
            self._last[name] = datetime.fromisoformat(stored) if stored else None
        return self._last[name]

    def soon(self, name: str) -> None:
        """Run the job as soon as a thread is free, whatever its interval. Callable from anywhere; does not wait."""
        with self._lock:
            if self._scheduler is not None:
                self._soon.add(name)
                self._again(name, self._clock.now())

    def run(self, name: str) -> bool:
        """Run the job now, in this thread, if it has work; returns whether it ran. An error is logged."""
        job = self._jobs[name]
        if not job.has_work():
            return False
        now = self._clock.now()
        if job.is_stored:
            state.put_with_next_write(self._database, _key(name), now.isoformat())
        self._last[name] = now
        try:
            job.action()
        except Exception:
            log.exception("the job %s failed", name)
        return True

    def _fire(self, name: str) -> None:
        """Run the job, and again while `soon` was called meanwhile; runs never overlap."""
        with self._lock:
            early = name not in self._soon and self._clock.now() < self._planned[name]
            if name in self._running or early:  # the thread that runs it also runs what was requested meanwhile
                return
            self._running.add(name)
        while True:
            with self._lock:
                self._soon.discard(name)
            self.run(name)
            with self._lock:
                if name in self._soon and not self._closing.is_set():
                    continue
                self._running.discard(name)
                if self._scheduler is not None:
                    self._again(name, self._clock.now() + self._jobs[name].interval())
                return

    def _again(self, name: str, at: datetime) -> None:
        self._planned[name] = at
        self._scheduler.modify_job(name, next_run_time=at)

    def _plan(self, job: Job) -> None:
        interval = job.interval()
        self._planned[job.name] = self.due(job.name)
        self._scheduler.add_job(
            self._fire,
            "interval",
            seconds=interval.total_seconds(),
            id=job.name,
            args=[job.name],
            next_run_time=self._planned[job.name],
        )

    def replan(self) -> None:
        """Plan jobs again whose interval has changed."""
        for name in self._jobs:
            due = self.due(name)
            with self._lock:
                idle = name not in self._running and name not in self._soon
                if self._scheduler is not None and idle and abs(due - self._planned[name]) > MAX_DELAY:
                    self._again(name, due)

    def _beat(self) -> None:
        while not self._closing.wait(HEARTBEAT):
            self.replan()
            scheduler = self._scheduler
            if scheduler is not None and scheduler.running:
                scheduler.wakeup()


def _key(name: str) -> str:
    return f"schedule.last_run.{name}"
