"""The scores of records by kind of ledger entry, at the boundaries of their formulas (SPEC 5.1)."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.learning.candidates.entry_readers import (
    FULL_COST_MICROUSD,
    READER_OF_KIND,
    Reading,
    add_parts,
    score_heal,
)
from engine.model import Trust
from engine.model.adaptation import LearningRecord
from engine.storage.ledger import LedgerEntry
from tests.conftest import MONDAY_MORNING
from tests.learning.candidates.adaptation_world import AGENT, SHOP, StandInSources, make_fact


def read_record(
    kind: str, payload: dict[str, Any], before: int = 0, sources: StandInSources | None = None
) -> LearningRecord:
    """The record of an entry, where `before` records had the same cause."""
    entry = LedgerEntry(1, MONDAY_MORNING, kind, "it", SHOP, {"agent": AGENT, **payload})
    return next(iter(READER_OF_KIND[kind](Reading(entry, sources or StandInSources(), lambda label, scope: before))))


# Payloads of ledger entries


def make_validation(attempts: int, cost: int, tests: int) -> dict[str, Any]:
    failing = [f"t{number}" for number in range(tests)]
    return {"attempts": attempts, "cost": cost, "failing": failing, "reason": "given up"}


def make_overlap(files: int, conflicting: int) -> dict[str, Any]:
    names = [f"f{number}" for number in range(files)]
    return {
        "session_id": "s", "files": names, "conflicting": names[:conflicting], "other": "o", "other_session_id": "t",
    }  # fmt: skip


def make_stale(days: int, told: int) -> dict[str, Any]:
    return {"leader": "cto", "days": days, "most": 180, "told": told}


def make_error(tool: str, message: str) -> dict[str, Any]:
    return {"tool": tool, "message": message}


RECALLED = {"memories": ["m"], "origins": ["o"], "session_id": "s"}


@pytest.mark.parametrize(
    "kind, payload, before, score",
    [
        ("ValidationFailed", make_validation(2, 0, 2), 0, 59.0),  # one attempt that failed is no opportunity yet
        ("ValidationFailed", make_validation(2, 0, 3), 0, 61.0),
        ("ValidationFailed", make_validation(9, 10 * FULL_COST_MICROUSD, 50), 0, 100.0),
        ("RetryRepeated", make_validation(2, FULL_COST_MICROUSD // 5, 1), 0, 60.0),
        ("WorkOverlapped", make_overlap(4, 1), 0, 60.2),
        ("BudgetExceeded", {"spent": 999_000, "budget": 1_000_000}, 0, 60.0),
        ("BudgetExceeded", {"spent": 1_000_000, "budget": 1_000_000}, 0, 60.0),
        ("AgentErred", make_error("edit", "no_match: it is not there"), 0, 60.0),
        ("AgentErred", make_error("edit", "it is not there"), 2, 60.0),
        ("AgentErred", make_error("exec", "ruff broke off"), 3, 60.0),
        ("AgentErred", make_error("model", "overloaded"), 99, 50.0),  # guidance cannot prevent it
        ("GuidanceFoundNoisy", {"harm": 0.0}, 0, 60.0),
        ("GuidanceFoundStale", make_stale(360, 0), 0, 60.0),
        ("GuidanceFoundStale", make_stale(359, 0), 0, 59.9),
        ("GuidanceFoundStale", make_stale(720, 99), 0, 80.0),
        ("CloudSyncFailed", {"unsent": 9}, 0, 58.0),
        ("CloudSyncFailed", {"unsent": 0}, 4, 60.0),
        ("CloudSyncFailed", {"unsent": 99}, 99, 100.0),
        ("CloudMemoryRecalled", RECALLED, 3, 60.0),
        # Plain success is no opportunity, however large its numbers are.
        ("GuidanceApplied", {"items": [1] * 99, "sources": [1] * 99, "session_id": "s", "call": "c"}, 0, 55.0),
        ("TeachingRefreshed", {"taught": 99, "unchanged": 0}, 0, 50.0),
        ("ChangeSetLanded", {"files": 99, "session_id": "s"}, 0, 35.0),
    ],
)
def test_formulas_at_their_boundaries(kind: str, payload: dict[str, Any], before: int, score: float):
    record = read_record(kind, payload, before)
    assert record.score == score
    assert record.reason


@pytest.mark.parametrize(
    "trust, before, score",
    [(Trust.QUOTED, 0, 65.0), (Trust.QUOTED, 1, 70.0), (Trust.OPERATOR, 0, 75.0), (Trust.QUOTED, 9, 85.0)],
)
def test_a_kept_fact_scores_by_whose_words_it_is_and_by_how_often_it_was_kept_before(
    trust: Trust, before: int, score: float
):
    sources = StandInSources(facts={"it": make_fact("Prices are cents.", trust=trust)})
    assert read_record("FactPromoted", {"by": "operator"}, before, sources).score == score


def test_a_heal_at_a_later_attempt_scores_less():
    scores = [add_parts(*score_heal(attempts, 0, 1))[0] for attempts in (1, 2, 3, 9)]
    assert scores == sorted(scores, reverse=True)
    assert scores[1] == 82.0


@given(st.lists(st.tuples(st.floats(-200, 200), st.text(min_size=1, max_size=9))))
@settings(max_examples=40)
def test_a_score_is_from_0_to_100(parts: list[tuple[float, str]]):
    assert 0 <= add_parts(*parts)[0] <= 100


def test_a_reason_names_its_parts():
    assert read_record("RetryRepeated", make_validation(3, FULL_COST_MICROUSD, 1)).reason == (
        "another attempt left the same tests failing: +45; 2 attempts made: +20; $0.50 spent on it: +25"
    )
