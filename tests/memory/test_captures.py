"""Captures of sessions: each is stored with its source, once for each workspace, and remembered (SPEC 4.4)."""

import pytest

from engine.memory.captures import Captures
from engine.storage.database import Database
from tests.memory.stand_in_work import StandInWork, make_view


@pytest.fixture
def work() -> StandInWork:
    work = StandInWork()
    work.add(
        make_view(),
        ("say", "I read the parser."),
        ("say", "We decided to keep the old parser."),
        ("output", "The service listens on port 9999."),
        ("reply", "I prefer small commits with a reason."),
        ("note", "Decision: it ran in a worktree of its own."),
    )
    return work


@pytest.fixture
def captures(database: Database, work: StandInWork) -> Captures:
    captures = Captures(database, work, work.remember)
    captures.capture_session("session_1")
    return captures


def test_a_capture_has_its_source_and_is_remembered(captures: Captures, work: StandInWork):
    stored = captures.read_of_session("session_1")
    assert [(capture.kind, capture.source) for capture in stored] == [
        ("decision", "session_1:2"),
        ("fact", "session_1:4"),
        ("decision", "session_1:5"),
    ]
    memory = work.remembered[stored[0].id]
    assert (memory.kind, memory.source, memory.agent) == ("decision", "session_1:2", "backend_builder")
    assert "captured" in memory.tags


def test_a_sentence_with_a_secret_is_not_captured(captures: Captures, work: StandInWork):
    work.secret_values = ("hunter2hunter2",)
    work.add(
        make_view("session_2"),
        ("reply", "Note that the service uses hunter2hunter2 to sign in."),
        ("reply", f"Note that the service uses sk-{'a1' * 15} to sign in."),
    )
    assert captures.capture_session("session_2") == []
    work.secret_values = ()
    assert captures.capture_session("session_2") != []


def test_another_session_that_says_the_same_is_counted_once(captures: Captures, work: StandInWork):
    work.add(make_view("session_2"), ("say", "We decided to keep the old parser!"))
    captures.capture_session("session_2")
    captures.capture_session("session_2")
    (capture,) = captures.read_entries(words="old parser")
    assert (capture.seen, capture.session) == (2, "session_1")
