"""When you come back (SPEC 9.3): what is counted of the time since, what waits for you, and in which order."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from engine.activity import (
    DECISION_KINDS,
    acknowledge_session,
    make_waiting_entries,
    read_acknowledged_sessions,
    select_activity_since,
    sort_queue,
)
from engine.clock import FakeClock
from engine.model import ChangeSet, ChangeState, PermissionRequest, SessionState, SessionView
from engine.storage.database import Database
from tests.support.sessions import make_session_view

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
CHANGE = ChangeSet("change_1", "sess_0", "pred_0", "/shop", ChangeState.WAITING, (), "fix", NOW)


def make_session(name: str, ended_at: datetime | None, **fields: Any) -> SessionView:
    return make_session_view(id=name, ended_at=ended_at, **{"state": SessionState.SUCCEEDED} | fields)


def make_entry(seconds: int, kind: str, card: str) -> Any:
    """The ledger entry of a decision so long after `NOW`."""
    at = NOW + timedelta(seconds=seconds)
    return SimpleNamespace(at=at, kind=kind, subject=card, payload={"decided_by": "operator"})


def test_a_reversed_decision_does_not_count_and_a_later_one_counts_once():
    confirmed, rejected, reopened = "PredictionConfirmed", "PredictionRejected", "PredictionReopened"
    newest_first = [
        make_entry(4, confirmed, "pred_1"),
        make_entry(3, reopened, "pred_1"),
        make_entry(2, rejected, "pred_1"),
        make_entry(2, reopened, "pred_2"),
        make_entry(1, rejected, "pred_2"),
        make_entry(0, confirmed, "pred_3"),
    ]
    result = select_activity_since(
        NOW, sessions=(), blocked_entries=(), decision_entries=newest_first, spent=0, waiting=()
    )
    assert (result.approved, result.rejected) == (1, 0), "what was decided at that time was seen"
    assert set(DECISION_KINDS) == {confirmed, rejected, reopened}


# The queue


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
