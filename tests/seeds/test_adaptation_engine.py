"""From what happened to a change of how the engine acts, and back (section 5 of docs/SPEC.md).

A test is named after the part that it shows. What must hold is the first line of its docstring.
"""

import json
from collections.abc import Iterator

import pytest

from engine.events.engine import BudgetExceeded
from engine.events.work import RetryRepeated
from engine.model import DecisionSignal, SessionState
from engine.model.adaptation import CandidateStatus, PromptFragment
from tests.seeds.operator_world import GREEN, Document, OperatorWorld
from tests.support.model_server import Call, Reply, make_call

pytestmark = pytest.mark.long

AGENT = "backend_builder"
CORRECTION = "Texts are signed with initials"


def find_candidates_to_review(world: OperatorWorld, kind: str = "") -> list[Document]:
    """The candidates that wait for your decision after a round, of one kind or of all."""
    world.carry_out("candidates", action="digest")
    waiting = world.carry_out("candidates", status=CandidateStatus.REVIEW.value)["candidates"]
    return [candidate for candidate in waiting if kind in ("", candidate["type"])]


def approve_candidate(world: OperatorWorld, kind: str) -> Document:
    """Approve the only candidate of this kind."""
    (candidate,) = find_candidates_to_review(world, kind)
    world.carry_out("candidates", action="approve", id=candidate["id"])
    return candidate


def roll_back(world: OperatorWorld, candidate: Document):
    world.carry_out("candidates", action="rollback", id=candidate["id"])


@pytest.fixture
def eager(closed_world: OperatorWorld) -> Iterator[OperatorWorld]:
    """A world in which no effect is withheld by chance, and prompts have neither memories nor learnings."""
    closed_world.configure(**{"adaptation.withheld": 0.0, "memory.recallTokens": 0, "memory.learningsTokens": 0})
    with closed_world.opened():
        yield closed_world


def test_reflection(world: OperatorWorld):
    """5.1: What happened is weighed from 0 to 100 and says why: your corrections, errors of tools, guidance used."""
    world.server.script(make_call("edit", path="nowhere.txt", old_text="a", new_text="b"))
    world.work_corrected(CORRECTION, "greeting")
    world.carry_out("candidates", action="digest")
    records = {record["kind"]: record for record in world.carry_out("candidates", action="records")["records"]}
    assert {"human_approval", "agent_error", "guidance_applied"} <= set(records)
    for record in records.values():
        assert 0 <= record["score"] <= 100
        assert record["reason"]
        assert record["session"]


def test_digest(eager: OperatorWorld):
    """5.3: A proposal needs more than the event it is drawn from: others alike that it was not drawn from."""
    eager.work_corrected(CORRECTION, "greeting")
    assert find_candidates_to_review(eager) == []
    drafts = eager.carry_out("candidates")["candidates"]
    assert all(draft["score"] <= 45 for draft in drafts), "alone it is capped at 45, and fails"
    eager.work_corrected(CORRECTION, "farewell", "thanks")
    (candidate,) = find_candidates_to_review(eager)
    assert candidate["score"] >= 60
    assert set(candidate["draftedFrom"]).isdisjoint(candidate["corroboratedBy"])
    parts = [candidate[name] for name in ("type", "scopeType", "scopeId", "sourceLabel")]
    assert candidate["dedupeKey"] == ":".join(parts)
    assert find_candidates_to_review(eager) == [candidate], "the same is proposed once"


def test_prompt_fragments(eager: OperatorWorld):
    """5.4, 5.5: A fragment that you approve stands in that agent's prompts, and is gone when you roll it back."""
    eager.work_corrected(CORRECTION, "greeting", "farewell", "thanks")
    fragment = approve_candidate(eager, "prompt_fragment")
    (line,) = fragment["effect"]["guidance"]
    eager.work("Write an apology into sorry.txt", "Done.")
    assert line in eager.system_prompt
    fragments = eager.engine.overlays.find(PromptFragment, AGENT, "task", "")
    assert [active.guidance for _, active in fragments] == [(line,)]
    roll_back(eager, fragment)
    eager.work("Write a toast into toast.txt", "Done.")
    assert line not in eager.system_prompt


def test_fix_templates(closed_world: OperatorWorld):
    """5.2, 5.4: A repair that worked is told to whoever meets the same failing test again."""
    closed_world.configure(validation=True, **{"adaptation.withheld": 0.0})
    closed_world.repository.commit("A cart", GREEN)
    repair = "The cart counts three; a test greps for it."

    def break_and_fix_cart(number: int) -> str:
        """Run a session that breaks the cart and fixes it. Returns the message about the failing test."""
        closed_world.server.requests.clear()
        write = Call("write", {"path": "cart.txt", "content": f"4\n{'x' * number}\n"})
        fix = Call("edit", {"path": "cart.txt", "old_text": "4\n", "new_text": "3\n"})
        closed_world.server.script(Reply(calls=(write,)), "Tidied.", Reply(calls=(fix,)))
        closed_world.work(f"Tidy the cart, part {number}", repair)
        return next(
            text for request in closed_world.server.requests for text in request.users if "that passed before" in text
        )

    with closed_world.opened():
        assert repair not in break_and_fix_cart(1)
        assert repair not in break_and_fix_cart(2)
        approve_candidate(closed_world, "fix_template")
        assert repair in break_and_fix_cart(3)


