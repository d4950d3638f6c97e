"""Rows of sessions: each moves forward only, and names its changes once (SPEC 3.8, 3.9)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engine.clock import FakeClock
from engine.execution.session_store import CHANGES_WAIT, SessionResult, SessionStore, attach_changes
from engine.model import UNDONE, Assignment, Permit, SessionState, TriggerType
from engine.storage.database import Database

CANCELLED = SessionResult(SessionState.CANCELLED, "stopped by you", error="stopped by you")
SUCCEEDED = SessionResult(SessionState.SUCCEEDED, "done")
FLOW = Assignment("run the tests", "koji-core", "/srv/shop", "flow", "run_tests")


@pytest.fixture
def store(database: Database, clock: FakeClock) -> SessionStore:
    """With one session, `ses_1`, in the queue."""
    made = SessionStore(database, lambda tx, permit, digest: None)
    now = clock.now()
    permit = Permit("permit_1", "pred_1", FLOW.digest, TriggerType.MANUAL, now, now + timedelta(minutes=15))
    made.enqueue("ses_1", permit, FLOW, agent="backend_builder", mode="approved", estimate=0, sandbox="none")
    return made


def summary(store: SessionStore) -> tuple[str, str]:
    row = store.row("ses_1")
    return row.state, row.summary


@pytest.mark.parametrize("has_begun", [True, False])
def test_what_is_over_neither_begins_nor_ends_again(store: SessionStore, has_begun: bool) -> None:
    if has_begun:
        assert store.begin("ses_1", "none") is not None
        assert store.begin("ses_1", "none") is None
    assert store.end("ses_1", CANCELLED, lines=0)
    assert store.begin("ses_1", "none") is None
    assert not store.end("ses_1", SUCCEEDED, lines=9, write=lambda tx: "change_1")
    assert summary(store) == ("cancelled", "stopped by you")
    assert store.row("ses_1").change_set_id is None


def attach(database: Database, session_id: str, change_set_id: str = "change_1") -> bool:
    return database.write(lambda tx: attach_changes(tx, session_id, lambda tx: change_set_id, cwd="/srv/shop"))


@pytest.mark.parametrize(("result", "expected"), [(SUCCEEDED, "done"), (CANCELLED, f"stopped by you; {CHANGES_WAIT}")])
def test_changes_of_a_session_that_was_stopped_are_told_of(
    store: SessionStore, database: Database, result: SessionResult, expected: str
) -> None:
    store.begin("ses_1", "none")
    assert store.end("ses_1", result, lines=0, write=lambda tx: "change_1")
    assert summary(store) == (result.state.value, expected)
    assert not attach(database, "ses_1", "change_2")
    assert store.row("ses_1").change_set_id == "change_1"


@pytest.mark.parametrize(("error", "is_attached"), [("stopped by you", True), (UNDONE, False)])
def test_changes_that_are_found_later_belong_to_what_was_not_undone(
    store: SessionStore, database: Database, error: str, is_attached: bool
) -> None:
    store.begin("ses_1", "none")
    assert not attach(database, "ses_1"), "it runs still"
    store.end("ses_1", SessionResult(SessionState.CANCELLED, error, error=error), lines=0)
    assert attach(database, "ses_1") is is_attached
    assert not attach(database, "ses_2")
    assert store.row("ses_1").change_set_id == ("change_1" if is_attached else None)
