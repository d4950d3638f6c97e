"""The operator takes his last decision on a candidate back: it stands, and acts, as it did before (SPEC 5.3)."""

from __future__ import annotations

import pytest

from engine.model import Refusal
from engine.model.adaptation import Candidate, CandidateStatus
from tests.learning.candidates.world import World


@pytest.fixture
def candidate(world: World) -> Candidate:
    """A candidate that waits for the operator."""
    world.heal("sess_1")
    world.adaptation.run_round()
    world.heal("sess_2")
    world.adaptation.run_round()
    (found,) = world.adaptation.candidates(CandidateStatus.REVIEW)
    return found


def test_what_was_promoted_waits_again_and_acts_no_longer(world: World, candidate: Candidate) -> None:
    world.adaptation.approve(candidate.id)
    back = world.adaptation.undo(candidate.id)
    assert (back.status, back.decided_by, back.reason) == (candidate.status, candidate.decided_by, candidate.reason)
    assert world.shelf.in_force == []
    assert [wait.id for wait in world.adaptation.waiting()] == [candidate.id]
    states = [(station.name, station.state) for station in world.adaptation.view(candidate.id).stations]
    assert states[-2:] == [("review", "now"), ("promote", "ahead")]
    assert world.adaptation.approve(candidate.id).status is CandidateStatus.PROMOTED


def test_only_the_last_step_and_only_the_operators_own(world: World, candidate: Candidate) -> None:
    def refused() -> bool:
        with pytest.raises(Refusal) as told:
            world.adaptation.undo(candidate.id)
        return told.value.code == "nothing_to_undo"

    assert refused()  # nobody decided
    world.adaptation.approve(candidate.id)
    world.adaptation.undo(candidate.id)
    assert refused()  # it was taken back already
    world.adaptation.approve(candidate.id, by="autonomy")
    assert refused()
    assert world.shelf.in_force == [candidate.id]


def test_what_was_rejected_waits_again_and_what_was_rolled_back_acts_again(world: World, candidate: Candidate) -> None:
    world.adaptation.reject(candidate.id, "not now")
    assert world.adaptation.undo(candidate.id).status is CandidateStatus.REVIEW
    review = next(station for station in world.adaptation.view(candidate.id).stations if station.name == "review")
    assert review.words == "needs your decision; undone: reject (not now)"
    world.adaptation.approve(candidate.id)
    world.adaptation.roll_back(candidate.id, "it did not help")
    assert world.adaptation.undo(candidate.id).status is CandidateStatus.PROMOTED
    assert world.shelf.in_force == [candidate.id]
    assert world.adaptation.roll_back(candidate.id).status is CandidateStatus.ROLLED_BACK
