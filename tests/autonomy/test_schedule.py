"""Jobs run an interval after their last run, once however often they were missed, also after a restart (SPEC 7.2)."""

from __future__ import annotations

import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from engine.autonomy.schedule import Job, Schedule, next_run
from engine.clock import FakeClock, SystemClock
from engine.events import EventBus
from engine.storage.database import Database


@pytest.mark.parametrize(
    ("last", "expected"), [(None, 0), (-3, 7), (-10, 0), (-1000, 0), (5, 10)]
)  # fmt: skip
def test_a_job_is_due_an_interval_after_it_ran_and_never_in_the_past(last: int | None, expected: int) -> None:
    now = datetime(2026, 1, 5, tzinfo=UTC)
    ran = None if last is None else now + timedelta(minutes=last)
    assert next_run(now, ran, timedelta(minutes=10)) == now + timedelta(minutes=expected)


def test_a_missed_job_runs_once_when_the_engine_starts(tmp_path: Any) -> None:
    clock = SystemClock(UTC)
    database = Database(tmp_path / "d.db", clock=clock, bus=EventBus())
    ran: list[int] = []
    done = threading.Event()

    def action() -> None:
        ran.append(1)
        done.set()

    schedule = Schedule(database, clock, [Job("cards", lambda: timedelta(minutes=10), action)])
    try:
        schedule.start()
        assert done.wait(10)
        done.clear()
        schedule.soon("cards")
        assert done.wait(10)
    finally:
        schedule.close()
    assert len(ran) == 2
    database.close()
    database = Database(tmp_path / "d.db", clock=clock, bus=EventBus())
    again = Schedule(database, clock, [Job("cards", lambda: timedelta(minutes=10), action)])
    assert again.due("cards") > clock.now() + timedelta(minutes=9)
    database.close()


def test_the_last_run_of_a_job_is_stored_only_where_it_is_wanted(database: Database, clock: FakeClock) -> None:
    jobs = [
        Job(name, lambda: timedelta(seconds=30), lambda: None, is_stored=name == "kept") for name in ("kept", "often")
    ]
    schedule = Schedule(database, clock, jobs)
    for name in ("kept", "often"):
        assert schedule.run(name)
        assert schedule.due(name) == clock.now() + timedelta(seconds=30)
    database.write(lambda tx: None)  # whoever writes next has it along
    again = Schedule(database, clock, jobs)
    assert again.last_run("kept") == clock.now()
    assert again.last_run("often") is None


@pytest.mark.long
def test_apscheduler_is_imported_only_at_start() -> None:
    code = "import sys, engine.autonomy.autonomy; sys.exit('apscheduler' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_job_that_is_requested_while_it_runs_runs_once_more(tmp_path: Any) -> None:
    clock = SystemClock(UTC)
    database = Database(tmp_path / "d.db", clock=clock, bus=EventBus())
    runs: list[int] = []
    again = threading.Event()

    def action() -> None:
        runs.append(1)
        if len(runs) == 1:
            schedule.soon("cards")
        else:
            again.set()

    schedule = Schedule(database, clock, [Job("cards", lambda: timedelta(minutes=10), action)])
    try:
        schedule.start()
        assert again.wait(10)
    finally:
        schedule.close()
    assert len(runs) == 2
    database.close()
