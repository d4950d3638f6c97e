"""The operator's one queue: what is in it, and how each entry leaves it (SPEC 9.3)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine import views
from engine.clock import FakeClock
from engine.events import EventBus
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
from engine.storage.ledger import append

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)


NIGHT = datetime(2026, 1, 5, 23, tzinfo=UTC)
TICK = timedelta(microseconds=1)
LATER = NIGHT + TICK
CHANGE = ChangeSet("change_1", "sess_0", "pred_0", "/shop", ChangeState.WAITING, (), "fix", NOW)


def session(name: str, flow: str | None, state: SessionState, ended_at: datetime = NOW) -> SessionView:
    return SessionView(
        name, "pred_1", "do it", "/shop", "koji-core", "a", "flow", flow, state, "approved", "none", "/shop", ended_at,
        ended_at, ended_at, 0, 0, "",
    )  # fmt: skip


def waiting(*newest_first: SessionView, now: datetime = NOW) -> list[str]:
    return [one.id for one in views.waiting([CHANGE], newest_first, [], now)]


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
    queue = views.waiting([CHANGE], [], [asked], NOW)
    assert [one.id for one in queue] == ["perm_1", "change_1"]
    assert (queue[0].kind, queue[0].title, queue[0].session_id) == (
        "permission",
        "builder asks: exec git push",
        "sess_1",
    )


def test_a_permission_stands_before_what_waits_longer() -> None:
    asked = PermissionRequest("perm_1", "sess_1", "builder", "/shop", "exec", "git push", "git push", "why", NOW)
    early = session("sess_2", "lint", SessionState.INTERRUPTED, NOW - timedelta(hours=1))
    queue = views.waiting([CHANGE], [early], [asked], NOW)
    assert [one.id for one in queue] == ["perm_1", "sess_2", "change_1"]


def test_an_interruption_that_was_acknowledged_waits_no_longer(tmp_path: Path, clock: FakeClock) -> None:
    database = Database(tmp_path / "engine.db", clock=clock, bus=EventBus(), recorder=append)
    try:
        assert views.acknowledged_sessions(database) == frozenset()
        views.acknowledge(database, "sess_1")
        clock.advance(timedelta(hours=24))
        views.acknowledge(database, "sess_2")
        assert views.acknowledged_sessions(database) == {"sess_2"}, "after a day an interruption waits no longer anyway"
    finally:
        database.close()
    cut = session("sess_1", "lint", SessionState.INTERRUPTED)
    queue = views.waiting([CHANGE], [cut], [], NOW, {"sess_1"})
    assert [one.id for one in queue] == ["change_1"]


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
    assert {one.kind for one in facts} == set(views.LEARNT)
    assert views.learnt_since(facts, NIGHT) == views.Learnt(2, 1, 1, 1)
    assert views.learnt_since(facts, LATER).is_empty
    nothing = views.since(NOW, sessions=(), blocked=(), decided=(), spent=0, waits=())
    assert nothing.is_empty
    assert not replace(nothing, learnt=views.Learnt(proposed=1)).is_empty


def ended(name: str, at: datetime | None) -> SessionView:
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


def look(**more: Any) -> views.Since:
    given: dict[str, Any] = {"sessions": (), "blocked": (), "decided": (), "spent": 0, "waits": ()}
    return views.since(NIGHT, **(given | more))


def test_only_what_is_later_counts_and_the_oldest_end_comes_first() -> None:
    later, before, running = ended("b", NIGHT + TICK), ended("a", NIGHT), ended("c", None)
    latest = ended("d", NIGHT + 2 * TICK)
    assert [one.id for one in look(sessions=[running, latest, later, before]).ran] == ["b", "d"]


def test_the_first_rail_that_did_not_allow_is_named() -> None:
    then = look(blocked=[entry(NIGHT + TICK, ALLOW, ASK, BLOCK), entry(NIGHT, BLOCK)])
    assert [(one.rail, one.verdict, one.reason) for one in then.blocked] == [("content", Verdict.ASK, "it pushes")]


def test_decisions_are_counted_by_who_made_them() -> None:
    confirmed, rejected = "PredictionConfirmed", "PredictionRejected"
    then = look(
        decided=[
            fact(NIGHT + TICK, confirmed), fact(NIGHT + TICK, confirmed, "autonomy", "pred_2"),
            fact(NIGHT, confirmed, card="pred_3"), fact(NIGHT + TICK, rejected, card="pred_4"),
            fact(NIGHT, rejected, card="pred_5"),
        ]
    )  # fmt: skip
    assert (then.approved, then.approved_by_itself, then.rejected) == (2, 1, 1)


def test_a_decision_taken_back_counts_no_more_and_the_one_after_it_counts_once() -> None:
    confirmed, rejected, reopened = "PredictionConfirmed", "PredictionRejected", "PredictionReopened"
    newest_first = [
        fact(NIGHT + 4 * TICK, confirmed), fact(NIGHT + 3 * TICK, reopened), fact(NIGHT + 2 * TICK, rejected),
        fact(NIGHT + 2 * TICK, reopened, card="pred_2"), fact(NIGHT + TICK, rejected, card="pred_2"),
    ]  # fmt: skip
    then = look(decided=newest_first)
    assert (then.approved, then.rejected) == (1, 0)
    assert set(views.DECIDED) == {confirmed, rejected, reopened}


@pytest.mark.parametrize("waits", [(), (Waiting("change_set", "chg", "land 1 file?", NIGHT),)])
def test_what_waits_is_there_whenever_it_came_and_is_nothing_that_happened(waits: tuple[Waiting, ...]) -> None:
    assert look(waits=waits).waits == waits
    assert look(waits=waits).is_empty
