"""The life of a candidate: who activates it and undoes that, when it is rolled back by itself, that it can be
forgotten, and failures on the way (SPEC 5.3, 5.6, 5.7, 11.3)."""

from collections.abc import Callable, Sequence
from functools import partial

import pytest

from engine.clock import FakeClock
from engine.config.settings import AdaptationMode
from engine.learning.candidates.life_cycle import CandidateEraser
from engine.model.adaptation import Candidate, CandidateStatus, FixTemplate
from engine.storage.database import Database, Transaction
from engine.storage.erasing import SearchTerms
from tests.learning.candidates.adaptation_world import (
    AGENT,
    HEALED_BY,
    SHOP,
    TOTAL,
    AdaptationWorld,
    make_retry_repeated,
)
from tests.support.checks import refused

REVIEW, ACTIVE = CandidateStatus.REVIEW, CandidateStatus.ACTIVE


@pytest.fixture
def autonomous_world(database: Database, clock: FakeClock) -> AdaptationWorld:
    """Adaptation in autonomous mode."""
    return AdaptationWorld(database, clock, mode=AdaptationMode.AUTONOMOUS)


def measure_candidate(world: AdaptationWorld) -> Candidate:
    """A measured candidate, without quotes, that two sessions support."""
    world.record(make_retry_repeated("sess_1"), make_retry_repeated("sess_2"))
    world.adaptation.run_round()
    (candidate,) = world.adaptation.list_candidates()
    return candidate


def test_nothing_is_activated_in_phase_0_or_while_work_is_held(autonomous_world: AdaptationWorld):
    autonomous_world.sources.phase_number = 0
    assert measure_candidate(autonomous_world).status is REVIEW
    autonomous_world.sources.phase_number, autonomous_world.sources.hold_reason = 1, "stopped"
    autonomous_world.adaptation.run_round()
    assert autonomous_world.adaptation.list_candidates()[0].status is REVIEW
    autonomous_world.sources.hold_reason = ""
    autonomous_world.adaptation.run_round()
    assert autonomous_world.adaptation.list_candidates()[0].status is ACTIVE


def test_in_manual_mode_a_roll_back_of_a_harmful_candidate_is_proposed(world: AdaptationWorld):
    candidate = world.bring_to_review()
    world.adaptation.approve(candidate.id)
    assert world.adaptation.waiting() == []
    world.run_trial(candidate.id, with_good=3, without_good=10)
    (waiting,) = world.adaptation.waiting()
    assert (waiting.kind, waiting.id) == ("candidate", candidate.id)
    assert waiting.title.startswith("roll back? ")
    assert "3 of 12 went well with it, 10 of 12 without it" in waiting.title
    [event] = [entry for entry in world.ledger.read_since(0, 100) if entry.kind == "OverlayFoundHarmful"]
    assert (event.payload["candidate_id"], event.payload["with_good"]) == (candidate.id, 3)
    world.adaptation.run_round()
    assert world.adaptation.list_candidates()[0].status is ACTIVE  # the operator decides
    world.adaptation.roll_back(candidate.id)
    assert world.adaptation.waiting() == []


def test_in_autonomous_mode_a_harmful_candidate_is_rolled_back_even_while_work_is_held(
    autonomous_world: AdaptationWorld,
):
    candidate = measure_candidate(autonomous_world)
    autonomous_world.run_trial(candidate.id, with_good=3, without_good=10)
    autonomous_world.sources.hold_reason, autonomous_world.sources.phase_number = "stopped", 0
    autonomous_world.adaptation.run_round()
    (candidate,) = autonomous_world.adaptation.list_candidates()
    assert (candidate.status, candidate.decided_by) == (CandidateStatus.ROLLED_BACK, "autonomy")
    assert "it makes work worse: 3 of 12 went well with it, 10 of 12 without it" in candidate.reason
    assert autonomous_world.list_active_ids() == []
    autonomous_world.sources.hold_reason, autonomous_world.sources.phase_number = "", 1
    autonomous_world.record(make_retry_repeated("sess_3"))
    autonomous_world.adaptation.run_round()  # it is not activated by itself again
    assert autonomous_world.adaptation.list_candidates()[0].status is CandidateStatus.ROLLED_BACK


