"""Each formula of a record's score at its boundaries, and what all of them have in common (SPEC 5.1)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.learning.candidates import scoring
from engine.learning.candidates.scoring import FULL_COST, OPPORTUNITY, ErrorClass, RecordScore, add_parts, share
from engine.model import Trust


def an_error(points: float, explained: bool, before: int) -> RecordScore:
    return scoring.agent_error(ErrorClass(points, "x", "", explained), before)


AT_THE_LINE: list[tuple[Callable[..., RecordScore], tuple[float, ...], float]] = [
    (scoring.failed_tdd, (2, 0, 2), 59.0),  # one try in vain is no opportunity yet
    (scoring.failed_tdd, (2, 0, 3), 61.0),
    (scoring.failed_tdd, (9, 10 * FULL_COST, 50), 100.0),
    (scoring.repeated_retry, (2, FULL_COST // 5), 60.0),
    (scoring.task_conflict, (4, 1), 60.2),
    (scoring.budget_incident, (999_000, 1_000_000), 60.0),
    (scoring.budget_incident, (1_000_000, 1_000_000), 60.0),
    (scoring.edited_approval, (0.25, 0), 60.0),
    (an_error, (scoring.MISUSED, True, 0), 60.0),
    (an_error, (scoring.MISUSED, False, 2), 60.0),
    (an_error, (scoring.BROKE_OFF, False, 3), 60.0),
    (scoring.guidance_noisy, (0.0,), 60.0),
    (scoring.stale_guidance, (0, 0, 1, 1), 59.0),
    (scoring.stale_guidance, (0, 0, 1, 2), 61.0),
    (scoring.stale_guidance, (360, 180, 0, 0), 60.0),
    (scoring.stale_guidance, (359, 180, 0, 0), 59.9),
    (scoring.stale_guidance, (720, 180, 9, 99), 100.0),
    (scoring.cloud_sync_failure, (9, 0), 58.0),
    (scoring.cloud_sync_failure, (10, 0), 60.0),
    (scoring.cloud_sync_failure, (0, 4), 60.0),
    (scoring.cloud_sync_failure, (99, 99), 100.0),
    (scoring.recall_hit, (3,), 60.0),
    (scoring.tool_sequence, (3, 3.0, 0.1), 60.0),
    (scoring.tool_sequence, (3, 3.0, 0.05), 59.0),
]


@pytest.mark.parametrize(("formula", "arguments", "score"), AT_THE_LINE)
def test_every_formula_at_its_boundaries(
    formula: Callable[..., RecordScore], arguments: tuple[float, ...], score: float
) -> None:
    found = formula(*arguments)
    assert found.score == score
    assert found.reason


COUNTS = st.integers(0, 2_000_000)


@given(COUNTS, COUNTS, COUNTS)
@settings(max_examples=40, deadline=None)
def test_more_of_it_never_weighs_less(attempts: int, cost: int, failing: int) -> None:
    for formula in (scoring.failed_tdd, scoring.successful_heal):
        score = formula(attempts, cost, failing).score
        assert score <= formula(attempts, cost + 1_000, failing).score
        assert score <= formula(attempts, cost, failing + 1).score
    assert scoring.failed_tdd(attempts, cost, failing).score <= scoring.failed_tdd(attempts + 1, cost, failing).score
    assert scoring.repeated_retry(attempts, cost).score <= scoring.repeated_retry(attempts + 1, cost).score
    # A heal at a later try is the weaker repair.
    assert scoring.successful_heal(attempts + 1, cost, 1).score <= scoring.successful_heal(attempts, cost, 1).score


@given(st.lists(st.tuples(st.floats(-200, 200), st.text(min_size=1, max_size=9))))
@settings(max_examples=40, deadline=None)
def test_a_score_is_from_0_to_100(parts: list[tuple[float, str]]) -> None:
    assert 0 <= add_parts(*parts).score <= 100


@given(st.floats(0, 1e9), st.floats(0, 1e9))
@settings(max_examples=40, deadline=None)
def test_a_share_is_from_0_to_1(amount: float, full: float) -> None:
    assert 0 <= share(amount, full) <= 1


def test_what_went_its_way_is_no_opportunity() -> None:
    """However much of it there is: nothing is to be done otherwise."""
    most = [
        scoring.guidance_applied(99, 99),
        scoring.teaching_refresh(99, 0),
        *(scoring.approval(one, "x") for one in (scoring.APPROVED, scoring.PERMISSION, scoring.LASTING_PERMISSION)),
        scoring.landed(99),
    ]
    assert all(one.score < OPPORTUNITY for one in most)


@pytest.mark.parametrize(
    ("trust", "before", "score"),
    [(Trust.QUOTED, 0, 65.0), (Trust.QUOTED, 1, 70.0), (Trust.OPERATOR, 0, 75.0), (Trust.QUOTED, 9, 85.0)],
)
def test_a_kept_fact_weighs_by_whose_words_it_is_and_by_how_many_were_kept_before(
    trust: Trust, before: int, score: float
) -> None:
    assert scoring.kept_fact(trust, before, "x").score == score


def test_a_reason_names_its_parts() -> None:
    assert scoring.repeated_retry(3, FULL_COST).reason == (
        "45.0 another attempt left the same tests failing; +20.0 2 attempts made; +25.0 $0.50 spent on it"
    )
