"""Rows of sessions: only legal transitions are stored, and changes are stored once (SPEC 3.8, 3.9)."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.clock import FakeClock
from engine.execution.session_store import (
    CHANGES_WAIT,
    SessionResult,
    SessionStore,
    attach_changes,
    get_continued_session,
    is_legal_transition,
)
from engine.model import UNDONE, Assignment, Permit, SessionState, TriggerType
from engine.storage.database import Database

STATES = st.sampled_from(list(SessionState))


FLOW = Assignment("run the tests", "koji-core", "/srv/shop", "flow", "run_tests")


@pytest.fixture
def store(database: Database, clock: FakeClock) -> SessionStore:
    """With one session, `sess_1`, in the queue."""
    store = SessionStore(database, lambda tx, permit, digest: None)
    now = clock.now()
    permit = Permit("permit_1", "pred_1", FLOW.digest, TriggerType.MANUAL, now, now + timedelta(minutes=15))
    store.enqueue("sess_1", permit, FLOW, agent="backend_builder", mode="approved", estimate=0, sandbox="none")
    return store


def read_state_and_summary(store: SessionStore) -> tuple[str, str]:
    row = store.load_row("sess_1")
    return row.state, row.summary


def attach_change_set(database: Database, session_id: str, change_set_id: str = "change_1") -> bool:
    return database.write(lambda tx: attach_changes(tx, session_id, lambda tx: change_set_id, cwd="/srv/shop"))


@given(st.lists(STATES, max_size=8))
def test_a_session_ends_at_most_once_and_never_runs_again(steps: list[SessionState]):
    state, ended = SessionState.QUEUED, 0
    for after in steps:
        if is_legal_transition(state, after):
            assert not state.over
            assert after is not SessionState.QUEUED
            state = after
            ended += after.over
    assert ended <= 1


CANCELLED = SessionResult(SessionState.CANCELLED, "stopped by you", error="stopped by you")
SUCCEEDED = SessionResult(SessionState.SUCCEEDED, "done")


@pytest.mark.parametrize("has_begun", [True, False])
def test_a_session_that_is_over_neither_begins_nor_ends_again(store: SessionStore, has_begun: bool):
    if has_begun:
        assert store.begin("sess_1", "none") is not None
        assert store.begin("sess_1", "none") is None
    assert store.end("sess_1", CANCELLED, lines=0)
    assert store.begin("sess_1", "none") is None
    assert not store.end("sess_1", SUCCEEDED, lines=9, write=lambda tx: "change_1")
    assert read_state_and_summary(store) == ("cancelled", f"stopped by you; {CHANGES_WAIT}")
    assert store.load_row("sess_1").change_set_id == "change_1", "its thread returned with them after its end"


@pytest.mark.parametrize("result, expected", [(SUCCEEDED, "done"), (CANCELLED, f"stopped by you; {CHANGES_WAIT}")])
def test_the_summary_of_a_stopped_session_says_that_its_changes_wait(
    store: SessionStore, database: Database, result: SessionResult, expected: str
):
    store.begin("sess_1", "none")
    assert store.end("sess_1", result, lines=0, write=lambda tx: "change_1")
    assert read_state_and_summary(store) == (result.state.value, expected)
    assert not attach_change_set(database, "sess_1", "change_2")
    assert store.load_row("sess_1").change_set_id == "change_1"


@pytest.mark.parametrize("error, is_attached", [("stopped by you", True), (UNDONE, False)])
def test_later_changes_are_attached_unless_the_card_was_undone(
    store: SessionStore, database: Database, error: str, is_attached: bool
):
    store.begin("sess_1", "none")
    assert not attach_change_set(database, "sess_1"), "it runs still"
    store.end("sess_1", SessionResult(SessionState.CANCELLED, error, error=error), lines=0)
    assert attach_change_set(database, "sess_1") is is_attached
    assert not attach_change_set(database, "sess_2")
    assert store.load_row("sess_1").change_set_id == ("change_1" if is_attached else None)


def test_only_text_prompts_continue_a_session():
    text_prompt = Assignment("go on", "koji-core", "/w", "model", None, {"continues": "sess_1"})
    assert get_continued_session(text_prompt) == "sess_1"
    assert get_continued_session(Assignment("x", "koji-core", "/w", "flow", "run_tests", {"continues": "sess_1"})) == ""
    assert get_continued_session(Assignment("x", "koji-core", "/w", "model")) == ""
