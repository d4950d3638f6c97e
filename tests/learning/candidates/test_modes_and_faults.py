"""Who promotes, what is rolled back by itself, and that nothing is ever half (SPEC 5.6, 5.7, 11.3)."""

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
from engine.storage.ledger import Ledger
from tests.learning.candidates.world import AGENT, SHOP, TOTAL, World, para_fact, retried

REVIEW, PROMOTED = CandidateStatus.REVIEW, CandidateStatus.PROMOTED


@pytest.fixture
def autonomous(database: Database, clock: FakeClock) -> World:
    return World(database, clock, mode=AdaptationMode.AUTONOMOUS)


def reviewed(world: World) -> Candidate:
    """A candidate that two sessions bear out."""
    world.heal("sess_1")
    world.heal("sess_2")
    world.adaptation.run_round()
    (one,) = world.adaptation.candidates()
    return one


def measured(world: World) -> Candidate:
    """A candidate that two sessions bear out, and that says nothing in anybody's words."""
    world.happened(retried("sess_1"), retried("sess_2"))
    world.adaptation.run_round()
    (one,) = world.adaptation.candidates()
    return one


def harms(world: World, candidate: str, verdict: str = "harms") -> None:
    overlay = next(one for one in world.shelf.active() if one.candidate_id == candidate)
    world.trials.seen[candidate] = Lift(overlay.id, 12, 3, 12, 10, -0.58, -0.8, -0.2, verdict)


def test_in_autonomous_mode_words_of_others_wait_for_the_operator(autonomous: World) -> None:
    one = reviewed(autonomous)
    assert (one.status, one.trust) == (REVIEW, Trust.QUOTED)
    autonomous.adaptation.approve(one.id)
    assert autonomous.shelf.in_force == [one.id]


def test_in_autonomous_mode_what_passes_is_promoted(autonomous: World) -> None:
    one = measured(autonomous)
    assert (one.status, one.decided_by) == (PROMOTED, "autonomy")
    assert autonomous.shelf.in_force == [one.id]


@pytest.mark.parametrize(
    ("hinder", "lift"),
    [
        (lambda world: setattr(world.told, "own_phase", 0), lambda world: setattr(world.told, "own_phase", 1)),
        (lambda world: setattr(world.told, "hold", "stopped"), lambda world: setattr(world.told, "hold", "")),
    ],
)
def test_not_in_phase_0_and_not_while_something_is_held(
    autonomous: World, hinder: Callable[[World], None], lift: Callable[[World], None]
) -> None:
    hinder(autonomous)
    assert measured(autonomous).status is REVIEW
    lift(autonomous)
    autonomous.adaptation.run_round()
    assert autonomous.adaptation.candidates()[0].status is PROMOTED


def test_what_the_content_filter_does_not_let_through_waits_for_the_operator(autonomous: World) -> None:
    autonomous.told.objection = "it speaks of rm -rf /"
    one = measured(autonomous)
    assert one.status is REVIEW
    autonomous.adaptation.approve(one.id)
    assert autonomous.shelf.in_force == [one.id]


def test_what_the_operator_took_back_is_decided_by_him(autonomous: World) -> None:
    autonomous.told.own_phase = 0
    one = measured(autonomous)
    autonomous.adaptation.approve(one.id)
    autonomous.adaptation.undo(one.id)
    autonomous.told.own_phase = 1
    autonomous.adaptation.run_round()
    assert autonomous.adaptation.candidates()[0].status is REVIEW
    assert autonomous.shelf.in_force == []


def test_what_as_much_speaks_against_waits_for_the_operator(autonomous: World) -> None:
    autonomous.happened(retried("sess_1"))
    autonomous.adaptation.run_round()  # at most one try
    autonomous.heal("sess_3", attempts=4)  # which it would have cut short
    autonomous.happened(retried("sess_2"))
    autonomous.adaptation.run_round()
    (one,) = [each for each in autonomous.adaptation.candidates() if each.source_label == "repeated_retry"]
    assert one.status is REVIEW
    assert len(one.against) == len(one.corroborated_by) == 1
    autonomous.happened(retried("sess_4"))
    autonomous.adaptation.run_round()
    (one,) = [each for each in autonomous.adaptation.candidates() if each.source_label == "repeated_retry"]
    assert one.status is PROMOTED


def test_a_candidate_leaves_review_when_the_landing_that_supported_it_is_undone(world: World) -> None:
    for session in ("sess_1", "sess_2"):
        world.told.turned_green[session] = HealedTests({TOTAL: ""}, "", AGENT, 0)
        world.told.summaries[session] = "Rounded once."
        world.happened(ChangeSetLanded(subject=f"chg_{session}", workspace=SHOP, session_id=session, files=1))
    world.adaptation.run_round()
    (candidate,) = world.adaptation.candidates()
    assert candidate.status is REVIEW
    world.told.taken_back |= {
        record.session_id for record in world.adaptation.records() if record.id in candidate.corroborated_by
    }
    world.happened(retried("sess_3"))
    world.adaptation.run_round()
    (candidate,) = [each for each in world.adaptation.candidates() if each.id == candidate.id]
    assert (candidate.status, candidate.score) == (CandidateStatus.DRAFTED, 45.0)
    assert world.adaptation.waiting() == []


