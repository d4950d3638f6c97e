"""What became of guided work, and what it says of the guidance: noisy, stale, refreshed (SPEC 1.10, 5.1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.events import (
    Event,
    SessionEnded,
)
from engine.hierarchy.outcomes import (
    MAX_DECISION_AGE,
    MAX_PATTERN_AGE,
    MIN_SESSIONS,
    Tally,
    is_outdated,
    next_outcome,
)
from engine.model import LeaderDecision, Pattern
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from tests.hierarchy.guidance_world import World, edit_profile, make_world

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
TICK = timedelta(microseconds=1)

READY, ENDED = "ChangeSetReady", "SessionEnded"
LANDED, BRANCHED, DISCARDED, UNDONE = "ChangeSetLanded", "ChangeSetBranched", "ChangeSetDiscarded", "LandingUndone"


# -- pure


def stands(*facts: tuple[str, dict[str, object]]) -> str:
    state = ""
    for kind, payload in facts:
        state = next_outcome(kind, payload, state)
    return state


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ([(ENDED, {"state": "succeeded"})], "good"),
        ([(ENDED, {"state": "failed"})], "bad"),
        ([(ENDED, {"state": "blocked"})], "bad"),
        ([(ENDED, {"state": "cancelled"})], ""),
        ([(ENDED, {"state": "interrupted"})], ""),
        ([(READY, {}), (ENDED, {"state": "succeeded"})], "open"),
        ([(READY, {}), (ENDED, {"state": "succeeded"}), (LANDED, {})], "good"),
        ([(READY, {}), (LANDED, {"left": 1}), (LANDED, {}), (UNDONE, {"left": 1})], "good"),
        ([(READY, {}), (ENDED, {"state": "succeeded"}), (BRANCHED, {})], "good"),
        ([(READY, {}), (ENDED, {"state": "succeeded"}), (DISCARDED, {})], "bad"),
        ([(READY, {}), (ENDED, {"state": "succeeded"}), (DISCARDED, {"continued_in": "sess_2"})], ""),
        ([(READY, {}), (ENDED, {"state": "succeeded"}), (LANDED, {}), (UNDONE, {})], "bad"),
        ([("ValidationFailed", {}), (READY, {}), (ENDED, {"state": "succeeded"})], "bad"),
        ([("ValidationFailed", {}), (ENDED, {"state": "succeeded"}), (LANDED, {})], "good"),  # he took it all the same
    ],
)
def test_how_a_guided_session_stands(facts: list[tuple[str, dict[str, object]]], expected: str) -> None:
    assert stands(*facts) == expected
    assert stands(*facts, *facts) == expected  # read again after a crash


@pytest.mark.parametrize(
    ("tally", "noisy"),
    [
        (Tally(MIN_SESSIONS, MIN_SESSIONS, MIN_SESSIONS, 0), True),
        (Tally(MIN_SESSIONS - 1, MIN_SESSIONS - 1, 100, 0), False),  # too few with it
        (Tally(100, 100, MIN_SESSIONS - 1, 0), False),  # too few without
        (Tally(10, 7, 10, 0), True),
        (Tally(10, 7, 10, 1), False),  # chance makes as much of ten, to who looks ten times
        (Tally(100, 30, 100, 30), False),
        (Tally(1000, 400, 1000, 300), True),
        (Tally(1000, 300, 1000, 350), False),
    ],
)
def test_noisy_at_its_boundary(tally: Tally, noisy: bool) -> None:
    assert tally.is_noisy is noisy
    assert -1 <= tally.harm <= 1


@pytest.mark.parametrize(("kind", "most"), [("pattern", MAX_PATTERN_AGE), ("decision", MAX_DECISION_AGE)])
def test_stale_at_its_boundary(kind: str, most: timedelta) -> None:
    def aged(age: timedelta | None) -> tuple[int, int] | None:
        at = None if age is None else NOW - age
        return is_outdated(Pattern("k", "t", at=at) if kind == "pattern" else LeaderDecision("d", "t", at), NOW)

    assert (MAX_DECISION_AGE.days, MAX_PATTERN_AGE.days) == (30, 180)
    assert aged(None) is None  # what stands in a soul has no date
    assert aged(most) is None
    assert aged(most + TICK) == (most.days, most.days)


# -- in the ledger


@dataclass
class Work:
    """Guided sessions and how they end."""

    world: World
    number: int = 0
    sessions: list[str] = field(default_factory=list)

    def do(self, *, bad: bool, workspace: str = "/srv/shop") -> None:
        self.number += 1
        session = f"sess_{self.number}"
        self.world.call("worker", session, f"call_{self.number}", workspace)
        self.told(SessionEnded(subject=session, prediction_id="", state="failed" if bad else "succeeded",
                               summary="", cost=0))  # fmt: skip
        self.world.guided_sessions.catch_up()

    def told(self, event: Event) -> None:
        self.world.database.write(lambda tx: tx.record(event))

    def facts(self, kind: str) -> list[dict[str, object]]:
        return [one.payload | {"subject": one.subject} for one in Ledger(self.world.database).latest(50, kinds=(kind,))]


@pytest.fixture
def work(tmp_path: Path, database: Database, clock: FakeClock) -> Work:
    return Work(make_world(tmp_path, database, clock))


def test_guidance_with_which_work_goes_worse_is_told_once(work: Work) -> None:
    for _ in range(10):
        work.do(bad=False)
    edit_profile(work.world.profiles, "lead", "patterns", key="rush", value="Skip the tests when it is late")
    for _ in range(9):
        work.do(bad=True)
    assert work.facts("GuidanceFoundNoisy") == []  # nine are too few
    work.do(bad=True)
    [found] = work.facts("GuidanceFoundNoisy")
    assert found["subject"] == "lead#patterns/rush"
    assert (found["leader"], found["agent"]) == ("lead", "worker")
    assert [found[one] for one in ("told", "told_bad", "untold", "untold_bad")] == [10, 10, 10, 0]
    assert float(str(found["harm"])) > 0.2
    work.do(bad=True)
    assert len(work.facts("GuidanceFoundNoisy")) == 1
    edit_profile(work.world.profiles, "lead", "patterns", key="rush", value="Skip slow tests when it is late")
    for _ in range(17):
        work.do(bad=True)
    assert len(work.facts("GuidanceFoundNoisy")) == 2  # the new wording is a new thing


def test_old_sessions_count_no_more(work: Work, clock: FakeClock) -> None:
    for _ in range(10):
        work.do(bad=False)
    clock.advance(timedelta(days=90))
    edit_profile(work.world.profiles, "lead", "patterns", key="rush", value="Skip the tests when it is late")
    for _ in range(12):
        work.do(bad=True)
    assert work.facts("GuidanceFoundNoisy") == []


def test_a_decision_that_is_recent_no_more_is_told_once(work: Work, clock: FakeClock) -> None:
    edit_profile(work.world.profiles, "lead", "decisions", key="d1", value="We move to FastAPI")
    clock.advance(timedelta(days=30))
    work.do(bad=False)
    work.world.run_round()
    assert work.facts("GuidanceFoundStale") == []
    clock.advance(timedelta(days=1))
    work.world.run_round()
    [found] = work.facts("GuidanceFoundStale")
    assert (found["subject"], found["days"], found["most"], found["told"]) == ("lead#recent-decisions/d1", 31, 30, 1)
    work.world.run_round()
    assert len(work.facts("GuidanceFoundStale")) == 1


def test_a_round_that_reached_every_worker_is_a_refresh(work: Work) -> None:
    work.world.teaching.round()
    assert [(fact["taught"], fact["unchanged"]) for fact in work.facts("TeachingRefreshed")] == [(2, 0)]
    work.world.teaching.round()
    assert work.facts("TeachingRefreshed")[0] == {"subject": "", "taught": 0, "unchanged": 2}
    (work.world.folder / "junior" / "soul.md").unlink()
    work.world.teaching.round()
    assert len(work.facts("TeachingRefreshed")) == 2  # one was skipped: no refresh
