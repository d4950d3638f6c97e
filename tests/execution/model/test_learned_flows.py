"""An approval holds for the model and the commands on the card, and learned flows pass the rails (SPEC 5.4)."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from engine import Engine
from engine.execution.runners.flows import FLOWS
from engine.learning.candidates.candidates import add_candidate, decide_candidate, find_candidate
from engine.model import Refusal, SessionState, Verdict
from engine.model.adaptation import (
    Candidate,
    CandidateMove,
    CandidateStatus,
    Effect,
    FlowOffload,
)
from engine.storage.database import Transaction
from tests.execution.model.model_world import ModelWorld


def make_candidate(engine: Engine, effect: Effect, number: int, **fields: str) -> Candidate:
    """An active candidate with this effect. Its id and its source contain the number."""
    now = engine.clock.now()
    return Candidate(
        f"cand_{effect.kind}{number or ''}", effect.kind, "agent", "backend_builder", f"label/{number}", "title",
        CandidateStatus.ACTIVE,
        80.0, effect, now, now, **fields,
    )  # fmt: skip


@contextmanager
def active_candidate(engine: Engine, effect: Effect, **fields: str) -> Iterator[None]:
    """Store and activate a candidate with this effect; roll it back at the end."""
    known_ids = {candidate.effect: candidate.id for candidate in engine.adaptation.candidates()}

    def activate(tx: Transaction) -> str:
        if effect in known_ids:
            row = find_candidate(tx.session, known_ids[effect])
        else:
            row = add_candidate(tx, make_candidate(engine, effect, len(known_ids), **fields), "drafted")
        row.status = CandidateStatus.REVIEW.value
        decide_candidate(tx, row, CandidateMove.APPROVE, "operator", "", FLOWS)
        return row.id

    candidate_id = engine.database.write(activate)
    yield
    engine.adaptation.roll_back(candidate_id)


@pytest.mark.long
def test_an_approval_holds_for_the_commands_on_the_card(world: ModelWorld):
    """A flow that is activated later has another name, so an earlier card and permit cannot be for it."""
    with world.opened() as engine:
        first = FlowOffload("check_release", "Check", ("git status",))
        with active_candidate(engine, first):
            card = world.propose("check release")
            assert card.consent_text == "git status"
        with active_candidate(engine, FlowOffload("check_release", "Check", ("echo other",))):
            assert list(engine.flows)[-1] == "check_release_2"
            with pytest.raises(Refusal, match="there is no flow 'check_release'"):
                engine.cards.approve(card.id, without_sandbox=True)
        with active_candidate(engine, first):
            approved = engine.cards.approve(card.id, without_sandbox=True)
            assert world.finish(engine.sessions.get(approved.session_id or "")).state is SessionState.SUCCEEDED


def test_what_a_learned_flow_runs_is_judged_before_it_is_approved(world: ModelWorld):
    with world.opened() as engine, active_candidate(engine, FlowOffload("destroys", "Try it", ("true", "rm -rf /"))):
        card = world.propose("destroys")
        assert card.assignment.prompt == "Run true, then rm -rf /"
        with pytest.raises(Refusal, match="deletes everything below /"):
            engine.cards.approve(card.id, without_sandbox=True)
        engine.cards.allow_once(card.id)
        allowed = engine.cards.get(card.id)
        content = next(verdict for verdict in allowed.verdicts if verdict.rail == "content")
        assert content.verdict == Verdict.ASK
        assert content.is_allowed_once
        assert allowed.note == ""
