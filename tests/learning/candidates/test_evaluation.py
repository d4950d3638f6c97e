"""The rules by which candidates are judged (SPEC 5.3): which records can become one, what supports one, and
its score."""

import pytest

from engine.learning.candidates.evaluation import (
    compute_score,
    evaluate,
    select_opportunities,
    select_supporting,
)
from engine.model.adaptation import (
    Candidate,
    CandidateStatus,
    CandidateType,
    Effect,
    FlowOffload,
    LearningRecord,
    PolicyTweak,
)
from tests.learning.candidates.adaptation_world import AGENT, make_record


def make_candidate(drafted_from: LearningRecord, effect: Effect | None = None) -> Candidate:
    """A candidate that was drafted from a record."""
    return Candidate(
        "cand_1", CandidateType.POLICY_TWEAK, drafted_from.scope_type, drafted_from.scope_id, drafted_from.source_label,
        "t", CandidateStatus.DRAFTED, drafted_from.score, effect or PolicyTweak(1), drafted_from.at, drafted_from.at,
        agent_id=AGENT, drafted_from=(drafted_from.id,),
    )  # fmt: skip


# Records that can become candidates


@pytest.mark.parametrize("score, opportunities", [(59.9, 0), (60.0, 1), (100.0, 1)])
def test_a_record_is_an_opportunity_from_60_points_on(score: float, opportunities: int):
    assert len(select_opportunities([make_record(1, score=score)])) == opportunities


# Scores and supporting records


@pytest.mark.parametrize(
    "drafted, scores, expected",
    [
        (100.0, [], 45.0),
        (30.0, [], 30.0),
        (80.0, [80.0], 73.0),
        (80.0, [64.8], 60.08),
        (80.0, [64.7], 59.995),  # just below the minimum for review
        (80.0, [50.0, 50.0, 50.0], 57.5),
        (80.0, [53.0, 53.0, 53.0], 60.05),
        (80.0, [80.0] * 3, 83.0),
        (80.0, [80.0] * 4, 83.0),  # the bonus ends at 15
        (80.0, [100.0] * 3, 100.0),
        (0.0, [0.0] * 9, 15.0),
        (80.0, [0.0] * 9, 45.0),  # at least the score without support
        (80.0, [90.0, 30.0], 81.5),  # at least the score with the strongest record alone
    ],
)
def test_the_score_is_that_of_the_specification(drafted: float, scores: list[float], expected: float):
    assert compute_score(drafted, scores) == expected


def test_supporting_records_have_the_same_label_and_scope_and_another_session():
    first = make_record(1)
    others = [
        first,
        make_record(2),
        make_record(3, label="failed_tdd/a"),
        make_record(4, scope_id="other"),
        make_record(5, scope_type="workspace"),
        make_record(6, session_id="sess_1"),  # the session that the candidate was drafted from
        make_record(7, session_id="sess_2", score=90),  # a higher score in the same session
        make_record(8, session_id=""),
        make_record(9, session_id=""),  # records without a session count alone
    ]
    supporting = select_supporting(make_candidate(first), [first], others)
    assert [record.id for record in supporting] == ["rec_7", "rec_8", "rec_9"]


@pytest.mark.parametrize(
    "command, failed, is_against",
    [
        ("git status --short", "exec:git status", True),
        ("./run.sh -x", "exec:run.sh", True),
        ("make", "exec:make docs", False),
    ],
)
def test_a_command_that_could_not_run_speaks_against_the_flow_that_runs_it(command: str, failed: str, is_against: bool):
    first = make_record(1)
    message = f"{failed}: exit code 127"
    error = make_record(2, label="agent_error/exec/x", details={"tool": "exec", "message": message})
    evaluation = evaluate(make_candidate(first, FlowOffload("f", "f", (command,))), [first], [first, error])
    assert evaluation.against == ((error.id,) if is_against else ())
