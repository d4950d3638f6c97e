"""The operator's one queue: what is in it, and how each entry leaves it (SPEC 9.3)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from engine.clock import FakeClock
from engine.model import ChangeSet, ChangeState, PermissionRequest, SessionState, SessionView
from engine.storage.database import Database
from engine.waiting_queue import acknowledge_session, acknowledged_sessions, sort_queue, waiting_entries

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
CHANGE = ChangeSet("change_1", "sess_0", "pred_0", "/shop", ChangeState.WAITING, (), "fix", NOW)


def session(name: str, flow: str | None, state: SessionState, ended_at: datetime = NOW) -> SessionView:
    return SessionView(
        name, "pred_1", "do it", "/shop", "koji-core", "a", "flow", flow, state, "approved", "none", "/shop", ended_at,
        ended_at, ended_at, 0, 0, "",
    )  # fmt: skip


def waiting(*newest_first: SessionView, now: datetime = NOW) -> list[str]:
    return [entry.id for entry in sort_queue(waiting_entries([CHANGE], newest_first, [], now))]


def test_the_longest_waiting_first() -> None:
    early = session("sess_1", "lint", SessionState.INTERRUPTED, NOW - timedelta(hours=1))
    assert waiting(early) == ["sess_1", "change_1"]


def test_an_interruption_leaves_when_it_was_run_again_or_after_a_day() -> None:
    cut = session("sess_1", "lint", SessionState.INTERRUPTED)
    other = session("sess_2", "run_tests", SessionState.SUCCEEDED)
    assert "sess_1" in waiting(other, cut)
    assert "sess_1" not in waiting(replace(other, flow="lint"), cut)
    assert "sess_1" in waiting(cut, now=NOW + timedelta(hours=24) - timedelta(microseconds=1))
    assert "sess_1" not in waiting(cut, now=NOW + timedelta(hours=24))


def test_a_permission_stands_before_what_waits_longer() -> None:
    permission = PermissionRequest(
        "perm_1", "sess_1", "builder", "/shop", "exec", "exec git push", "git push", "why", NOW
    )
    early = session("sess_2", "lint", SessionState.INTERRUPTED, NOW - timedelta(hours=1))
    first, *others = sort_queue(waiting_entries([CHANGE], [early], [permission], NOW))
    assert (first.id, first.kind, first.session_id) == ("perm_1", "permission", "sess_1")
    assert first.title == "builder asks: exec git push"
    assert [entry.id for entry in others] == ["sess_2", "change_1"]


def test_acknowledged_sessions_are_stored_for_a_day(database: Database, clock: FakeClock) -> None:
    """After a day an interruption waits no longer anyway."""
    assert acknowledged_sessions(database) == frozenset()
    acknowledge_session(database, "sess_1")
    clock.advance(timedelta(hours=24))
    acknowledge_session(database, "sess_2")
    assert acknowledged_sessions(database) == {"sess_2"}


def test_an_interruption_that_was_acknowledged_waits_no_longer() -> None:
    cut = session("sess_1", "lint", SessionState.INTERRUPTED)
    queue = waiting_entries([CHANGE], [cut], [], NOW, {"sess_1"})
    assert [entry.id for entry in queue] == ["change_1"]
