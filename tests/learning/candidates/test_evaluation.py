"""The rules by which candidates are judged: which records can become one, what supports it, and its score (SPEC 5.3);
once it is active its lift, and whom it is withheld from (5.5, 5.7)."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.inference import Arms
from engine.learning.candidates.evaluation import compute_score, evaluate, select_opportunities, select_supporting
from engine.learning.candidates.overlays import make_fragment_lines, measure_lift
from engine.model.adaptation import (
    Candidate,
    CandidateStatus,
    CandidateType,
    FlowOffload,
    LearningRecord,
    Overlay,
    PolicyTweak,
    PromptFragment,
)
from tests.learning.candidates.adaptation_world import AGENT, AdaptationWorld, make_record
from tests.support import read_table

ROWS = read_table(__file__)


def make_candidate(drafted_from: LearningRecord) -> Candidate:
    """A candidate that was drafted from a record."""
    return Candidate(
        "cand_1", CandidateType.POLICY_TWEAK, drafted_from.scope_type, drafted_from.scope_id, drafted_from.source_label,
        "t", CandidateStatus.DRAFTED, drafted_from.score, PolicyTweak(1), drafted_from.at, drafted_from.at,
        agent_id=AGENT, drafted_from=(drafted_from.id,),
    )  # fmt: skip


# Records that can become candidates


@pytest.mark.parametrize("score, opportunities", [(59.9, 0), (60.0, 1), (100.0, 1)])
def test_a_record_is_an_opportunity_from_60_points_on(score: float, opportunities: int):
    assert len(select_opportunities([make_record(1, score=score)])) == opportunities


# Scores and supporting records


@pytest.mark.parametrize("drafted, scores, expected", ROWS["scores"])
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


def test_a_command_that_could_not_run_speaks_against_the_flow_that_runs_it():
    first = make_record(1)
    details = {"tool": "exec", "message": "exec:git status: exit code 127"}
    error = make_record(2, label="agent_error/exec/x", details=details)
    candidate = replace(make_candidate(first), effect=FlowOffload("f", "f", ("git status --short",)))
    assert evaluate(candidate, [first], [first, error]).against == (error.id,)


# Lift (SPEC 5.7)

FRAGMENT = Overlay("over_1", "cand_1", CandidateType.PROMPT_FRAGMENT, "", "", "", PromptFragment(("First.",)), None)


@pytest.mark.parametrize("counts, verdict", ROWS["verdicts"])
def test_an_overlay_helps_or_harms_only_beyond_chance(counts: list[int], verdict: str):
    assert measure_lift("over_1", [Arms(*counts)]).verdict == verdict


def test_an_overlay_is_withheld_from_a_fifth_of_the_sessions_and_always_from_the_same(world: AdaptationWorld):
    def list_withheld() -> list[str]:
        names = [f"ses_{number}" for number in range(400)]
        return [name for name in names if world.trials.draw([FRAGMENT], name)[0].withheld]

    sessions = list_withheld()
    assert 50 <= len(sessions) <= 110
    assert list_withheld() == sessions
    assert not world.trials.draw([FRAGMENT], "")[0].withheld, "a prompt without a session has everything"


# Active fragments in prompts (SPEC 5.5)


@given(st.lists(st.text(min_size=1, max_size=60), min_size=1, max_size=4))
@settings(max_examples=60)
def test_no_text_can_close_the_block(lines: list[str]):
    for line in make_fragment_lines(replace(FRAGMENT, effect=PromptFragment(tuple(lines)))):
        assert line.text.startswith("- ")
        assert "<" not in line.text
        assert "\x1b" not in line.text
