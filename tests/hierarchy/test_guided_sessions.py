"""Sessions with guidance (SPEC 1.10, 5.1): noisy and stale guidance is found, and reported once."""

import itertools
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from engine.clock import FakeClock
from engine.hierarchy.guided_sessions import (
    MIN_SESSIONS,
    REPORTED,
    GuidedSession,
    measure_harm,
)
from engine.inference import Arms
from engine.storage import state
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from tests.hierarchy.guidance_world import Organisation, edit_profile, make_world
from tests.support.helpers import make_session_ended


class GuidedWork:
    """Guided sessions of a worker, which go well or badly."""

    def __init__(self, world: Organisation):
        self.world = world
        self._numbers = itertools.count()

    def run(self, sessions: int, *, bad: bool):
        for number in itertools.islice(self._numbers, sessions):
            session, state = f"sess_{number}", "failed" if bad else "succeeded"
            self.world.call("worker", session, f"call_{number}", "/srv/shop")
            end = make_session_ended(session, state)
            self.world.database.write(lambda tx, end=end: tx.record(end))
            self.world.guided_sessions.catch_up()

    def read_events(self, kind: str) -> list[dict[str, Any]]:
        entries = Ledger(self.world.database).latest(50, kinds=(kind,))
        return [{**entry.payload, "subject": entry.subject} for entry in entries]


@pytest.fixture
def work(tmp_path: Path, database: Database, clock: FakeClock) -> GuidedWork:
    return GuidedWork(make_world(tmp_path, database, clock))


@pytest.mark.parametrize(
    "arms, is_noisy",
    [
        (Arms(MIN_SESSIONS, 0, MIN_SESSIONS, MIN_SESSIONS), True),
        (Arms(MIN_SESSIONS - 1, 0, 100, 100), False),
        (Arms(100, 0, MIN_SESSIONS - 1, MIN_SESSIONS - 1), False),
        (Arms(10, 3, 10, 10), True),
        (Arms(10, 3, 10, 9), False),  # ten checks of ten sessions find as much by chance
        (Arms(100, 70, 100, 70), False),
        (Arms(1000, 600, 1000, 700), True),
        (Arms(1000, 700, 1000, 650), False),
    ],
)
def test_guidance_is_noisy_if_work_goes_worse_with_it_by_more_than_chance(arms: Arms, is_noisy: bool):
    assert (measure_harm(arms) > 0) is is_noisy
    assert -1 <= measure_harm(arms) <= 1


def test_noisy_guidance_is_reported_once_in_each_wording(work: GuidedWork):
    work.run(10, bad=False)
    edit_profile(work.world.profiles, "lead", "patterns", key="rush", value="Skip the tests when it is late")
    work.run(9, bad=True)
    assert work.read_events("GuidanceFoundNoisy") == []
    work.run(1, bad=True)
    [event] = work.read_events("GuidanceFoundNoisy")
    assert (event["subject"], event["leader"], event["agent"]) == ("lead#patterns/rush", "lead", "worker")
    assert [event[name] for name in ("told", "told_bad", "untold", "untold_bad")] == [10, 10, 10, 0]
    assert event["harm"] > 0.2
    work.run(1, bad=True)
    assert len(work.read_events("GuidanceFoundNoisy")) == 1
    edit_profile(work.world.profiles, "lead", "patterns", key="rush", value="Skip slow tests when it is late")
    work.run(17, bad=True)
    assert len(work.read_events("GuidanceFoundNoisy")) == 2


def test_sessions_of_more_than_90_days_ago_do_not_count(work: GuidedWork, clock: FakeClock):
    work.run(10, bad=False)
    clock.advance(timedelta(days=90))
    edit_profile(work.world.profiles, "lead", "patterns", key="rush", value="Skip the tests when it is late")
    work.run(12, bad=True)
    assert work.read_events("GuidanceFoundNoisy") == []


@pytest.mark.parametrize(
    "section, guided_section, days", [("decisions", "recent-decisions", 30), ("patterns", "patterns", 180)]
)
def test_an_item_is_reported_once_when_its_time_is_over(
    work: GuidedWork, clock: FakeClock, section: str, guided_section: str, days: int
):
    edit_profile(work.world.profiles, "lead", section, key="d1", value="We move to FastAPI")
    clock.advance(timedelta(days=days))
    work.run(1, bad=False)
    work.world.run_round()
    assert work.read_events("GuidanceFoundStale") == []
    clock.advance(timedelta(microseconds=1))
    for _ in range(2):
        work.world.run_round()
    [event] = work.read_events("GuidanceFoundStale")
    assert (event["subject"], event["days"], event["most"]) == (f"lead#{guided_section}/d1", days, days)
    assert event["told"] == 1


def test_what_was_reported_is_forgotten_with_the_last_session_that_had_the_guidance(work: GuidedWork, clock: FakeClock):
    def list_reported() -> list[str]:
        with work.world.database.read() as session:
            return list(state.get_all(session, REPORTED))

    edit_profile(work.world.profiles, "lead", "decisions", key="d1", value="We move to FastAPI")
    clock.advance(timedelta(days=31))
    work.run(1, bad=False)
    work.world.run_round()
    [reported] = list_reported()
    assert reported.startswith("GuidanceFoundStale lead#recent-decisions/d1 ")
    clock.advance(timedelta(days=89))
    work.world.run_round()
    assert list_reported() == [reported]
    clock.advance(timedelta(days=1))
    work.world.run_round()
    assert list_reported() == []


def test_a_review_reads_no_old_sessions_while_nothing_is_reported(work: GuidedWork, clock: FakeClock):
    work.run(1, bad=False)
    clock.advance(timedelta(days=31))
    loaded = []

    def add_loaded(row: GuidedSession, _: object):
        loaded.append(row)

    sqlalchemy.event.listen(GuidedSession, "load", add_loaded)
    try:
        work.world.guided_sessions.review()
    finally:
        sqlalchemy.event.remove(GuidedSession, "load", add_loaded)
    assert loaded == []
