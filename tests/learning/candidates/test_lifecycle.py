"""From what happened to a change of behaviour and back (SPEC 5.3 to 5.7), on a real database and ledger."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engine.config import FixedSettings
from engine.events import ChangeSetLanded
from engine.learning.candidates.candidates import CandidateTexts
from engine.learning.candidates.records import HealedTests
from engine.model import Refusal
from engine.model.adaptation import Candidate, CandidateStatus, FixTemplate
from engine.retention import Retention
from engine.storage.erasing import SearchTerms
from tests.learning.candidates.world import AGENT, HEALED_BY, SHOP, TOTAL, World, failed


def kinds(world: World, like: str = "Candidate") -> list[str]:
    from engine.storage.ledger import Ledger

    return [one.kind for one in Ledger(world.database).since(0, 10_000) if one.kind.startswith(like)]


def test_a_second_session_bears_it_out_and_the_operator_decides(world: World) -> None:
    world.heal("sess_1")
    world.adaptation.run_round()
    world.heal("sess_2")
    assert world.adaptation.run_round() == []  # of the same nothing is drafted twice
    (one,) = world.adaptation.candidates()
    assert one.status is CandidateStatus.REVIEW
    assert len(one.drafted_from) == len(one.corroborated_by) == 1
    assert [wait.kind for wait in world.adaptation.waiting()] == ["candidate"]
    promoted = world.adaptation.approve(one.id[:8])
    assert promoted.status is CandidateStatus.PROMOTED
    assert promoted.decided_by == "operator"
    assert world.shelf.in_force == [one.id]
    assert world.adaptation.waiting() == []
    with pytest.raises(Refusal) as refused:
        world.adaptation.approve(one.id)
    assert refused.value.code == "already_decided"
    world.adaptation.roll_back(one.id, "it did not help")
    assert world.shelf.in_force == []
    world.adaptation.approve(one.id)
    assert world.shelf.in_force == [one.id]
    assert kinds(world) == [
        "CandidateDrafted", "CandidateWeighed", "CandidatePromoted", "CandidateRolledBack", "CandidatePromoted",
    ]  # fmt: skip
    view = world.adaptation.view(one.id)
    assert [station.name for station in view.stations] == [
        "detect", "draft", "score", "corroborate", "review", "promote",
    ]  # fmt: skip
    assert {station.state for station in view.stations} == {"done"}
    assert len(view.records) == 2
    assert len(view.overlays) == 2


def test_red_tests_get_the_repair_that_healed_them_elsewhere(world: World) -> None:
    world.happened(failed("sess_1"))
    assert world.adaptation.run_round() == []
    assert "nothing has fixed" in next(iter(world.adaptation.not_drafted.values()))
    world.heal("sess_2")
    made = world.adaptation.run_round()
    assert [one.effect for one in made] == [FixTemplate((TOTAL,), (HEALED_BY, "it changed cart.py"))] * 2
    world.happened(failed("sess_3"))
    world.adaptation.run_round()
    by_status = {candidate.status: candidate.source_label for candidate in world.adaptation.candidates()}
    assert by_status[CandidateStatus.REVIEW] == f"failed_tdd/{TOTAL}"
    world.heal("sess_4")  # the same repair for the other reason is not asked about a second time
    world.adaptation.run_round()
    assert len(world.adaptation.candidates(CandidateStatus.REVIEW)) == 1
    world.adaptation.reject(world.adaptation.candidates(CandidateStatus.REVIEW)[0].id)
    world.heal("sess_5")
    world.adaptation.run_round()
    assert len(world.adaptation.candidates(CandidateStatus.REVIEW)) == 0


def test_old_records_go_but_for_those_that_a_candidate_names(world: World) -> None:
    def sessions() -> list[str]:
        return [record.session_id for record in world.adaptation.records()]

    world.heal("sess_1")
    world.happened(failed("sess_2", failing=("t.py::other",)))
    world.adaptation.run_round()
    world.clock.advance(timedelta(days=179))
    world.happened(failed("sess_3", failing=("t.py::other",)))
    world.adaptation.run_round()
    rounds = Retention(world.database, world.clock, FixedSettings(), frozenset())
    assert rounds.round() == {}
    world.clock.advance(timedelta(days=1, minutes=1))
    world.happened(failed("sess_4", failing=("t.py::other",)))
    world.adaptation.run_round()
    assert rounds.round() == {"learning_records": 1}
    assert sessions() == ["sess_4", "sess_3", "sess_1"]


def test_what_is_forgotten_is_proposed_no_more(world: World) -> None:
    world.heal("sess_1")
    world.heal("sess_2")
    world.adaptation.run_round()
    texts = CandidateTexts(world.database)
    (one,) = world.adaptation.candidates(CandidateStatus.REVIEW)
    assert list(texts.find(SearchTerms(["nobody said this"]))) == []
    assert list(texts.find(SearchTerms(["discount"]))) == [(one.id, HEALED_BY)]
    assert texts.erase(SearchTerms(["discount"])) == 1
    (less,) = world.adaptation.candidates()
    assert less.effect == FixTemplate((TOTAL,), ("it changed cart.py",))
    assert less.status is CandidateStatus.REVIEW
    assert texts.erase(SearchTerms(["cart.py"])) == 1
    (gone,) = world.adaptation.candidates()
    assert (gone.status, gone.reason) == (CandidateStatus.REJECTED, "its text was forgotten")
    assert texts.erase(SearchTerms(["cart.py"])) == 0


def test_fixes_that_may_be_offered_are_landed_and_stand(world: World) -> None:
    world.heal("sess_1")
    world.told.patches["sess_1"] = "diff --git a/cart.py b/cart.py"
    world.adaptation.run_round()
    assert world.adaptation.fixes(SHOP) == [], "what an agent fixed of its own was never in the operator's files"
    for session in ("sess_2", "sess_3"):
        world.told.turned_green[session] = HealedTests({f"t.py::{session}": ""}, "", AGENT, 0)
        world.told.patches[session] = "diff --git a/price.py b/price.py"
        world.told.summaries[session] = "Rounded once."
        world.happened(ChangeSetLanded(subject=f"chg_{session}", workspace=SHOP, session_id=session, files=1))
    world.adaptation.run_round()
    assert [fix.title for fix in world.adaptation.fixes(SHOP)] == ["the task of sess_3", "the task of sess_2"]
    assert world.adaptation.fixes("/other") == []
    newest = world.adaptation.fixes(SHOP)[0]
    assert newest.template.failing == ("t.py::sess_3",)
    world.adaptation.reject(newest.id)
    assert [fix.title for fix in world.adaptation.fixes(SHOP)] == ["the task of sess_2"]


def test_a_landing_that_was_taken_back_bears_no_fix_out(world: World) -> None:
    world.told.taken_back.add("sess_2")
    for session in ("sess_1", "sess_2"):
        world.told.turned_green[session] = HealedTests({TOTAL: ""}, "", AGENT, 0)
        world.told.summaries[session] = "Rounded once."
        world.happened(ChangeSetLanded(subject=f"chg_{session}", workspace=SHOP, session_id=session, files=1))
        world.adaptation.run_round()
    (one,) = world.adaptation.candidates()
    assert one.status is CandidateStatus.DRAFTED
    world.told.taken_back.clear()
    world.heal("sess_3")
    world.adaptation.run_round()
    assert len(world.adaptation.candidates()[0].corroborated_by) == 2


# The operator takes his last decision on a candidate back: it stands, and acts, as it did before (SPEC 5.3).


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
