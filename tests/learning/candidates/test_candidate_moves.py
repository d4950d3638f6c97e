"""A candidate makes only legal moves, in any order of sessions, decisions, changes of the mode and restarts (SPEC 5.3,
5.4)."""

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
from engine.config.settings import AdaptationMode
from engine.events import EventBus
from engine.learning.candidates.evaluation import MIN_REVIEW_SCORE
from engine.learning.candidates.life_cycle import load_candidates
from engine.model import Refusal
from engine.model.adaptation import CANDIDATE_MOVES, CandidateMove, CandidateStatus, compute_candidate_status
from engine.storage.database import Database
from tests.learning.candidates.adaptation_world import (
    AdaptationWorld,
    make_agent_erred,
    make_retry_repeated,
    make_transcript,
    make_validation_failed,
)
from tests.support import MONDAY_MORNING

LEGAL = {(before.value, after.value) for (before, _), after in CANDIDATE_MOVES.items()}
"""The legal transitions: (status before, status after)."""


class RandomSteps(RuleBasedStateMachine):
    """Sessions that go well and badly, and an operator who decides at random."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        clock = FakeClock(MONDAY_MORNING)
        database = Database(Path(self.folder.name) / "clawpy.db", clock=clock, bus=EventBus())
        self.world = AdaptationWorld(database, clock)
        self.number = 0

    def teardown(self):
        self.world.database.close()
        self.folder.cleanup()

    @rule(event=st.sampled_from(["heals", "heals late", "fails", "retries", "errs"]))
    def end_a_session(self, event: str):
        self.number += 1
        session = f"sess_{self.number}"
        match event:
            case "heals":
                self.world.end_healed_session(session)
            case "heals late":
                self.world.end_healed_session(session, attempts=4)
            case "fails":
                self.world.record(make_validation_failed(session))
            case "retries":
                self.world.record(make_retry_repeated(session))
            case "errs":
                self.world.sources.transcripts[session] = make_transcript(
                    ("tool", "edit a failed: the old text is not in src/a.py"), ("tool", "edit src/a.py:3"),
                )  # fmt: skip
                self.world.record(make_agent_erred(session))

    @rule()
    def run_a_round(self):
        self.world.adaptation.run_round()

    @precondition(lambda self: self.world.adaptation.list_candidates())
    @rule(decision=st.sampled_from(["approve", "reject", "roll_back", "undo"]), index=st.integers(0, 3))
    def decide(self, decision: str, index: int):
        candidates = sorted(self.world.adaptation.list_candidates(), key=lambda candidate: candidate.id)
        with suppress(Refusal):
            getattr(self.world.adaptation, decision)(candidates[index % len(candidates)].id)

    @rule(mode=st.sampled_from(list(AdaptationMode)))
    def change_the_mode(self, mode: AdaptationMode):
        changed = self.world.current.adaptation.model_copy(update={"mode": mode})
        self.world.current = self.world.current.model_copy(update={"adaptation": changed})

    @rule()
    def restart(self):
        self.world.clock.advance(timedelta(hours=1))
        self.world.adaptation = self.world.reopen()

    @invariant()
    def status_and_active_effects_agree(self):
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
                assert row.score >= MIN_REVIEW_SCORE
                assert row.corroborated_by


TestRandomSteps = RandomSteps.TestCase
TestRandomSteps.settings = settings(max_examples=8, stateful_step_count=25)


@pytest.mark.parametrize("status, move", list(product(CandidateStatus, CandidateMove)))
def test_only_legal_transitions_are_made(status: CandidateStatus, move: CandidateMove):
    if (status, move) in CANDIDATE_MOVES:
        assert compute_candidate_status("cand_x", status, move) is CANDIDATE_MOVES[status, move]
        return
    with pytest.raises(Refusal, match="cand_x") as caught:
        compute_candidate_status("cand_x", status, move)
    codes = {"nothing_to_roll_back"} if move is CandidateMove.ROLL_BACK else {"already_decided", "not_corroborated"}
    assert caught.value.code in codes
