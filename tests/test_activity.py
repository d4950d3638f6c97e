"""What happened since an instant (SPEC 9.3)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from engine.activity import DECISION_KINDS, LEARNING_KINDS, ActivitySince, LearnedCounts, activity_since, count_learned
from engine.model import RailVerdict, SessionState, SessionView, Verdict, Waiting

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
