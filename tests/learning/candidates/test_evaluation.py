"""The rules by which candidates are judged: which records can become one, what supports it, and its score (SPEC 5.3);
once it is active its lift, and whom it is withheld from (5.5, 5.7)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import Settings
from engine.inference import Arms
from engine.learning.candidates.evaluation import (
    compute_score,
    evaluate,
    select_opportunities,
    select_supporting,
)
from engine.learning.candidates.overlays import make_fragment_lines, measure_lift
from engine.model.adaptation import (
    Candidate,
    CandidateStatus,
    CandidateType,
    Effect,
    FlowOffload,
    LearningRecord,
    Overlay,
    PolicyTweak,
    PromptFragment,
)
from tests.learning.candidates.adaptation_world import AGENT, AdaptationWorld, make_record


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


# Lift (SPEC 5.7)


@pytest.mark.parametrize(
    "arms, verdict",
    [
        (Arms(), "not enough evidence"),
        (Arms(40, 0, 0, 0), "not enough evidence"),  # nothing to compare with
        (Arms(4, 0, 1, 1), "not enough evidence"),
        (Arms(8, 0, 4, 4), "harms"),
        (Arms(40, 10, 10, 9), "harms"),
        (Arms(10, 10, 10, 0), "helps"),
        (Arms(40, 28, 10, 7), "not enough evidence"),  # no difference was seen, but one of any size could be there
        (Arms(2000, 1000, 500, 250), "makes no difference"),
        (Arms(40, 20, 10, 7), "not enough evidence"),  # chance does this at one of many checks
    ],
)
def test_verdicts(arms: Arms, verdict: str):
    assert measure_lift("over_1", [arms]).verdict == verdict


def test_an_overlay_is_withheld_from_a_fifth_of_the_runs():
    assert Settings().adaptation.withheld == 0.2


# Active fragments in prompts (SPEC 5.5)


@given(st.lists(st.text(min_size=1, max_size=60), min_size=1, max_size=4))
@settings(max_examples=60)
def test_no_text_can_close_the_block(lines: list[str]):
    overlay = Overlay("over_1", "cand_1", CandidateType.PROMPT_FRAGMENT, "", "", "", PromptFragment(tuple(lines)), None)
    for line in make_fragment_lines(overlay):
        assert line.text.startswith("- ")
        assert "<" not in line.text
        assert "\x1b" not in line.text


def read_guidance(world: AdaptationWorld, session: str) -> str:
    """The learned guidance in a prompt of a session."""
    part = world.make_guidance(session).part
    return part.text if part else ""


def test_a_fragment_is_withheld_from_all_prompts_of_a_share_of_the_sessions(world: AdaptationWorld):
    world.adapt(withheld=0.2)
    first = world.activate_fragment("First.")
    world.activate_fragment("Second.")
    texts = {f"ses_{number}": read_guidance(world, f"ses_{number}") for number in range(400)}
    without_first = [session for session, prompt in texts.items() if "First." not in prompt]
    assert 50 <= len(without_first) <= 110
    part = world.make_guidance(next(session for session in without_first if "Second." in texts[session]))
    assert part.notes == ("learned guidance: 1 of 2 left out by chance, to measure what it does",)
    draws = {draw["id"]: draw for draw in part.provenance["overlays"]}
    assert (draws[first.id]["withheld"], draws[first.id]["propensity"]) == (True, 0.2)
    assert "First." in read_guidance(world, ""), "a prompt without a session has everything"
