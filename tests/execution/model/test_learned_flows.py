"""An approval holds for the model and the commands on the card, and learned flows pass the rails (SPEC 5.4)."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from engine import Engine
from engine.execution.runners.flows import FLOWS
from engine.learning.candidates.life_cycle import add_candidate, decide_candidate
from engine.model import Refusal, Verdict
from engine.model.adaptation import Candidate, CandidateMove, CandidateStatus, FlowOffload
from engine.storage.database import Transaction
from tests.support.model_world import ModelWorld


@contextmanager
def active_flow(engine: Engine, name: str, *commands: str) -> Iterator[None]:
    """Store and activate a candidate with these commands; roll it back at the end."""
    now, number = engine.clock.now(), len(engine.adaptation.list_candidates())
    effect = FlowOffload(name, "Try it", commands)
    candidate = Candidate(
        f"cand_{number}", effect.kind, "agent", "backend_builder", f"label/{number}", "title", CandidateStatus.REVIEW,
        80.0, effect, now, now,
    )  # fmt: skip

    def activate(tx: Transaction):
        row = add_candidate(tx, candidate, "drafted")
        row.status = CandidateStatus.REVIEW.value
        decide_candidate(tx, row, CandidateMove.APPROVE, "operator", "", FLOWS)

    engine.database.write(activate)
    yield
    engine.adaptation.roll_back(candidate.id)


@pytest.mark.long
def test_an_approval_holds_for_the_commands_on_the_card(world: ModelWorld):
    """A flow that is activated later has another name, so an earlier card and permit cannot be for it."""
    with world.opened() as engine:
        with active_flow(engine, "check_release", "git status"):
            card = world.propose("check release")
            assert card.consent_text == "git status"
        with active_flow(engine, "check_release", "echo other"):
            assert list(engine.flows)[-1] == "check_release_2"
            with pytest.raises(Refusal, match="there is no flow 'check_release'"):
                engine.cards.approve(card.id, without_sandbox=True)
        with active_flow(engine, "tidy", "ruff check"), active_flow(engine, "tidy", "ruff check"):
            assert list(engine.flows)[-2:] == ["tidy", "tidy_2"]


def test_what_a_learned_flow_runs_is_judged_before_it_is_approved(world: ModelWorld):
    with world.opened() as engine, active_flow(engine, "destroys", "true", "rm -rf /"):
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
