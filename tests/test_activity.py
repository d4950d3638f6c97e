"""When you come back (SPEC 9.3): what is counted of the time since, what waits for you, and in which order."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from engine.activity import (
    DECISION_KINDS,
    LEARNING_KINDS,
    ActivitySince,
    LearnedCounts,
    acknowledge_session,
    count_learned,
    make_waiting_entries,
    read_acknowledged_sessions,
    select_activity_since,
    sort_queue,
)
from engine.clock import FakeClock
from engine.model import (
    ChangeSet,
    ChangeState,
    CheckResult,
    FileChange,
    PermissionRequest,
    RailVerdict,
    SessionState,
    SessionView,
    Verdict,
)
from engine.storage.database import Database
from tests.memory.stand_in_work import make_view

NIGHT = datetime(2026, 1, 5, 23, tzinfo=UTC)
TICK = timedelta(microseconds=1)
LATER = NIGHT + TICK
"""The first instant after `NIGHT`, since which activity counts."""


def make_session(name: str, ended_at: datetime | None, **fields: Any) -> SessionView:
    return replace(make_view(name), ended_at=ended_at, **fields)


def log_entry(at: datetime, *verdicts: RailVerdict) -> Any:
    return SimpleNamespace(at=at, prediction_id="pred_2", prompt="push", verdicts=verdicts, decided_by="autonomy")


def make_entry(at: datetime, kind: str, by: str = "operator", card: str = "pred_1", status: str = "") -> Any:
    return SimpleNamespace(at=at, kind=kind, subject=card, payload={"decided_by": by, "by": by, "status": status})


ALLOW, ASK = RailVerdict("rate", Verdict.ALLOW, ""), RailVerdict("content", Verdict.ASK, "it pushes")
BLOCK = RailVerdict("gate", Verdict.BLOCK, "later rail")


def make_activity(**read: Any) -> ActivitySince:
    """The activity since `NIGHT`, of what was `read`; of everything else there was nothing."""
    nothing = {"sessions": (), "blocked_entries": (), "decision_entries": (), "spent": 0, "waiting": ()}
    return select_activity_since(NIGHT, **(nothing | read))


def test_sessions_that_ended_later_count_sorted_by_their_end():
    later, before, running = make_session("b", LATER), make_session("a", NIGHT), make_session("c", None)
    latest = make_session("d", NIGHT + 2 * TICK)
    assert [ended.id for ended in make_activity(sessions=[running, latest, later, before]).ended_sessions] == ["b", "d"]


def test_blocked_work_names_the_first_rail_that_did_not_allow_it():
    result = make_activity(blocked_entries=[log_entry(LATER, ALLOW, ASK, BLOCK), log_entry(NIGHT, BLOCK)])
    assert [(work.rail, work.verdict, work.reason) for work in result.blocked] == [
        ("content", Verdict.ASK, "it pushes")
    ]


def test_decisions_are_counted_by_who_made_them():
    confirmed, rejected = "PredictionConfirmed", "PredictionRejected"
    result = make_activity(
        decision_entries=[
            make_entry(LATER, confirmed), make_entry(LATER, confirmed, "autonomy", "pred_2"),
            make_entry(NIGHT, confirmed, card="pred_3"), make_entry(LATER, rejected, card="pred_4"),
            make_entry(NIGHT, rejected, card="pred_5"),
        ]
    )  # fmt: skip
    assert (result.approved, result.approved_by_itself, result.rejected) == (2, 1, 1)


def test_a_reversed_decision_does_not_count_and_a_later_one_counts_once():
    confirmed, rejected, reopened = "PredictionConfirmed", "PredictionRejected", "PredictionReopened"
    newest_first = [
        make_entry(NIGHT + 4 * TICK, confirmed),
        make_entry(NIGHT + 3 * TICK, reopened),
        make_entry(NIGHT + 2 * TICK, rejected),
        make_entry(NIGHT + 2 * TICK, reopened, card="pred_2"),
        make_entry(LATER, rejected, card="pred_2"),
    ]
    result = make_activity(decision_entries=newest_first)
    assert (result.approved, result.rejected) == (1, 0)
    assert set(DECISION_KINDS) == {confirmed, rejected, reopened}


def test_learned_things_are_counted_by_sort():
    entries = [
        make_entry(LATER, "LearningPromoted"),
        make_entry(LATER, "LearningPromoted", card="y"),
        make_entry(LATER, "FactPromoted"),
        make_entry(LATER, "CandidateWeighed", card="cand_1", status="review"),
        make_entry(LATER, "CandidateWeighed", card="cand_1", status="drafted"),
        make_entry(LATER, "CandidateWeighed", card="cand_1", status="review"),
        make_entry(LATER, "CandidatePromoted", "operator", "cand_1"),
        make_entry(LATER, "CandidatePromoted", "autonomy", "cand_2"),
    ]
    assert {entry.kind for entry in entries} == set(LEARNING_KINDS)
    assert count_learned(entries, NIGHT) == LearnedCounts(learnings=2, facts=1, proposed=1, by_itself=1)
    assert count_learned(entries, LATER) == LearnedCounts()


# The queue

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
CHANGE = ChangeSet("change_1", "sess_0", "pred_0", "/shop", ChangeState.WAITING, (), "fix", NOW)


def make_interrupted(name: str, at: datetime = NOW) -> SessionView:
    return make_session(name, at, flow="lint", state=SessionState.INTERRUPTED)


def list_queued_ids(*newest_first: SessionView, now: datetime = NOW) -> list[str]:
    """The ids in the queue of these sessions and of `CHANGE`."""
    return [entry.id for entry in sort_queue(make_waiting_entries([CHANGE], newest_first, [], now))]


def test_the_queue_begins_with_what_waits_longest():
    early = make_interrupted("sess_1", NOW - timedelta(hours=1))
    assert list_queued_ids(early) == ["sess_1", "change_1"]


def test_an_interrupted_session_leaves_the_queue_when_it_ran_again_or_after_a_day():
    stopped, later = make_interrupted("sess_1"), make_session("sess_2", NOW, flow="run_tests")
    assert "sess_1" in list_queued_ids(later, stopped)
    assert "sess_1" not in list_queued_ids(replace(later, flow="lint"), stopped)
    assert "sess_1" in list_queued_ids(stopped, now=NOW + timedelta(hours=24) - timedelta(microseconds=1))
    assert "sess_1" not in list_queued_ids(stopped, now=NOW + timedelta(hours=24))


def test_interrupted_work_that_is_pending_again_is_not_in_the_queue_besides():
    stopped = make_interrupted("sess_1")
    again = SimpleNamespace(workspace=stopped.workspace, assignment=SimpleNamespace(prompt=stopped.prompt))
    elsewhere = SimpleNamespace(workspace="/other", assignment=again.assignment)
    assert make_waiting_entries([], [stopped], [], NOW, pending=[again]) == []
    assert make_waiting_entries([], [stopped], [], NOW, pending=[elsewhere])


def test_a_permission_comes_before_what_waits_longer():
    permission = PermissionRequest(
        "perm_1", "sess_1", "builder", "/shop", "exec", "exec git push", "git push", "why", NOW
    )
    early = make_interrupted("sess_2", NOW - timedelta(hours=1))
    first, *others = sort_queue(make_waiting_entries([CHANGE], [early], [permission], NOW))
    assert (first.id, first.kind, first.session_id) == ("perm_1", "permission", "sess_1")
    assert first.title == "builder asks: exec git push"
    assert [entry.id for entry in others] == ["sess_2", "change_1"]


@pytest.mark.parametrize(
    "refused, question",
    [
        (("",), "land 1 file?"),
        (("", "", "a submodule"), "land 2 files?"),
        (("a submodule",), "copy or discard 1 file that cannot be landed:"),
    ],
)
def test_only_files_that_can_be_landed_are_to_be_landed(refused: tuple[str, ...], question: str):
    files = tuple(FileChange(f"{number}", "added", 1, 0, refused=reason) for number, reason in enumerate(refused))
    [entry] = make_waiting_entries([replace(CHANGE, files=files)], [], [], NOW)
    assert entry.title == f"{question} {CHANGE.title}"


@pytest.mark.parametrize(
    "failed_before, question",
    [(None, "1 test failed: land 1 file?"), (("test_total",), "land 1 file?")],
    ids=["by the changes, or not known", "before as well"],
)
def test_changes_whose_tests_fail_say_so_first(failed_before: tuple[str, ...] | None, question: str):
    check = CheckResult("pytest", 1, 1, failing=("test_total",), failed_before=failed_before)
    files = (FileChange("cart.py", "modified", 1, 0),)
    [entry] = make_waiting_entries([replace(CHANGE, files=files, check=check)], [], [], NOW)
    assert entry.title == f"{question} {CHANGE.title}"


def test_acknowledged_sessions_are_stored_for_a_day(database: Database, clock: FakeClock):
    """After a day an interrupted session has left the queue anyway."""
    assert read_acknowledged_sessions(database) == frozenset()
    acknowledge_session(database, "sess_1")
    clock.advance(timedelta(hours=24))
    acknowledge_session(database, "sess_2")
    assert read_acknowledged_sessions(database) == {"sess_2"}


def test_an_acknowledged_session_is_not_in_the_queue():
    queue = make_waiting_entries([CHANGE], [make_interrupted("sess_1")], [], NOW, {"sess_1"})
    assert [entry.id for entry in queue] == ["change_1"]
