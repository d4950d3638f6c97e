"""Who activates candidates, which are rolled back by themselves, and failures on the way (SPEC 5.6, 5.7, 11.3)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlmodel import Session

from engine.clock import FakeClock
from engine.config import AdaptationMode
from engine.events import ChangeSetLanded, FactPromoted
from engine.learning.candidates.candidates import load_candidates
from engine.learning.candidates.records import HealedTests
from engine.model import Trust
from engine.model.adaptation import Candidate, CandidateStatus, Lift
from engine.storage.database import Database, Transaction
from tests.learning.candidates.world import AGENT, SHOP, TOTAL, World, para_fact, retry_repeated

REVIEW, ACTIVE = CandidateStatus.REVIEW, CandidateStatus.ACTIVE


@pytest.fixture
def autonomous(database: Database, clock: FakeClock) -> World:
    return World(database, clock, mode=AdaptationMode.AUTONOMOUS)


def candidate_in_review(world: World) -> Candidate:
    """A candidate that two sessions support."""
    world.heal("sess_1")
    world.heal("sess_2")
    world.adaptation.run_round()
    (candidate,) = world.adaptation.candidates()
    return candidate


def measured_candidate(world: World) -> Candidate:
    """A measured candidate, without quotes, that two sessions support."""
    world.record(retry_repeated("sess_1"), retry_repeated("sess_2"))
    world.adaptation.run_round()
    (candidate,) = world.adaptation.candidates()
    return candidate


def candidate_of_retries(world: World) -> Candidate:
    (candidate,) = [each for each in world.adaptation.candidates() if each.source_label == "repeated_retry"]
    return candidate


def set_lift(world: World, candidate: str, verdict: str = "harms") -> None:
    overlay = next(overlay for overlay in world.overlays.load_active() if overlay.candidate_id == candidate)
    world.trials.lifts_by_candidate[candidate] = Lift(overlay.id, 12, 3, 12, 10, -0.58, -0.8, -0.2, verdict)


def test_in_autonomous_mode_quotes_wait_for_the_operator(autonomous: World) -> None:
    candidate = candidate_in_review(autonomous)
    assert (candidate.status, candidate.trust) == (REVIEW, Trust.QUOTED)
    autonomous.adaptation.approve(candidate.id)
    assert autonomous.overlays.candidate_ids == [candidate.id]


def test_in_autonomous_mode_measured_candidates_are_activated(autonomous: World) -> None:
    candidate = measured_candidate(autonomous)
    assert (candidate.status, candidate.decided_by) == (ACTIVE, "autonomy")
    assert autonomous.overlays.candidate_ids == [candidate.id]


@pytest.mark.parametrize(("reason", "held", "free"), [("phase_number", 0, 1), ("hold_reason", "stopped", "")])
def test_nothing_is_activated_in_phase_0_or_while_work_is_held(
    autonomous: World, reason: str, held: object, free: object
) -> None:
    setattr(autonomous.sources, reason, held)
    assert measured_candidate(autonomous).status is REVIEW
    setattr(autonomous.sources, reason, free)
    autonomous.adaptation.run_round()
    assert autonomous.adaptation.candidates()[0].status is ACTIVE


def test_a_candidate_that_the_content_filter_objects_to_waits_for_the_operator(autonomous: World) -> None:
    autonomous.sources.objection = "it speaks of rm -rf /"
    candidate = measured_candidate(autonomous)
    assert candidate.status is REVIEW
    autonomous.adaptation.approve(candidate.id)
    assert autonomous.overlays.candidate_ids == [candidate.id]


def test_a_candidate_whose_approval_was_undone_waits_for_the_operator(autonomous: World) -> None:
    autonomous.sources.phase_number = 0
    candidate = measured_candidate(autonomous)
    autonomous.adaptation.approve(candidate.id)
    autonomous.adaptation.undo(candidate.id)
    autonomous.sources.phase_number = 1
    autonomous.adaptation.run_round()
    assert autonomous.adaptation.candidates()[0].status is REVIEW
    assert autonomous.overlays.candidate_ids == []


def test_a_candidate_with_as_much_evidence_against_it_waits_for_the_operator(autonomous: World) -> None:
    autonomous.record(retry_repeated("sess_1"))
    autonomous.adaptation.run_round()  # at most one try
    autonomous.heal("sess_3", attempts=4)  # which it would have cut short
    autonomous.record(retry_repeated("sess_2"))
    autonomous.adaptation.run_round()
    candidate = candidate_of_retries(autonomous)
    assert candidate.status is REVIEW
    assert len(candidate.against) == len(candidate.corroborated_by) == 1
    autonomous.record(retry_repeated("sess_4"))
    autonomous.adaptation.run_round()
    candidate = candidate_of_retries(autonomous)
    assert candidate.status is ACTIVE


def test_a_candidate_leaves_review_when_the_landing_that_supported_it_is_undone(world: World) -> None:
    for session in ("sess_1", "sess_2"):
        world.sources.healed_by_session[session] = HealedTests({TOTAL: ""}, "", AGENT, 0)
        world.sources.summaries[session] = "Rounded once."
        world.record(ChangeSetLanded(subject=f"chg_{session}", workspace=SHOP, session_id=session, files=1))
    world.adaptation.run_round()
    (candidate,) = world.adaptation.candidates()
    assert candidate.status is REVIEW
    world.sources.undone_sessions |= {
        record.session_id for record in world.adaptation.records() if record.id in candidate.corroborated_by
    }
    world.record(retry_repeated("sess_3"))
    world.adaptation.run_round()
    candidate = world.adaptation.view(candidate.id).candidate
    assert (candidate.status, candidate.score) == (CandidateStatus.DRAFTED, 45.0)
    assert world.adaptation.waiting() == []


def test_of_facts_that_say_much_the_same_one_candidate_comes_up_for_review(world: World) -> None:
    for number, text in enumerate(["Prices are whole cents in every file", "All prices are whole cents in every file"]):
        world.sources.facts[f"fact_{number}"] = para_fact(text)
        world.record(FactPromoted(subject=f"fact_{number}", workspace=SHOP, by="operator"))
    world.adaptation.run_round()
    (in_review,) = world.adaptation.candidates(REVIEW)
    (drafted,) = world.adaptation.candidates(CandidateStatus.DRAFTED)
    assert drafted.reason == f"{in_review.id} already proposes that"


def test_in_manual_mode_a_roll_back_of_a_harmful_candidate_is_proposed(world: World) -> None:
    candidate = candidate_in_review(world)
    world.adaptation.approve(candidate.id)
    set_lift(world, candidate.id, "makes no difference")
    assert world.adaptation.waiting() == []
    set_lift(world, candidate.id)
    (waiting,) = world.adaptation.waiting()
    assert (waiting.kind, waiting.id) == ("candidate", candidate.id)
    assert waiting.title.startswith("roll back? ")
    assert "3 of 12 went well with it, 10 of 12 without it" in waiting.title
    world.adaptation.run_round()
    assert world.adaptation.candidates()[0].status is ACTIVE  # the operator decides
    world.adaptation.roll_back(candidate.id)
    assert world.adaptation.waiting() == []


def test_in_autonomous_mode_a_harmful_candidate_is_rolled_back_even_while_work_is_held(autonomous: World) -> None:
    candidate = measured_candidate(autonomous)
    set_lift(autonomous, candidate.id)
    autonomous.sources.hold_reason, autonomous.sources.phase_number = "stopped", 0
    autonomous.adaptation.run_round()
    (candidate,) = autonomous.adaptation.candidates()
    assert (candidate.status, candidate.decided_by) == (CandidateStatus.ROLLED_BACK, "autonomy")
    assert "it makes work worse: 3 of 12 went well with it, 10 of 12 without it" in candidate.reason
    assert autonomous.overlays.candidate_ids == []
    autonomous.sources.hold_reason, autonomous.sources.phase_number = "", 1
    autonomous.record(retry_repeated("sess_3"))
    autonomous.adaptation.run_round()  # and is not put back by itself
    assert autonomous.adaptation.candidates()[0].status is CandidateStatus.ROLLED_BACK


def test_a_round_drafts_five_candidates_and_the_next_one_the_others(world: World) -> None:
    for number in range(7):
        world.heal(f"sess_{number}", failing=(f"tests/test_{number}.py::test_total",))
    assert [len(world.adaptation.run_round()) for _ in range(3)] == [5, 2, 0]


def test_a_candidate_is_drafted_after_its_session_ended(world: World) -> None:
    world.sources.running.add("sess_1")
    world.heal("sess_1")
    assert world.adaptation.run_round() == []
    world.sources.running.clear()
    assert len(world.adaptation.run_round()) == 1


# -- failures


def state_of(world: World, candidate: str) -> tuple[CandidateStatus, list[str], int, int]:
    """What changes together: the status, the active candidates, the lengths of the history and of the ledger."""
    row = next(row for row in load_candidates(world.database) if row.id == candidate)
    events = len(world.candidate_events())
    return CandidateStatus(row.status), world.overlays.candidate_ids, len(row.history), events


def _fail(*_: object) -> None:
    raise RuntimeError("the power failed")


@pytest.mark.parametrize(("failing", "step"), [(Transaction, "record"), (Session, "flush")], ids=["event", "commit"])
@pytest.mark.parametrize("decision", ["approve", "roll_back"])
def test_a_decision_that_fails_at_any_step_changes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, failing: type, step: str, decision: str
) -> None:
    candidate = candidate_in_review(world)
    if decision == "roll_back":
        world.adaptation.approve(candidate.id)
    before = state_of(world, candidate.id)
    with monkeypatch.context() as patch:
        patch.setattr(failing, step, _fail)
        with pytest.raises(RuntimeError, match="the power failed"):
            getattr(world.adaptation, decision)(candidate.id)
    assert state_of(world, candidate.id) == before
    getattr(world.adaptation, decision)(candidate.id)
    status, candidate_ids, history, events = state_of(world, candidate.id)
    assert (status, candidate_ids) == (
        (ACTIVE, [candidate.id]) if decision == "approve" else (CandidateStatus.ROLLED_BACK, [])
    )
    assert (history, events) == (before[2] + 1, before[3] + 1)


def test_a_round_that_fails_at_any_write_is_finished_by_the_next(
    database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the n-th write of a round the power fails; the next round finishes it, and does nothing twice."""
    world = World(database, clock)
    world.heal("sess_1")
    world.heal("sess_2")
    write = database.write
    failures = 0
    for number in range(20):
        left = [number]

        def write_until_failure(work: Callable[[Transaction], object], left: list[int] = left) -> object:
            if left[0] == 0:
                raise RuntimeError("the power failed")
            left[0] -= 1
            return write(work)

        monkeypatch.setattr(database, "write", write_until_failure)
        try:
            world.reopen().run_round()
        except RuntimeError:
            failures += 1
            continue
        break
    monkeypatch.setattr(database, "write", write)
    assert failures >= 3
    (candidate,) = world.adaptation.candidates()
    assert candidate.status is REVIEW
    assert world.candidate_events() == ["CandidateDrafted", "CandidateWeighed"]
    assert len(world.adaptation.records("successful_heal")) == 2