def test_a_round_drafts_five_candidates_and_the_next_one_the_others(world: AdaptationWorld):
    for number in range(7):
        world.end_healed_session(f"sess_{number}", failing=(f"tests/test_{number}.py::test_total",))
    assert [len(world.adaptation.run_round()) for _ in range(3)] == [5, 2, 0]


def test_forgotten_words_leave_a_candidate_and_an_empty_one_is_rejected(world: AdaptationWorld):
    candidate = world.bring_to_review()
    texts = CandidateEraser(world.database)
    assert list(texts.find(SearchTerms(["nobody said this"]))) == []
    assert list(texts.find(SearchTerms(["discount"]))) == [(candidate.id, HEALED_BY)]
    assert texts.erase(SearchTerms(["discount"])) == 1
    (candidate,) = world.adaptation.list_candidates()
    assert candidate.effect == FixTemplate((TOTAL,), ("it changed cart.py",))
    assert candidate.status is CandidateStatus.REVIEW
    assert texts.erase(SearchTerms(["cart.py"])) == 1
    (candidate,) = world.adaptation.list_candidates()
    assert (candidate.status, candidate.reason) == (CandidateStatus.REJECTED, "its text was forgotten")
    assert texts.erase(SearchTerms(["cart.py"])) == 0


def test_only_the_operators_own_last_step_can_be_undone(world: AdaptationWorld):
    candidate = world.bring_to_review()
    undo = partial(world.adaptation.undo, candidate.id)
    refused("nothing_to_undo", undo)  # nobody decided
    assert world.adaptation.view(candidate.id).stages[-2].words == "needs your decision"
    world.adaptation.approve(candidate.id)
    assert [stage.state for stage in world.adaptation.view(candidate.id).stages] == ["done"] * 6
    undone = undo()
    assert (undone.status, undone.decided_by, undone.reason) == (CandidateStatus.REVIEW, "", candidate.reason)
    assert world.list_active_ids() == []
    assert [wait.id for wait in world.adaptation.waiting()] == [candidate.id]
    refused("nothing_to_undo", undo)  # it is undone already
    world.adaptation.approve(candidate.id, by="autonomy")
    refused("nothing_to_undo", undo)  # the operator did not decide
    assert world.list_active_ids() == [candidate.id]


def test_a_repair_whose_landing_is_undone_is_not_told_to_agents_until_it_is_landed_again(world: AdaptationWorld):
    world.adapt(withheld=0.0)
    world.land_repair("sess_1")
    world.land_repair("sess_2")
    world.adaptation.run_round()
    (candidate,) = world.adaptation.list_candidates()
    world.adaptation.approve(candidate.id)

    def find_repairs() -> Sequence[str]:
        return world.adaptation.find_repairs(agent=AGENT, workspace=SHOP, broken=[TOTAL], session_id="sess_4")

    repairs = find_repairs()
    assert repairs
    world.sources.undone_sessions |= {"sess_1", "sess_2"}
    assert find_repairs() == ()
    world.sources.undone_sessions.clear()
    assert find_repairs() == repairs


# Failures


class PowerFailure(Exception):
    """The process ends here."""


def test_a_round_that_fails_at_any_write_is_finished_by_the_next(
    world: AdaptationWorld, monkeypatch: pytest.MonkeyPatch
):
    """Round n fails after n writes. The first round that has fewer writes finishes the work, and does nothing twice."""
    world.end_healed_session("sess_1")
    world.end_healed_session("sess_2")
    write, writes_left, failures = world.database.write, 0, 0

    def write_or_fail(work: Callable[[Transaction], object]) -> object:
        nonlocal writes_left
        writes_left -= 1
        if writes_left < 0:
            raise PowerFailure
        return write(work)

    monkeypatch.setattr(world.database, "write", write_or_fail)
    while True:
        writes_left = failures
        try:
            world.reopen().run_round()
            break
        except PowerFailure:
            failures += 1
    assert failures >= 3
    (candidate,) = world.adaptation.list_candidates()
    assert candidate.status is REVIEW
    assert world.read_candidate_events() == ["CandidateDrafted", "CandidateWeighed"]
    assert len(world.adaptation.list_records("successful_heal")) == 2
