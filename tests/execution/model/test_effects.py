"""What was learnt, in force: seen in what a whole engine does, gone without a trace after a roll-back (SPEC 5.4)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from engine import Engine
from engine.execution.runners.flows import FLOWS
from engine.execution.validation import REPAIRS_HEADING
from engine.learning.candidates.candidates import add_candidate, decide_candidate
from engine.model import PromptRequest, Refusal, SessionState, SourceKind, Status
from engine.model.adaptation import (
    Candidate,
    CandidateMove,
    CandidateStatus,
    Effect,
    FixTemplate,
    FlowOffload,
    PolicyTweak,
    PromptFragment,
    RoutingHint,
)
from engine.storage.database import Transaction
from tests.execution.model.world import ModelWorld
from tests.support.model_server import calls


def candidate(engine: Engine, effect: Effect, number: int, **where: str) -> Candidate:
    now = engine.clock.now()
    return Candidate(
        f"cand_{effect.kind}{number or ''}", effect.kind, "agent", "backend_builder", f"label/{number}", "title",
        CandidateStatus.PROMOTED,
        80.0, effect, now, now, **where,
    )  # fmt: skip


@contextmanager
def in_force(engine: Engine, effect: Effect, **where: str) -> Iterator[Candidate]:
    known = {one.effect: one for one in engine.adaptation.candidates()}
    about = known.get(effect) or candidate(engine, effect, len(known), **where)

    def promote(tx: Transaction) -> None:
        row = add_candidate(tx, about, "drafted")
        row.status = CandidateStatus.REVIEW.value
        decide_candidate(tx, row, CandidateMove.APPROVE, "operator", "", FLOWS)

    engine.database.write(promote)
    yield about
    engine.adaptation.roll_back(about.id)


def test_a_card_names_the_model_of_the_agent_that_does_it(world: ModelWorld) -> None:
    with world.opened() as engine:
        tools = engine.home.agents / "frontend_builder" / "tools.json"
        tools.write_text(tools.read_text().replace('"models": {}', '"models": {"default": "openai:for-screens"}'))
        card = world.propose()
        check = engine.sessions.runner_of(card.assignment).check
        assert check(card.assignment).executor == f"openai:{world.model}"
        assert check(replace(card.assignment, agent="frontend_builder")).executor == "openai:for-screens"
        assert replace(card.assignment, agent="frontend_builder").digest != card.assignment.digest


@pytest.mark.long
def test_a_fragment_and_a_hint_reach_the_model_and_no_longer_after_a_roll_back(world: ModelWorld) -> None:
    world.configure(**{"adaptation.withheld": 0.0})
    fragment = PromptFragment(("Name every test after what it proves.",))
    hint = RoutingHint("openai:gpt-5-nano", "koji-core", 200, "short questions cost less there")
    mine = {"agent_id": "backend_builder"}
    with world.opened() as engine:
        choose = engine.model_router.choose
        request = PromptRequest("backend_builder", "koji-core", str(world.repository.path), "do it", session_id="ses_1")
        prompt, model = engine.prompts.assemble(request), choose("backend_builder", "koji-core", "task", "short")
        with in_force(engine, fragment, **mine), in_force(engine, hint, **mine):
            world.server.script("Done.")
            view = world.run()
            (sent,) = world.server.requests
            assert "- Name every test after what it proves. (approved by the operator)" in sent.system.splitlines()
            (call,) = engine.calls.for_session(view.id)
            lines = [line for part in engine.calls.prompt(call.id) for line in part.lines]
            (line,) = [one for one in lines if one.source.kind is SourceKind.OVERLAY]
            assert line.source.ref == "cand_prompt_fragment"
            (told,) = call.provenance["overlays"]
            assert (told["candidate"], told["withheld"]) == ("cand_prompt_fragment", False)
            assert sent.model == "gpt-5-nano"
            assert any("short questions cost less there" in text for text in world.texts(view))
            assert choose("backend_builder", "koji-core", "task", "x" * 201) == model
            assert choose("backend_builder", "garden", "task", "short") == model
            assert choose("frontend_builder", "koji-core", "task", "short").model == model.model
        assert engine.prompts.assemble(request) == prompt
        assert choose("backend_builder", "koji-core", "task", "short") == model
        world.server.script("Done.")
        world.run()
        assert "learned-guidance" not in world.server.requests[1].system
        assert world.server.requests[1].model == model.model


@pytest.mark.long
def test_repairs_and_bounds_reach_the_validation_loop(world: ModelWorld) -> None:
    world.configure(validation=True, **{"adaptation.withheld": 0.0})
    world.repository.commit("A cart", {"Makefile": "test:\n\tgrep -q 3 cart.txt\n", "cart.txt": "3\n"})
    wrong = [calls("write", path="cart.txt", content=f"{wrong}\n") for wrong in (4, 5, 6)]

    def session() -> tuple[list[str], list[str]]:
        """One that breaks the cart each time it is asked; what it was told to heal, and what was said of it."""
        world.server.requests.clear()
        world.server.script(*[reply for one in wrong for reply in (one, "Done.")])
        view = world.run()
        asked = [call for call in engine.calls.for_session(view.id) if call.run_kind == "heal"]
        told = [
            part.text for call in asked for part in engine.calls.prompt(call.id) if "that passed before" in part.text
        ]
        return list(dict.fromkeys(told)), [
            text for text in world.texts(view, "note") if text.startswith("repair ended")
        ]

    with world.opened() as engine:
        engine.settings.set("validation.tries", 2)
        before = session()
        assert "Repairs that worked" not in before[0][0]
        assert before[1] == ["repair ended: still failing after 2 attempts"]
        repair = FixTemplate(("make test",), ("The total is three; look at cart.txt.",))
        with in_force(engine, repair), in_force(engine, PolicyTweak(tries=1, cost=10**9)):
            told, ended = session()
            assert told[0].endswith(
                f"{REPAIRS_HEADING}:\n<repairs>\n- The total is three; look at cart.txt.\n</repairs>"
            )
            assert ended == ["repair ended: still failing after 1 attempt"]
        assert session() == before


@pytest.mark.long
def test_a_flow_is_proposed_run_and_reviewed_like_any_and_gone_after_a_roll_back(world: ModelWorld) -> None:
    repository = world.repository
    repository.commit("A script", {"stamp.sh": "echo checked > stamp.txt\n"})
    flow = FlowOffload("check_release", "Check the release", ("git status", "sh stamp.sh"))
    with world.opened() as engine:
        before = list(engine.flows)
        prose = world.propose("check release")
        assert prose.assignment.flow is None, "without the flow these words are prose"
        with in_force(engine, flow):
            assert list(engine.flows) == [*before, "check_release"]
            card = world.propose("check release")
            assert card.assignment.flow == "check_release"
            assert not card.check_only
            assert card.served == "git status, then sh stamp.sh", "the card says what is approved"
            view = world.finish(
                engine.sessions.get(engine.cards.approve(card.id, without_sandbox=True).session_id or "")
            )
            assert (view.state, view.error) == (SessionState.SUCCEEDED, "")
            assert view.summary == "2 commands of check_release ran"
            assert [file.path for file in engine.changes.get(view.change_set_id or "").files] == ["stamp.txt"]
            assert not (repository.path / "stamp.txt").exists(), "it waits for review"
            assert world.server.requests == [], "no model was asked"
            later = world.propose("check release")
            repository.write("readme.md", "# Shop, open\n")
            engine.predictions.run_cycle()
            (predicted,) = [one for one in engine.cards.pending() if one.kind == "check_release"]
            assert predicted.assignment.prompt == "Run git status, then sh stamp.sh"
        engine.predictions.run_cycle()
        assert engine.cards.get(predicted.id).status is Status.EXPIRED, "its evidence is gone"
        assert list(engine.flows) == before
        with pytest.raises(Refusal, match="there is no flow 'check_release'") as refused:
            engine.cards.approve(later.id, without_sandbox=True)
        assert refused.value.fix.startswith("this learned flow was rolled back: clawpy dismiss")
        assert engine.cards.get(later.id).status is Status.PENDING
        assert world.propose("check release").assignment.flow is None


@pytest.mark.long
def test_an_approval_is_for_the_commands_that_the_card_told(world: ModelWorld) -> None:
    """What is promoted later has another name: a card and a permit of before are never for that one."""
    with world.opened() as engine:
        first = FlowOffload("check_release", "Check", ("git status",))
        with in_force(engine, first):
            card = world.propose("check release")
            assert card.served == "git status"
        with in_force(engine, FlowOffload("check_release", "Check", ("echo other",))):
            assert list(engine.flows)[-1] == "check_release_2"
            with pytest.raises(Refusal, match="there is no flow 'check_release'"):
                engine.cards.approve(card.id, without_sandbox=True)
        with in_force(engine, first):
            done = engine.cards.approve(card.id, without_sandbox=True)
            assert world.finish(engine.sessions.get(done.session_id or "")).state is SessionState.SUCCEEDED


RAILED = {
    "fails_early": (("false", "sh stamp.sh"), SessionState.FAILED, "step 1 of 2, `false`, ended with exit code 1"),
    "not_there": (("nowhere_to_be_found --all",), SessionState.CANNOT_RUN, "nowhere_to_be_found"),
    "destroys": (("rm -rf /",), SessionState.BLOCKED, "rm"),
    "quoted": (("echo 'one && two'",), SessionState.SUCCEEDED, ""),
}


@pytest.mark.long
def test_a_flow_has_the_rails_of_any_other(world: ModelWorld) -> None:
    with world.opened() as engine:
        for name, (commands, state, told) in RAILED.items():
            with in_force(engine, FlowOffload(name, "Try it", commands)):
                card = engine.cards.approve(world.propose(name).id, without_sandbox=True)
                view = world.finish(engine.sessions.get(card.session_id or ""))
                assert view.state is state, name
                assert told in view.error
        assert "one && two" in world.texts(view, "output"), "no shell reads it"
        with in_force(engine, FlowOffload("elsewhere", "Try it", ("true",)), workspace="/other"):
            card = world.propose("elsewhere")
            with pytest.raises(Refusal, match="learned in /other"):
                engine.cards.approve(card.id, without_sandbox=True)
