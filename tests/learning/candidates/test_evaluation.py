"""The rules by which candidates are judged (SPEC 5.2, 5.3): which records can become one, supporting records, scores,
records against it, and when a rejected one is reopened."""

from dataclasses import replace
from typing import Any

import pytest

from engine.learning.candidates.evaluation import (
    compute_score,
    evaluate,
    has_new_evidence,
    is_same_change,
    select_supporting,
)
from engine.learning.candidates.records import find_types, select_opportunities
from engine.model.adaptation import (
    Candidate,
    CandidateStatus,
    CandidateType,
    Effect,
    FixTemplate,
    FlowOffload,
    LearningRecord,
    PolicyTweak,
    PromptFragment,
    RecordKind,
    RoutingHint,
)
from tests.learning.candidates.adaptation_world import AGENT, make_record

TEST = "tests/test_cart.py::test_total"


def make_candidate(drafted_from: LearningRecord, effect: Effect | None = None, **changes: Any) -> Candidate:
    """A candidate that was drafted from a record."""
    original = Candidate(
        "cand_1", CandidateType.POLICY_TWEAK, drafted_from.scope_type, drafted_from.scope_id, drafted_from.source_label,
        "t", CandidateStatus.DRAFTED, drafted_from.score, effect or PolicyTweak(1), drafted_from.at, drafted_from.at,
        agent_id=AGENT, drafted_from=(drafted_from.id,),
    )  # fmt: skip
    return replace(original, **changes)


# Records that can become candidates


@pytest.mark.parametrize(
    "type, kinds",
    [
        (CandidateType.FIX_TEMPLATE, {RecordKind.FAILED_TDD, RecordKind.SUCCESSFUL_HEAL}),
        (
            CandidateType.ROUTING_HINT,
            {RecordKind.BUDGET_INCIDENT, RecordKind.TASK_CONFLICT, RecordKind.SUCCESSFUL_BUBBLE},
        ),
        (
            CandidateType.POLICY_TWEAK,
            {
                RecordKind.REPEATED_RETRY,
                RecordKind.CLOUD_SYNC_FAILURE,
                RecordKind.STALE_GUIDANCE,
                RecordKind.GUIDANCE_NOISY,
            },
        ),
        (CandidateType.FLOW_OFFLOAD, {RecordKind.TOOL_SEQUENCE}),
    ],
)
def test_each_type_is_drafted_from_the_kinds_of_the_specification(type: CandidateType, kinds: set[RecordKind]):
    """SPEC 5.2. The other kinds can become a prompt fragment."""
    assert {kind for kind in RecordKind if type in find_types(kind)} == kinds
    assert all(find_types(kind) for kind in RecordKind)


@pytest.mark.parametrize("score, opportunities", [(59.9, 0), (60.0, 1), (100.0, 1)])
def test_a_record_is_an_opportunity_from_60_points_on(score: float, opportunities: int):
    assert len(select_opportunities([make_record(1, score=score)])) == opportunities


def test_opportunities_are_the_best_and_newest_of_each_key():
    with_same_key = [
        make_record(1, score=70),
        make_record(2, score=90),
        make_record(3, score=90),
        make_record(4, score=61),
    ]
    (opportunity,) = select_opportunities(with_same_key)
    assert opportunity.record.id == "rec_3"
    assert opportunity.key == f"validator_policy_tweak:agent:{AGENT}:repeated_retry"
    assert select_opportunities(with_same_key, {opportunity.key}) == []
    with_own_keys = [make_record(number, scope_id=f"agent_{number}", score=60 + number) for number in range(30)]
    scores = [opportunity.record.score for opportunity in select_opportunities(with_own_keys)]
    assert scores == list(range(89, 64, -1))


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


