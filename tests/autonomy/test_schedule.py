"""Jobs run an interval after their last run, once however often they were missed, also after a restart (SPEC 7.2)."""

import logging
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from engine.autonomy.schedule import Job, Schedule, compute_next_run
from engine.clock import FakeClock, SystemClock
from engine.engine import set_up_logging
from engine.events import EventBus
from engine.home import Home
from engine.storage.database import Database
from tests.support.helpers import wait_until
from tests.support.programs import find_imported


@pytest.fixture
def system_database(tmp_path: Path) -> Iterator[Database]:
    """A database under the system's clock, by which the thread of a schedule waits."""
    database = Database(tmp_path / "d.db", clock=SystemClock(UTC), bus=EventBus())
    yield database
    database.close()


def make_schedule(database: Database, action: Callable[[], None]) -> Schedule:
    """A schedule with the job `cards`, every ten minutes."""
    return Schedule(database, SystemClock(UTC), [Job("cards", lambda: timedelta(minutes=10), action)])


@pytest.mark.parametrize("last, expected", [(None, 0), (-3, 7), (-10, 0), (-1000, 0), (5, 10)])
def test_a_job_is_due_an_interval_after_it_ran_and_never_in_the_past(last: int | None, expected: int):
    """`last` and `expected` are minutes from now."""
    now = datetime(2026, 1, 5, tzinfo=UTC)
    last_run = None if last is None else now + timedelta(minutes=last)
    assert compute_next_run(now, last_run, timedelta(minutes=10)) == now + timedelta(minutes=expected)


def test_a_job_runs_at_the_start_and_when_it_is_requested_and_not_again_after_a_restart(
    system_database: Database,
):
    runs = []
    has_run = threading.Event()

    def action():
        runs.append(1)
        has_run.set()

    schedule = make_schedule(system_database, action)
    try:
        schedule.start()
        assert has_run.wait(10)
        has_run.clear()
        schedule.run_soon("cards")
        assert has_run.wait(10)
    finally:
        schedule.close()
    assert len(runs) == 2
    system_database.write(lambda tx: None)  # the next write takes the time of the last run along
    restarted = make_schedule(system_database, action)
    assert restarted.next_run_of("cards") > SystemClock(UTC).now() + timedelta(minutes=9)


def test_a_job_that_ran_while_it_was_looked_whether_it_is_due_does_not_run_again(system_database: Database):
    runs = []
    has_run = threading.Event()

    def run_meanwhile() -> timedelta:
        if not has_run.is_set():
            schedule.run_soon("cards")
            wait_until(lambda: has_run.is_set() and not schedule._running)
        return timedelta(minutes=10)

    def action():
        runs.append(1)
        has_run.set()

    schedule = Schedule(system_database, SystemClock(UTC), [Job("cards", run_meanwhile, action)])
    try:
        schedule.start()
    finally:
        schedule.close()
    assert len(runs) == 1


def test_the_last_run_of_a_job_is_stored_only_where_it_is_wanted(database: Database, clock: FakeClock):
    jobs = [
        Job(name, lambda: timedelta(seconds=30), lambda: None, is_stored=name == "kept") for name in ("kept", "often")
    ]
    schedule = Schedule(database, clock, jobs)
    for name in ("kept", "often"):
        assert schedule.run(name)
        assert schedule.next_run_of(name) == clock.now() + timedelta(seconds=30)
    database.write(lambda tx: None)  # the next write takes it along
    restarted = Schedule(database, clock, jobs)
    assert restarted.read_last_run("kept") == clock.now()
    assert restarted.read_last_run("often") is None


@pytest.mark.long
def test_apscheduler_is_imported_only_at_start():
    assert not find_imported("import engine.autonomy.autonomy", "apscheduler")


def test_the_log_has_only_warnings_of_apscheduler(tmp_path: Path):
    set_up_logging(Home.locate(tmp_path))
    logger = logging.getLogger("apscheduler.executors.default")
    assert (logger.isEnabledFor(logging.INFO), logger.isEnabledFor(logging.WARNING)) == (False, True)


def test_a_job_that_is_requested_while_it_runs_runs_once_more(system_database: Database):
    runs = []
    has_run_again = threading.Event()

    def action():
        runs.append(1)
        if len(runs) == 1:
            schedule.run_soon("cards")
        else:
            has_run_again.set()

    schedule = make_schedule(system_database, action)
    try:
        schedule.start()
        assert has_run_again.wait(10)
    finally:
        schedule.close()
    assert len(runs) == 2
