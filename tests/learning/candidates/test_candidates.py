"""The life of a candidate, from events to a change of behaviour and back: review, decisions and their undo, and only
legal transitions in any order of steps (SPEC 5.3 to 5.7)."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise, product
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.clock import FakeClock
from engine.config import AdaptationMode, FixedSettings
from engine.events import EventBus
from engine.learning.candidates.candidates import CandidateTexts, load_candidates
from engine.model import Refusal
from engine.model.adaptation import (
    CANDIDATE_MOVES,
    Candidate,
    CandidateMove,
    CandidateStatus,
    FixTemplate,
    compute_candidate_status,
)
from engine.retention import Retention
from engine.storage.database import Database
from engine.storage.erasing import SearchTerms
from tests.conftest import MONDAY_MORNING
from tests.learning.candidates.adaptation_world import (
    HEALED_BY,
    SHOP,
    TOTAL,
    AdaptationWorld,
    make_agent_erred,
    make_retry_repeated,
    make_transcript,
    make_validation_failed,
)
from tests.support.helpers import refused


def test_a_second_session_brings_a_candidate_to_review(world: AdaptationWorld) -> None:
    world.end_healed_session("sess_1")
    world.adaptation.run_round()
    world.end_healed_session("sess_2")
    assert world.adaptation.run_round() == []  # the same is not drafted twice
    (candidate,) = world.adaptation.candidates()
    assert candidate.status is CandidateStatus.REVIEW
    assert len(candidate.drafted_from) == len(candidate.corroborated_by) == 1
    assert [wait.kind for wait in world.adaptation.waiting()] == ["candidate"]


def test_the_operator_approves_a_candidate_once(world: AdaptationWorld) -> None:
    candidate = world.bring_to_review()
    approved = world.adaptation.approve(candidate.id[:8])
    assert (approved.status, approved.decided_by) == (CandidateStatus.ACTIVE, "operator")
    assert world.list_active_ids() == [candidate.id]
    assert world.adaptation.waiting() == []
    refused("already_decided", lambda: world.adaptation.approve(candidate.id))


def test_a_candidate_that_was_rolled_back_can_be_approved_again(world: AdaptationWorld) -> None:
    candidate = world.bring_to_review()
    world.adaptation.approve(candidate.id)
    world.adaptation.roll_back(candidate.id, "it did not help")
    assert world.list_active_ids() == []
    world.adaptation.approve(candidate.id)
    assert world.list_active_ids() == [candidate.id]
    assert world.read_candidate_events() == [
        "CandidateDrafted", "CandidateWeighed", "CandidatePromoted", "CandidateRolledBack", "CandidatePromoted",
    ]  # fmt: skip


def test_an_active_candidate_shows_its_stations_records_and_overlays(world: AdaptationWorld) -> None:
    candidate = world.bring_to_review()
    world.adaptation.approve(candidate.id)
    view = world.adaptation.view(candidate.id)
    assert [station.name for station in view.stations] == [
        "detect", "draft", "score", "corroborate", "review", "promote",
    ]  # fmt: skip
    assert {station.state for station in view.stations} == {"done"}
    assert len(view.records) == 2
    assert len(view.overlays) == 1


def test_failing_tests_get_the_repair_of_another_session_and_one_review(world: AdaptationWorld) -> None:
    world.record(make_validation_failed("sess_1"))
    assert world.adaptation.run_round() == []
    assert "nothing has fixed" in next(iter(world.adaptation.not_drafted.values()))
    world.end_healed_session("sess_2")
    drafted = world.adaptation.run_round()
    assert [candidate.effect for candidate in drafted] == [FixTemplate((TOTAL,), (HEALED_BY, "it changed cart.py"))] * 2
    world.record(make_validation_failed("sess_3"))
    world.adaptation.run_round()
    by_status = {candidate.status: candidate.source_label for candidate in world.adaptation.candidates()}
    assert by_status[CandidateStatus.REVIEW] == f"failed_tdd/{TOTAL}"
    world.end_healed_session("sess_4")  # the operator is not asked twice about the same repair
    world.adaptation.run_round()
    assert len(world.adaptation.candidates(CandidateStatus.REVIEW)) == 1
    world.adaptation.reject(world.adaptation.candidates(CandidateStatus.REVIEW)[0].id)
    world.end_healed_session("sess_5")
    world.adaptation.run_round()
    assert len(world.adaptation.candidates(CandidateStatus.REVIEW)) == 0


def test_old_records_are_deleted_unless_a_candidate_names_them(world: AdaptationWorld) -> None:
    def list_sessions() -> list[str]:
        return [record.session_id for record in world.adaptation.records()]

    world.end_healed_session("sess_1")
    world.record(make_validation_failed("sess_2", failing=("t.py::other",)))
    world.adaptation.run_round()
    world.clock.advance(timedelta(days=179))
    world.record(make_validation_failed("sess_3", failing=("t.py::other",)))
    world.adaptation.run_round()
    retention = Retention(world.database, world.clock, FixedSettings(), frozenset())
    assert retention.delete_old_rows() == {}
    world.clock.advance(timedelta(days=1, minutes=1))
    world.record(make_validation_failed("sess_4", failing=("t.py::other",)))
    world.adaptation.run_round()
    assert retention.delete_old_rows() == {"learning_records": 1}
    assert list_sessions() == ["sess_4", "sess_3", "sess_1"]


def test_forgotten_words_leave_a_candidate_and_an_empty_one_is_rejected(world: AdaptationWorld) -> None:
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


def test_fixes_are_offered_of_landed_changes_that_were_not_rejected(world: AdaptationWorld) -> None:
    world.end_healed_session("sess_1")
    world.sources.patches["sess_1"] = "diff --git a/cart.py b/cart.py"
    world.adaptation.run_round()
    assert world.adaptation.fixes(SHOP) == [], "what an agent broke and fixed was never in the operator's files"
    for session in ("sess_2", "sess_3"):
        world.sources.patches[session] = "diff --git a/price.py b/price.py"
        world.land_repair(session, f"t.py::{session}")
    world.adaptation.run_round()
    assert [fix.title for fix in world.adaptation.fixes(SHOP)] == ["the task of sess_3", "the task of sess_2"]
    assert world.adaptation.fixes("/other") == []
    newest = world.adaptation.fixes(SHOP)[0]
    assert newest.template.failing == ("t.py::sess_3",)
    world.adaptation.reject(newest.id)
    assert [fix.title for fix in world.adaptation.fixes(SHOP)] == ["the task of sess_2"]


# Undone decisions (SPEC 5.3)


@pytest.fixture
def candidate(world: AdaptationWorld) -> Candidate:
    """A candidate that waits for the operator."""
    return world.bring_to_review()


def read_last_stations(world: AdaptationWorld, candidate: Candidate) -> list[tuple[str, str, str]]:
    """(name, words, state) of the last two stages of a candidate."""
    return [
        (station.name, station.words, station.state) for station in world.adaptation.view(candidate.id).stations[-2:]
    ]


def test_only_the_operators_own_last_step_can_be_undone(world: AdaptationWorld, candidate: Candidate) -> None:
    def is_refused() -> bool:
        with pytest.raises(Refusal) as refusal:
            world.adaptation.undo(candidate.id)
        return refusal.value.code == "nothing_to_undo"

    assert is_refused(), "nobody decided"
    world.adaptation.approve(candidate.id)
    undone = world.adaptation.undo(candidate.id)
    assert (undone.status, undone.decided_by, undone.reason) == (CandidateStatus.REVIEW, "", candidate.reason)
    assert (world.list_active_ids(), [wait.id for wait in world.adaptation.waiting()]) == ([], [candidate.id])
    assert is_refused(), "it is undone already"
    world.adaptation.approve(candidate.id, by="autonomy")
    assert is_refused(), "the operator did not decide"
    assert world.list_active_ids() == [candidate.id]


def test_an_undone_rejection_is_in_review_and_an_undone_roll_back_active_again(
    world: AdaptationWorld, candidate: Candidate
) -> None:
    world.adaptation.reject(candidate.id, "not now")
    assert world.adaptation.undo(candidate.id).status is CandidateStatus.REVIEW
    review = next(station for station in world.adaptation.view(candidate.id).stations if station.name == "review")
    assert review.words == "needs your decision; undone: reject (not now)"
    world.adaptation.approve(candidate.id)
    world.adaptation.roll_back(candidate.id, "it did not help")
    assert world.adaptation.undo(candidate.id).status is CandidateStatus.ACTIVE
    assert world.list_active_ids() == [candidate.id]
    assert world.adaptation.roll_back(candidate.id).status is CandidateStatus.ROLLED_BACK


def test_the_last_stage_of_a_candidate_says_how_it_was_decided(world: AdaptationWorld, candidate: Candidate) -> None:
    world.adaptation.approve(candidate.id)
    assert read_last_stations(world, candidate)[1] == ("promote", "it is active", "done")
    world.adaptation.roll_back(candidate.id, "worse")
    assert read_last_stations(world, candidate) == [
        ("review", "by operator", "done"), ("promote", "rolled back: worse", "failed"),
    ]  # fmt: skip
    world.adaptation.reject(candidate.id)
    assert read_last_stations(world, candidate)[1] == ("reject", "rejected", "failed")


# Any order of steps (SPEC 5.3, 5.4)


LEGAL = {(before.value, after.value) for (before, _), after in CANDIDATE_MOVES.items()}
"""The legal transitions: (status before, status after)."""


class RandomSteps(RuleBasedStateMachine):
    """Sessions that go well and badly, and an operator who decides at random."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        clock = FakeClock(MONDAY_MORNING)
        database = Database(Path(self.folder.name) / "clawpy.db", clock=clock, bus=EventBus())
        self.world = AdaptationWorld(database, clock)
        self.number = 0

    def teardown(self) -> None:
        self.world.database.close()
        self.folder.cleanup()

    @rule(event=st.sampled_from(["heal", "late heal", "fail", "retry", "err"]))
    def end_a_session(self, event: str) -> None:
        self.number += 1
        session = f"sess_{self.number}"
        match event:
            case "heal":
                self.world.end_healed_session(session)
            case "late heal":
                self.world.end_healed_session(session, attempts=4)
            case "fail":
                self.world.record(make_validation_failed(session))
            case "retry":
                self.world.record(make_retry_repeated(session))
            case "err":
                self.world.sources.transcripts[session] = make_transcript(
                    ("tool", "edit a failed: the old text is not in src/a.py"), ("tool", "edit src/a.py:3"),
                )  # fmt: skip
                self.world.record(make_agent_erred(session))

    @rule()
    def run_a_round(self) -> None:
        self.world.adaptation.run_round()

    @precondition(lambda self: self.world.adaptation.candidates())
    @rule(decision=st.sampled_from(["approve", "reject", "roll_back", "undo"]), index=st.integers(0, 3))
    def decide(self, decision: str, index: int) -> None:
        candidates = sorted(self.world.adaptation.candidates(), key=lambda candidate: candidate.id)
        with suppress(Refusal):
            getattr(self.world.adaptation, decision)(candidates[index % len(candidates)].id)

    @rule(mode=st.sampled_from(list(AdaptationMode)))
    def change_the_mode(self, mode: AdaptationMode) -> None:
        changed = self.world.current.adaptation.model_copy(update={"mode": mode})
        self.world.current = self.world.current.model_copy(update={"adaptation": changed})

    @rule()
    def restart(self) -> None:
        self.world.clock.advance(timedelta(hours=1))
        self.world.adaptation = self.world.reopen()

    @invariant()
    def status_and_active_effects_agree(self) -> None:
        rows = load_candidates(self.world.database)
        active = {row.id for row in rows if row.status == CandidateStatus.ACTIVE}
        assert active == set(self.world.list_active_ids())
        assert len({row.dedupe_key for row in rows}) == len(rows)
        for row in rows:
            steps = [step["status"] for step in row.history]
            assert steps[0] == CandidateStatus.DRAFTED
            assert steps[-1] == row.status
            for before, after in pairwise(row.history):
                if after["move"] == "undo":
                    assert before["move"] in ("approve", "reject", "roll back")
                else:
                    assert (before["status"], after["status"]) in LEGAL
            assert not set(row.drafted_from) & set(row.corroborated_by)
            if row.status == CandidateStatus.REVIEW:
                assert row.score >= 60
                assert row.corroborated_by


TestRandomSteps = RandomSteps.TestCase
TestRandomSteps.settings = settings(max_examples=8, stateful_step_count=25)


@pytest.mark.parametrize(("status", "move"), list(product(CandidateStatus, CandidateMove)))
def test_only_legal_transitions_are_made(status: CandidateStatus, move: CandidateMove) -> None:
    if (status, move) in CANDIDATE_MOVES:
        assert compute_candidate_status("cand_x", status, move) is CANDIDATE_MOVES[status, move]
        return
    with pytest.raises(Refusal, match="cand_x") as refused:
        compute_candidate_status("cand_x", status, move)
    codes = {"nothing_to_roll_back"} if move is CandidateMove.ROLL_BACK else {"already_decided", "not_corroborated"}
    assert refused.value.code in codes
