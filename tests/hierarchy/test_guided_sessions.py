"""Sessions with guidance (SPEC 1.10, 5.1, 5.7): noisy and stale guidance is found by how sessions end, and reported
once."""

import itertools
from datetime import timedelta
from typing import Any

import pytest

from engine.clock import FakeClock
from engine.hierarchy.guided_sessions import MIN_SESSIONS, compute_next_outcome, measure_harm
from engine.inference import Arms
from engine.storage.ledger import Ledger
from tests.hierarchy.guidance_world import Organisation, edit_profile
from tests.support.sessions import make_session_ended


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
        entries = Ledger(self.world.database).read_newest(50, kinds=(kind,))
        return [{**entry.payload, "subject": entry.subject} for entry in entries]


@pytest.fixture
def work(world: Organisation) -> GuidedWork:
    return GuidedWork(world)


@pytest.mark.parametrize(
    "arms, is_noisy",
    [
        (Arms(MIN_SESSIONS, 0, MIN_SESSIONS, MIN_SESSIONS), True),
        (Arms(MIN_SESSIONS - 1, 0, 100, 100), False),
        (Arms(10, 3, 10, 10), True),
        (Arms(10, 3, 10, 9), False),  # ten checks of ten sessions find as much by chance
        (Arms(1000, 600, 1000, 700), True),
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


# The outcome of a session

Step = tuple[str, dict[str, Any]]
"""The kind and the payload of a ledger entry about a session."""

SUCCEEDED: Step = ("SessionEnded", {"state": "succeeded"})
TESTS_FAILED: Step = ("ValidationFailed", {})
READY: Step = ("ChangeSetReady", {})
LANDED: Step = ("ChangeSetLanded", {})
BRANCHED: Step = ("ChangeSetBranched", {})


def make_ended(state: str) -> Step:
    return "SessionEnded", {"state": state}


def make_discarded(**payload: str) -> Step:
    return "ChangeSetDiscarded", payload


def make_undone(**payload: int) -> Step:
    return "LandingUndone", payload


@pytest.mark.parametrize(
    "steps, expected",
    [
        ([SUCCEEDED], "good"),
        ([make_ended("failed")], "bad"),
        ([make_ended("blocked")], "bad"),
        ([make_ended("cancelled")], ""),
        ([make_ended("interrupted")], ""),
        ([READY, SUCCEEDED], "open"),
        ([READY, SUCCEEDED, LANDED], "good"),
        ([READY, ("ChangeSetLanded", {"left": 1}), LANDED, make_undone(left=1)], "good"),
        ([READY, SUCCEEDED, BRANCHED], "good"),
        ([READY, SUCCEEDED, make_discarded()], "bad"),
        ([READY, SUCCEEDED, make_discarded(continued_in="sess_2")], ""),
        ([READY, SUCCEEDED, LANDED, make_undone()], "bad"),
        ([TESTS_FAILED, READY, SUCCEEDED], "bad"),
        ([TESTS_FAILED, SUCCEEDED, LANDED], "good"),  # the operator landed it although tests fail
    ],
)
def test_the_last_decision_on_a_session_is_its_outcome_also_when_it_is_read_twice(steps: list[Step], expected: str):
    outcome = ""
    for _ in range(2):
        for kind, payload in steps:
            outcome = compute_next_outcome(kind, payload, outcome)
        assert outcome == expected