def test_of_facts_that_say_much_the_same_one_candidate_comes_up_for_review(world: World) -> None:
    for number, text in enumerate(["Prices are whole cents in every file", "All prices are whole cents in every file"]):
        world.told.facts[f"fact_{number}"] = para_fact(text)
        world.happened(FactPromoted(subject=f"fact_{number}", workspace=SHOP, by="operator"))
    world.adaptation.run_round()
    (in_review,) = world.adaptation.candidates(REVIEW)
    (drafted,) = world.adaptation.candidates(CandidateStatus.DRAFTED)
    assert drafted.reason == f"{in_review.id} already proposes that"


def test_what_does_harm_is_proposed_for_roll_back(world: World) -> None:
    one = reviewed(world)
    world.adaptation.approve(one.id)
    harms(world, one.id, "makes no difference")
    assert world.adaptation.waiting() == []
    harms(world, one.id)
    (wait,) = world.adaptation.waiting()
    assert (wait.kind, wait.id) == ("candidate", one.id)
    assert wait.title.startswith("roll back? ")
    assert "3 of 12 went well with it, 10 of 12 without it" in wait.title
    world.adaptation.run_round()
    assert world.adaptation.candidates()[0].status is PROMOTED  # the operator decides
    world.adaptation.roll_back(one.id)
    assert world.adaptation.waiting() == []


def test_in_autonomous_mode_it_is_rolled_back_even_while_something_is_held(autonomous: World) -> None:
    one = measured(autonomous)
    harms(autonomous, one.id)
    autonomous.told.hold, autonomous.told.own_phase = "stopped", 0
    autonomous.adaptation.run_round()
    (gone,) = autonomous.adaptation.candidates()
    assert (gone.status, gone.decided_by) == (CandidateStatus.ROLLED_BACK, "autonomy")
    assert "it makes work worse: 3 of 12 went well with it, 10 of 12 without it" in gone.reason
    assert autonomous.shelf.in_force == []
    autonomous.told.hold, autonomous.told.own_phase = "", 1
    autonomous.happened(retried("sess_3"))
    autonomous.adaptation.run_round()  # and is not put back by itself
    assert autonomous.adaptation.candidates()[0].status is CandidateStatus.ROLLED_BACK


def test_a_draft_waits_for_the_end_of_its_session(world: World) -> None:
    world.told.running.add("sess_1")
    world.heal("sess_1")
    assert world.adaptation.run_round() == []
    world.told.running.clear()
    assert len(world.adaptation.run_round()) == 1


# -- never half


def state_of(world: World, candidate: str) -> tuple[CandidateStatus, list[str], int, int]:
    """Status, effects in force, and how much history and how many facts there are: what changes together."""
    row = next(row for row in load_candidates(world.database) if row.id == candidate)
    facts = [one for one in Ledger(world.database).since(0, 10_000) if one.kind.startswith("Candidate")]
    return CandidateStatus(row.status), world.shelf.in_force, len(row.history), len(facts)


STEPS: dict[str, Callable[[World, pytest.MonkeyPatch], None]] = {
    "the fact": lambda world, patch: patch.setattr(Transaction, "record", _no_power),
    "the commit": lambda world, patch: patch.setattr(Session, "flush", _no_power),
}


def _no_power(*_: object) -> None:
    raise RuntimeError("the power went")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("act", ["approve", "roll_back"])
def test_broken_off_at_any_step_it_is_as_before(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str, act: str
) -> None:
    one = reviewed(world)
    if act == "roll_back":
        world.adaptation.approve(one.id)
    before = state_of(world, one.id)
    with monkeypatch.context() as patch:
        STEPS[step](world, patch)
        with pytest.raises(RuntimeError, match="the power went"):
            getattr(world.adaptation, act)(one.id)
    assert state_of(world, one.id) == before
    getattr(world.adaptation, act)(one.id)
    status, in_force, history, facts = state_of(world, one.id)
    assert (status, in_force) == ((PROMOTED, [one.id]) if act == "approve" else (CandidateStatus.ROLLED_BACK, []))
    assert (history, facts) == (before[2] + 1, before[3] + 1)


def test_a_round_that_breaks_off_anywhere_comes_to_the_same_end(
    database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the n-th write of a round the power goes; the next engine's round makes up for it, and nothing twice."""
    world = World(database, clock)
    world.heal("sess_1")
    world.heal("sess_2")
    write = database.write
    broken = 0
    for number in range(20):
        left = [number]

        def failing(work: Callable[[Transaction], object], left: list[int] = left) -> object:
            if left[0] == 0:
                raise RuntimeError("the power went")
            left[0] -= 1
            return write(work)

        monkeypatch.setattr(database, "write", failing)
        try:
            world.opened().run_round()
        except RuntimeError:
            broken += 1
            continue
        break
    monkeypatch.setattr(database, "write", write)
    assert broken >= 3
    (one,) = world.adaptation.candidates()
    assert one.status is REVIEW
    facts = [each.kind for each in Ledger(database).since(0, 10_000) if each.kind.startswith("Candidate")]
    assert facts == ["CandidateDrafted", "CandidateWeighed"]
    assert len(world.adaptation.records("successful_heal")) == 2
