"""When you come back (SPEC 9.3): what is counted of the time since, what waits for you, and in which order."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from engine.activity import (
    DECISION_KINDS,
    ActivitySince,
    acknowledge_session,
    make_waiting_entries,
    read_acknowledged_sessions,
    select_activity_since,
    sort_queue,
)
from engine.clock import FakeClock
from engine.model import (
    ChangeSet,
    ChangeState,
    PermissionRequest,
    SessionState,
    SessionView,
)
from engine.storage.database import Database
from tests.memory.stand_in_work import make_view

NIGHT = datetime(2026, 1, 5, 23, tzinfo=UTC)
TICK = timedelta(microseconds=1)
LATER = NIGHT + TICK
"""The first instant after `NIGHT`, since which activity counts."""


def make_session(name: str, ended_at: datetime | None, **fields: Any) -> SessionView:
    return replace(make_view(name), ended_at=ended_at, **fields)


def make_entry(at: datetime, kind: str, by: str = "operator", card: str = "pred_1") -> Any:
    return SimpleNamespace(at=at, kind=kind, subject=card, payload={"decided_by": by})


def make_activity(*decision_entries: Any) -> ActivitySince:
    """The activity since `NIGHT`, of which there were only decisions."""
    return select_activity_since(
        NIGHT, sessions=(), blocked_entries=(), decision_entries=decision_entries, spent=0, waiting=()
    )


def test_decisions_are_counted_by_who_made_them():
    confirmed, rejected = "PredictionConfirmed", "PredictionRejected"
    result = make_activity(
        make_entry(LATER, confirmed), make_entry(LATER, confirmed, "autonomy", "pred_2"),
        make_entry(NIGHT, confirmed, card="pred_3"), make_entry(LATER, rejected, card="pred_4"),
        make_entry(NIGHT, rejected, card="pred_5"),
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
    result = make_activity(*newest_first)
    assert (result.approved, result.rejected) == (1, 0)
    assert set(DECISION_KINDS) == {confirmed, rejected, reopened}


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


def test_a_permission_comes_before_what_waits_longer():
    permission = PermissionRequest(
        "perm_1", "sess_1", "builder", "/shop", "exec", "exec git push", "git push", "why", NOW
    )
    early = make_interrupted("sess_2", NOW - timedelta(hours=1))
    first, *others = sort_queue(make_waiting_entries([CHANGE], [early], [permission], NOW))
    assert (first.id, first.kind, first.session_id) == ("perm_1", "permission", "sess_1")
    assert first.title == "builder asks: exec git push"
    assert [entry.id for entry in others] == ["sess_2", "change_1"]


def test_acknowledged_sessions_are_stored_for_a_day(database: Database, clock: FakeClock):
    """After a day an interrupted session has left the queue anyway."""
    assert read_acknowledged_sessions(database) == frozenset()
    acknowledge_session(database, "sess_1")
    clock.advance(timedelta(hours=24))
    acknowledge_session(database, "sess_2")
    assert read_acknowledged_sessions(database) == {"sess_2"}
