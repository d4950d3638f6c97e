"""The schedule: jobs run in its threads when they are due or requested (SPEC 7.2)."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, timedelta
from pathlib import Path

import pytest

from engine.autonomy.schedule import Schedule, ScheduledJob
from engine.clock import SystemClock
from engine.events import EventBus
from engine.storage.database import Database
from tests.support.programs import find_imported


@pytest.fixture
def system_database(tmp_path: Path) -> Iterator[Database]:
    """A database under the system's clock, by which the thread of a schedule waits."""
    database = Database(tmp_path / "d.db", clock=SystemClock(UTC), bus=EventBus())
    yield database
    database.close()


def make_schedule(database: Database, action: Callable[[], None]) -> Schedule:
    """A schedule with the job `cards`, every ten minutes."""
    return Schedule(database, SystemClock(UTC), [ScheduledJob("cards", lambda: timedelta(minutes=10), action)])


def test_a_job_runs_at_the_start_and_when_it_is_requested_and_not_again_after_a_restart(system_database: Database):
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
    assert restarted.find_next_run("cards") > SystemClock(UTC).now() + timedelta(minutes=9)


@pytest.mark.long
def test_apscheduler_is_imported_only_at_start():
    assert not find_imported("import engine.autonomy.autonomy", "apscheduler")
