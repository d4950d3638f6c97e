"""Which learning records can become candidates (SPEC 5.2, 5.3)."""

import pytest

from engine.learning.candidates.records import find_types, select_opportunities
from engine.model.adaptation import CandidateType, RecordKind
from tests.learning.candidates.adaptation_world import AGENT, make_record


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
