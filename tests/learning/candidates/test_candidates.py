"""The life of a candidate, from the sessions that support it to the operator's decisions and their undo, until it is
forgotten (SPEC 5.3 to 5.7)."""

from functools import partial

import pytest

from engine.learning.candidates.candidates import CandidateTexts
from engine.model.adaptation import (
    Candidate,
    CandidateStatus,
    FixTemplate,
)
from engine.storage.erasing import SearchTerms
from tests.learning.candidates.adaptation_world import (
    HEALED_BY,
    SHOP,
    TOTAL,
    AdaptationWorld,
)
from tests.support.helpers import refused


def test_an_active_candidate_shows_its_stations_records_and_overlays(world: AdaptationWorld):
    candidate = world.bring_to_review()
    world.adaptation.approve(candidate.id)
    view = world.adaptation.view(candidate.id)
    assert [station.name for station in view.stations] == [
        "detect", "draft", "score", "corroborate", "review", "promote",
    ]  # fmt: skip
    assert {station.state for station in view.stations} == {"done"}
    assert len(view.records) == 2
    assert len(view.overlays) == 1


def test_forgotten_words_leave_a_candidate_and_an_empty_one_is_rejected(world: AdaptationWorld):
    candidate = world.bring_to_review()
    texts = CandidateTexts(world.database)
    assert list(texts.find(SearchTerms(["nobody said this"]))) == []
    assert list(texts.find(SearchTerms(["discount"]))) == [(candidate.id, HEALED_BY)]
    assert texts.erase(SearchTerms(["discount"])) == 1
    (candidate,) = world.adaptation.candidates()
    assert candidate.effect == FixTemplate((TOTAL,), ("it changed cart.py",))
    assert candidate.status is CandidateStatus.REVIEW
    assert texts.erase(SearchTerms(["cart.py"])) == 1
    (candidate,) = world.adaptation.candidates()
    assert (candidate.status, candidate.reason) == (CandidateStatus.REJECTED, "its text was forgotten")
    assert texts.erase(SearchTerms(["cart.py"])) == 0


def test_fixes_are_offered_of_landed_changes_that_were_not_rejected(world: AdaptationWorld):
    world.end_healed_session("sess_1")
    world.sources.patches["sess_1"] = "diff --git a/cart.py b/cart.py"
    world.adaptation.run_round()
    assert world.adaptation.find_fixes(SHOP) == [], "what an agent broke and fixed was never in the operator's files"
    for session in ("sess_2", "sess_3"):
        world.sources.patches[session] = "diff --git a/price.py b/price.py"
        world.land_repair(session, f"t.py::{session}")
    world.adaptation.run_round()
    assert [fix.title for fix in world.adaptation.find_fixes(SHOP)] == ["the task of sess_3", "the task of sess_2"]
    assert world.adaptation.find_fixes("/other") == []
    newest = world.adaptation.find_fixes(SHOP)[0]
    assert newest.template.failing == ("t.py::sess_3",)
    world.adaptation.reject(newest.id)
    assert [fix.title for fix in world.adaptation.find_fixes(SHOP)] == ["the task of sess_2"]


# Undone decisions (SPEC 5.3)


@pytest.fixture
def candidate(world: AdaptationWorld) -> Candidate:
    """A candidate that waits for the operator."""
    return world.bring_to_review()


def test_only_the_operators_own_last_step_can_be_undone(world: AdaptationWorld, candidate: Candidate):
    undo = partial(world.adaptation.undo, candidate.id)
    refused("nothing_to_undo", undo)  # nobody decided
    world.adaptation.approve(candidate.id)
    undone = undo()
    assert (undone.status, undone.decided_by, undone.reason) == (CandidateStatus.REVIEW, "", candidate.reason)
    assert world.list_active_ids() == []
    assert [wait.id for wait in world.adaptation.waiting()] == [candidate.id]
    refused("nothing_to_undo", undo)  # it is undone already
    world.adaptation.approve(candidate.id, by="autonomy")
    refused("nothing_to_undo", undo)  # the operator did not decide
    assert world.list_active_ids() == [candidate.id]


def test_an_undone_rejection_is_in_review_and_an_undone_roll_back_active_again(
    world: AdaptationWorld, candidate: Candidate
):
    world.adaptation.reject(candidate.id, "not now")
    assert world.adaptation.undo(candidate.id).status is CandidateStatus.REVIEW
    review = next(station for station in world.adaptation.view(candidate.id).stations if station.name == "review")
    assert review.words == "needs your decision; undone: reject (not now)"
    world.adaptation.approve(candidate.id)
    world.adaptation.roll_back(candidate.id, "it did not help")
    assert world.adaptation.undo(candidate.id).status is CandidateStatus.ACTIVE
    assert world.list_active_ids() == [candidate.id]
    assert world.adaptation.roll_back(candidate.id).status is CandidateStatus.ROLLED_BACK