@pytest.mark.parametrize(
    "fact, other, is_support",
    [
        ("prices are stored as whole cents", "all prices are stored as whole cents!", True),
        ("prices are stored as whole cents", "releases are tagged on Mondays", False),
        ("prices are stored as whole cents", "prices are not stored as whole cents", False),
        ("use uv", "use uv for installs", False),  # 2 of 4 words are equal
        ("use uv everywhere", "use uv everywhere in scripts", True),  # 3 of 5 words, which is the minimum
        ("we install with uv", "we install with pip", False),  # 3 of 5 words, but one was replaced
    ],
)
def test_kept_facts_support_each_other_if_they_say_much_the_same_and_replace_no_word(
    fact: str, other: str, is_support: bool
):
    first, second = (
        make_record(number, label=f"human_approval/fact:{text}", details={"kept": "", "text": text})
        for number, text in enumerate((fact, other), 1)
    )
    assert select_supporting(make_candidate(first), [first], [first, second]) == [second] * is_support
    assert select_supporting(make_candidate(second), [second], [first, second]) == [first] * is_support


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


def test_a_candidate_passes_only_with_a_supporting_record():
    first = make_record(1, score=100)
    alone = evaluate(make_candidate(first), [first], [first])
    assert (alone.score, alone.has_passed, alone.corroborated_by) == (45.0, False, ())
    assert "no other record" in alone.reason
    assert evaluate(make_candidate(first), [first], [first, make_record(2, score=65)]).has_passed
    assert not evaluate(make_candidate(first), [first], [first, make_record(2, score=64)]).has_passed


# Records against a candidate

HEAL = make_record(
    2, label=f"successful_heal/{TEST}", details={"attempts": 3, "cost": 200_000, "test": TEST, "failing": [TEST]}
)
FLOW = FlowOffload("f", "f", ("git status --short", "pytest"))


def make_command_error(message: str) -> LearningRecord:
    """The record of a command that could not run."""
    return make_record(2, label="agent_error/exec/x", details={"tool": "exec", "message": message})


@pytest.mark.parametrize(
    "effect, against, speaks",
    [
        (PolicyTweak(1), HEAL, True),
        (PolicyTweak(2), HEAL, False),
        (RoutingHint("openai:small"), make_record(2, label=f"failed_tdd/{TEST}"), True),
        (PromptFragment(("x",)), make_record(2, label="guidance_noisy"), True),
        (FLOW, make_command_error("exec:git status: code 127"), True),
        (FLOW, make_command_error("exec:ruff: code 127"), False),
    ],
)
def test_records_against_an_effect_are_listed_and_do_not_change_the_score(
    effect: Effect, against: LearningRecord, speaks: bool
):
    first = make_record(1)
    evaluation = evaluate(make_candidate(first, effect), [first], [first, against])
    assert (evaluation.against == (against.id,)) is speaks
    assert evaluation.score == 45.0


@pytest.mark.parametrize(
    "effect, other, same",
    [
        (RoutingHint("openai:small", "c", 10, "why"), RoutingHint("openai:small", "c", 20, "because"), True),
        (FixTemplate(("a", "b"), ("fix",)), FixTemplate(("b",), ("fix",)), True),
        (FixTemplate(("a",), ("fix",)), FixTemplate(("b",), ("fix",)), False),
        (PolicyTweak(1), PolicyTweak(1, 5), False),
        (PromptFragment(("x",)), PromptFragment(("x",)), True),
        (PromptFragment(("x",)), PolicyTweak(1), False),
    ],
)
def test_effects_that_make_the_same_change(effect: Effect, other: Effect, same: bool):
    assert is_same_change(effect, other) is is_same_change(other, effect) is same


# Rejected candidates


@pytest.mark.parametrize("old, new, is_reopened", [(1, 2, False), (1, 3, True), (4, 4, False), (4, 5, True)])
def test_a_rejected_candidate_is_reopened_by_as_many_new_records_as_before_and_at_least_three(
    old: int, new: int, is_reopened: bool
):
    """`old` records supported it when it was rejected, besides the one it was drafted from."""
    first = make_record(0)
    old_records = [make_record(number) for number in range(1, old + 1)]
    new_records = [make_record(50 + number) for number in range(1, new + 1)]
    supporting = tuple(record.id for record in old_records)
    rejected_candidate = make_candidate(first, corroborated_by=supporting, changed_at=make_record(50).at)
    records = [first, *old_records, *new_records]
    assert has_new_evidence(rejected_candidate, [first], records) is is_reopened
