"""What happened since an instant (SPEC 9.3)."""

from __future__ import annotations

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
    acknowledged_sessions,
    activity_since,
    count_learned,
    sort_queue,
    waiting_entries,
)
from engine.clock import FakeClock
from engine.model import (
    ChangeSet,
    ChangeState,
    PermissionRequest,
    RailVerdict,
    SessionState,
    SessionView,
    Verdict,
    Waiting,
)
from engine.storage.database import Database

NIGHT = datetime(2026, 1, 5, 23, tzinfo=UTC)
TICK = timedelta(microseconds=1)
LATER = NIGHT + TICK


def session(name: str, at: datetime | None) -> SessionView:
    return SessionView(
        name, "pred_1", "run", "/shop", "koji-core", "", "flow", None, SessionState.SUCCEEDED, "autonomous", "", "",
        NIGHT, NIGHT, at, 0, 0, "",
    )  # fmt: skip


def entry(at: datetime, *verdicts: RailVerdict) -> Any:
    return SimpleNamespace(at=at, prediction_id="pred_2", prompt="push", verdicts=verdicts, decided_by="autonomy")


def fact(at: datetime, kind: str, by: str = "operator", card: str = "pred_1", status: str = "") -> Any:
    return SimpleNamespace(at=at, kind=kind, subject=card, payload={"decided_by": by, "by": by, "status": status})


ALLOW, ASK = RailVerdict("rate", Verdict.ALLOW, ""), RailVerdict("content", Verdict.ASK, "it pushes")
BLOCK = RailVerdict("gate", Verdict.BLOCK, "later rail")


def activity(**changes: Any) -> ActivitySince:
    arguments: dict[str, Any] = {"sessions": (), "blocked_entries": (), "decision_facts": (), "spent": 0, "waits": ()}
    return activity_since(NIGHT, **(arguments | changes))


def test_only_what_is_later_counts_and_the_oldest_end_comes_first() -> None:
    later, before, running = session("b", LATER), session("a", NIGHT), session("c", None)
    latest = session("d", NIGHT + 2 * TICK)
    assert [one.id for one in activity(sessions=[running, latest, later, before]).ran] == ["b", "d"]


def test_the_first_rail_that_did_not_allow_is_named() -> None:
    then = activity(blocked_entries=[entry(LATER, ALLOW, ASK, BLOCK), entry(NIGHT, BLOCK)])
    assert [(one.rail, one.verdict, one.reason) for one in then.blocked] == [("content", Verdict.ASK, "it pushes")]


def test_decisions_are_counted_by_who_made_them() -> None:
    confirmed, rejected = "PredictionConfirmed", "PredictionRejected"
    then = activity(
        decision_facts=[
            fact(LATER, confirmed), fact(LATER, confirmed, "autonomy", "pred_2"),
            fact(NIGHT, confirmed, card="pred_3"), fact(LATER, rejected, card="pred_4"),
            fact(NIGHT, rejected, card="pred_5"),
        ]
    )  # fmt: skip
    assert (then.approved, then.approved_by_itself, then.rejected) == (2, 1, 1)


def test_a_decision_taken_back_counts_no_more_and_the_one_after_it_counts_once() -> None:
    confirmed, rejected, reopened = "PredictionConfirmed", "PredictionRejected", "PredictionReopened"
    newest_first = [
        fact(NIGHT + 4 * TICK, confirmed), fact(NIGHT + 3 * TICK, reopened), fact(NIGHT + 2 * TICK, rejected),
        fact(NIGHT + 2 * TICK, reopened, card="pred_2"), fact(LATER, rejected, card="pred_2"),
    ]  # fmt: skip
    then = activity(decision_facts=newest_first)
    assert (then.approved, then.rejected) == (1, 0)
    assert set(DECISION_KINDS) == {confirmed, rejected, reopened}


@pytest.mark.parametrize("waits", [(), (Waiting("change_set", "chg", "land 1 file?", NIGHT),)])
def test_what_waits_is_there_whenever_it_came_and_is_nothing_that_happened(waits: tuple[Waiting, ...]) -> None:
    assert activity(waits=waits).waits == waits
    assert activity(waits=waits) == replace(activity(), waits=waits)


def test_what_was_learnt_since() -> None:
    facts = [
        fact(LATER, "LearningPromoted"),
        fact(LATER, "LearningPromoted", card="y"),
        fact(LATER, "FactPromoted"),
        fact(LATER, "CandidateWeighed", card="cand_1", status="review"),
        fact(LATER, "CandidateWeighed", card="cand_1", status="drafted"),
        fact(LATER, "CandidateWeighed", card="cand_1", status="review"),
        fact(LATER, "CandidatePromoted", "operator", "cand_1"),
        fact(LATER, "CandidatePromoted", "autonomy", "cand_2"),
    ]
    assert {one.kind for one in facts} == set(LEARNING_KINDS)
    assert count_learned(facts, NIGHT) == LearnedCounts(2, 1, 1, 1)
    assert count_learned(facts, LATER) == LearnedCounts()


# The operator's one queue: what is in it, and how each entry leaves it (SPEC 9.3).


NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
CHANGE = ChangeSet("change_1", "sess_0", "pred_0", "/shop", ChangeState.WAITING, (), "fix", NOW)


def session_view(name: str, flow: str | None, state: SessionState, ended_at: datetime = NOW) -> SessionView:
    return SessionView(
        name, "pred_1", "do it", "/shop", "koji-core", "a", "flow", flow, state, "approved", "none", "/shop", ended_at,
        ended_at, ended_at, 0, 0, "",
    )  # fmt: skip


def waiting(*newest_first: SessionView, now: datetime = NOW) -> list[str]:
    return [entry.id for entry in sort_queue(waiting_entries([CHANGE], newest_first, [], now))]


def test_the_longest_waiting_first() -> None:
    early = session_view("sess_1", "lint", SessionState.INTERRUPTED, NOW - timedelta(hours=1))
    assert waiting(early) == ["sess_1", "change_1"]


def test_an_interruption_leaves_when_it_was_run_again_or_after_a_day() -> None:
    cut = session_view("sess_1", "lint", SessionState.INTERRUPTED)
    other = session_view("sess_2", "run_tests", SessionState.SUCCEEDED)
    assert "sess_1" in waiting(other, cut)
    assert "sess_1" not in waiting(replace(other, flow="lint"), cut)
    assert "sess_1" in waiting(cut, now=NOW + timedelta(hours=24) - timedelta(microseconds=1))
    assert "sess_1" not in waiting(cut, now=NOW + timedelta(hours=24))


def test_a_permission_stands_before_what_waits_longer() -> None:
    permission = PermissionRequest(
        "perm_1", "sess_1", "builder", "/shop", "exec", "exec git push", "git push", "why", NOW
    )
    early = session_view("sess_2", "lint", SessionState.INTERRUPTED, NOW - timedelta(hours=1))
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
    cut = session_view("sess_1", "lint", SessionState.INTERRUPTED)
    queue = waiting_entries([CHANGE], [cut], [], NOW, {"sess_1"})
    assert [entry.id for entry in queue] == ["change_1"]