def test_routing_hints(eager: OperatorWorld):
    """5.2, 5.4: When its budget was passed on three days an agent's short tasks go to a cheaper model, if you like."""
    tools = eager.agent_folder("frontend_builder") / "tools.json"
    tools.write_text(json.dumps(json.loads(tools.read_text()) | {"models": {"task": "openai:gpt-5-nano"}}))
    eager.work("Write a greeting into hello.txt", "Done.")
    assert eager.last_request.model == "gpt-5-mini"
    for spent in (1_500_000, 1_600_000, 1_700_000):
        over = BudgetExceeded(subject=AGENT, spent=spent, budget=1_000_000)
        eager.engine.database.write(lambda tx, over=over: tx.record(over))
        eager.advance(days=1)
    hint = approve_candidate(eager, "routing_hint")
    eager.work("Write a farewell into bye.txt", "Done.")
    assert eager.last_request.model == "gpt-5-nano"
    roll_back(eager, hint)
    eager.work("Write an apology into sorry.txt", "Done.")
    assert eager.last_request.model == "gpt-5-mini"


def test_validator_policy_tweaks(closed_world: OperatorWorld):
    """5.2, 5.4: Where more tries never helped fewer are made, once you approve; a bound only ever gets tighter."""
    closed_world.configure(validation=True, **{"adaptation.withheld": 0.0})
    closed_world.repository.commit("A cart", GREEN)
    with closed_world.opened() as engine:
        for number in range(3):
            vain = RetryRepeated(
                subject=f"sess_{number}", workspace=str(closed_world.repository.path), agent=AGENT, attempts=4,
                cost=200_000, failing=("make test",),
            )  # fmt: skip
            engine.database.write(lambda tx, vain=vain: tx.record(vain))
        tries = approve_candidate(closed_world, "validator_policy_tweak")["effect"]["tries"]
        assert tries < engine.settings.current.validation.tries
        for wrong in (4, 5, 6):
            closed_world.server.script(make_call("write", path="cart.txt", content=f"{wrong}\n"), "Done.")
        view = closed_world.work("Tidy the cart")
        assert f"still failing after {tries} attempt" in "\n".join(closed_world.read_lines(view))


def test_flow_offloads(eager: OperatorWorld):
    """5.2, 5.4: Commands that agents run again and again become a flow of that name, which needs no model."""
    eager.repository.commit("A script", {"check.sh": "echo fine\n"})
    commands = ["git status --short", "git diff --stat", "sh check.sh"]
    for number in range(8):
        written = make_call("write", path=f"n{number}.txt", content="x\n")
        eager.server.script(*[make_call("exec", command=command) for command in commands], written)
        eager.work(f"Do thing {number}", "Done.")
        if find_candidates_to_review(eager, "flow_offload"):
            break
    offload = approve_candidate(eager, "flow_offload")
    assert offload["effect"]["commands"] == commands
    name, requests = offload["effect"]["name"], len(eager.server.requests)
    view = eager.run_flow(name)
    assert (view.runner, view.state) == ("flow", SessionState.SUCCEEDED)
    assert "fine" in eager.read_lines(view, "output")
    assert len(eager.server.requests) == requests, "no model was asked"
    roll_back(eager, offload)
    assert name not in eager.engine.flows


def test_modes(eager: OperatorWorld):
    """5.6: In manual mode candidates wait for you; in autonomous mode what passes is active by itself."""
    eager.work_corrected(CORRECTION, "greeting", "farewell", "thanks")
    (candidate,) = find_candidates_to_review(eager)
    assert candidate["id"] in [entry.id for entry in eager.engine.list_waiting()]
    eager.work("Write an apology into sorry.txt", "Done.")
    (line,) = candidate["effect"]["guidance"]
    assert line not in eager.system_prompt
    eager.record_decisions("lint", DecisionSignal.APPROVED, 30)  # in the first days nothing is active by itself
    eager.change_setting("adaptation.mode", "autonomous")
    eager.run_jobs("adaptation")
    candidates = {candidate["id"]: candidate for candidate in eager.carry_out("candidates")["candidates"]}
    promoted = candidates[candidate["id"]]
    assert (promoted["status"], promoted["decidedBy"]) == ("promoted", "autonomy")
