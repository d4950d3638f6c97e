"""The operator's one queue: what is in it, and how each entry leaves it (SPEC 9.3)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from engine.clock import FakeClock
from engine.events import EventBus
from engine.model import ChangeSet, ChangeState, PermissionRequest, SessionState, SessionView
from engine.storage.database import Database
from engine.storage.ledger import append
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


def test_a_permission_that_a_session_waits_for_is_in_the_queue() -> None:
    asked = PermissionRequest(
        "perm_1", "sess_1", "builder", "/shop", "exec", "exec git push", "git push", "why", NOW - timedelta(minutes=1)
    )
    queue = sort_queue(waiting_entries([CHANGE], [], [asked], NOW))
    assert [entry.id for entry in queue] == ["perm_1", "change_1"]
    assert (queue[0].kind, queue[0].title, queue[0].session_id) == (
        "permission",
        "builder asks: exec git push",
        "sess_1",
    )


def test_a_permission_stands_before_what_waits_longer() -> None:
    asked = PermissionRequest("perm_1", "sess_1", "builder", "/shop", "exec", "git push", "git push", "why", NOW)
    early = session("sess_2", "lint", SessionState.INTERRUPTED, NOW - timedelta(hours=1))
    queue = sort_queue(waiting_entries([CHANGE], [early], [asked], NOW))
    assert [entry.id for entry in queue] == ["perm_1", "sess_2", "change_1"]


def test_an_interruption_that_was_acknowledged_waits_no_longer(tmp_path: Path, clock: FakeClock) -> None:
    database = Database(tmp_path / "engine.db", clock=clock, bus=EventBus(), recorder=append)
    try:
        assert acknowledged_sessions(database) == frozenset()
        acknowledge_session(database, "sess_1")
        clock.advance(timedelta(hours=24))
        acknowledge_session(database, "sess_2")
        assert acknowledged_sessions(database) == {"sess_2"}, "after a day an interruption waits no longer anyway"
    finally:
        database.close()
    cut = session("sess_1", "lint", SessionState.INTERRUPTED)
    queue = waiting_entries([CHANGE], [cut], [], NOW, {"sess_1"})
    assert [entry.id for entry in queue] == ["change_1"]
