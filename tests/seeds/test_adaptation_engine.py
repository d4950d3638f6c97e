"""From what happened to a change of how the engine acts, and back (section 5 of docs/SPEC.md)."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from engine.events import BudgetExceeded, RetryRepeated
from engine.model import DecisionSignal, SessionState
from engine.model.adaptation import CandidateStatus
from tests.seeds.world import Document, World
from tests.support.model_server import Call, Reply, calls

AGENT = "backend_builder"
SIGNED = "Texts are signed with initials"
GREEN = {"Makefile": "test:\n\tgrep -q 3 cart.txt\n", "cart.txt": "3\n"}


def waiting(world: World) -> list[Document]:
    """The candidates that wait for your word, after a round."""
    world.say("candidates", action="digest")
    return list(world.say("candidates", status=CandidateStatus.REVIEW.value)["candidates"])


def corrected(world: World, *names: str) -> None:
    """The operator adds the same words to each of these tasks."""
    for name in names:
        asked = f"Write a {name} into {name}.txt for us"
        world.work(asked, "Done.", edit=f"{asked}. {SIGNED}")


@pytest.fixture
def eager(closed: World):
    """A world in which no effect is withheld by chance, and prompts have neither memories nor learnings."""
    closed.configure(**{"adaptation.withheld": 0.0, "memory.recallTokens": 0, "memory.learningsTokens": 0})
    with closed.opened():
        yield closed


@pytest.mark.long
def test_reflection(world: World) -> None:
    """5.1: What happened is weighed from 0 to 100 and says why: your corrections, errors of tools, guidance used."""
    world.server.script(calls("edit", path="nowhere.txt", old_text="a", new_text="b"))
    corrected(world, "greeting")
    world.say("candidates", action="digest")
    found = {one["kind"]: one for one in world.say("candidates", action="records")["records"]}
    assert {"human_approval", "agent_error", "guidance_applied"} <= set(found)
    for one in found.values():
        assert 0 <= one["score"] <= 100
        assert one["reason"]
        assert one["session"]


@pytest.mark.long
def test_digest(eager: World) -> None:
    """5.3: A proposal needs more than the event it is drawn from: others alike that it was not drawn from."""
    corrected(eager, "greeting")
    assert waiting(eager) == []
    failed = eager.say("candidates")["candidates"]
    assert all(one["score"] <= 45 for one in failed), "alone it is capped at 45, and fails"
    corrected(eager, "farewell", "thanks")
    (one,) = waiting(eager)
    assert one["score"] >= 60
    assert set(one["draftedFrom"]).isdisjoint(one["corroboratedBy"])
    assert one["dedupeKey"] == ":".join((one["type"], one["scopeType"], one["scopeId"], one["sourceLabel"]))
    assert [each["id"] for each in waiting(eager)] == [one["id"]], "the same is proposed once"


@pytest.mark.long
def test_prompt_fragments(eager: World) -> None:
    """5.4, 5.5: A fragment that you approve stands in that agent's prompts, and is gone when you roll it back."""
    corrected(eager, "greeting", "farewell", "thanks")
    (one,) = waiting(eager)
    assert one["type"] == "prompt_fragment"
    (line,) = one["effect"]["guidance"]
    eager.say("candidates", action="approve", id=one["id"])
    eager.work("Write an apology into sorry.txt", "Done.")
    assert line in eager.told()
    kept = eager.engine.overlays.get_prompt_fragments(agent_id=AGENT, run_kind="task")
    assert [each.effect.to_json()["guidance"] for each in kept] == [[line]]
    eager.say("candidates", action="rollback", id=one["id"])
    eager.work("Write a toast into toast.txt", "Done.")
    assert line not in eager.told()


@pytest.mark.long
def test_fix_templates(closed: World) -> None:
    """5.2, 5.4: A repair that worked is told to whoever meets the same red test again."""
    closed.configure(validation=True, **{"adaptation.withheld": 0.0})
    closed.repository.commit("A cart", GREEN)
    repair = "The cart counts three; a test greps for it."

    def healed(number: int) -> str:
        """A session that breaks the cart and mends it; what it was told in between."""
        closed.server.requests.clear()
        write = Call("write", {"path": "cart.txt", "content": f"4\n{'x' * number}\n"})
        mend = Call("edit", {"path": "cart.txt", "old_text": "4\n", "new_text": "3\n"})
        closed.server.script(Reply(calls=(write,)), "Tidied.", Reply(calls=(mend,)))
        closed.work(f"Tidy the cart, part {number}", repair)
        return next(
            said for request in closed.server.requests for said in request.users if "that passed before" in said
        )

    with closed.opened():
        assert repair not in healed(1)
        assert repair not in healed(2)
        (one,) = [each for each in waiting(closed) if each["type"] == "fix_template"]
        closed.say("candidates", action="approve", id=one["id"])
        assert repair in healed(3)


@pytest.mark.long
def test_routing_hints(eager: World) -> None:
    """5.2, 5.4: When its budget was passed on three days an agent's short tasks go to a cheaper model, if you like."""
    tools = eager.agent("frontend_builder") / "tools.json"
    tools.write_text(json.dumps(json.loads(tools.read_text()) | {"models": {"task": "openai:gpt-5-nano"}}))
    eager.work("Write a greeting into hello.txt", "Done.")
    assert eager.last.model == "gpt-5-mini"
    for spent in (1_500_000, 1_600_000, 1_700_000):
        over = BudgetExceeded(subject=AGENT, spent=spent, budget=1_000_000)
        eager.engine.database.write(lambda tx, over=over: tx.record(over))
        eager.clock.advance(timedelta(days=1))
    (one,) = [each for each in waiting(eager) if each["type"] == "routing_hint"]
    eager.say("candidates", action="approve", id=one["id"])
    eager.work("Write a farewell into bye.txt", "Done.")
    assert eager.last.model == "gpt-5-nano"
    eager.say("candidates", action="rollback", id=one["id"])
    eager.work("Write an apology into sorry.txt", "Done.")
    assert eager.last.model == "gpt-5-mini"


@pytest.mark.long
def test_validator_policy_tweaks(closed: World) -> None:
    """5.2, 5.4: Where more tries never helped fewer are made, once you approve; a bound only ever gets tighter."""
    closed.configure(validation=True, **{"adaptation.withheld": 0.0})
    closed.repository.commit("A cart", GREEN)
    with closed.opened() as engine:
        for number in range(3):
            vain = RetryRepeated(
                subject=f"sess_{number}", workspace=str(closed.repository.path), agent=AGENT, attempts=4, cost=200_000,
                failing=("make test",),
            )  # fmt: skip
            engine.database.write(lambda tx, vain=vain: tx.record(vain))
        (one,) = [each for each in waiting(closed) if each["type"] == "validator_policy_tweak"]
        assert one["effect"]["tries"] < engine.settings.current.validation.tries
        closed.say("candidates", action="approve", id=one["id"])
        for wrong in (4, 5, 6):
            closed.server.script(calls("write", path="cart.txt", content=f"{wrong}\n"), "Done.")
        view = closed.work("Tidy the cart")
        assert f"still failing after {one['effect']['tries']} attempt" in "\n".join(closed.texts(view))


@pytest.mark.long
def test_flow_offloads(eager: World) -> None:
    """5.2, 5.4: Commands that agents run again and again become a flow of that name, which needs no model."""
    eager.repository.commit("A script", {"check.sh": "echo fine\n"})
    commands = ["git status --short", "git diff --stat", "sh check.sh"]
    found: list[Document] = []
    for number in range(8):
        written = calls("write", path=f"n{number}.txt", content="x\n")
        eager.server.script(*[calls("exec", command=command) for command in commands], written)
        eager.work(f"Do thing {number}", "Done.")
        found = [one for one in waiting(eager) if one["type"] == "flow_offload"]
        if found:
            break
    (one,) = found
    assert one["effect"]["commands"] == commands
    eager.say("candidates", action="approve", id=one["id"])
    asked = len(eager.server.requests)
    view = eager.flow(one["effect"]["name"])
    assert (view.runner, view.state) == ("flow", SessionState.SUCCEEDED)
    assert "fine" in eager.texts(view, "output")
    assert len(eager.server.requests) == asked, "no model was asked"
    eager.say("candidates", action="rollback", id=one["id"])
    assert one["effect"]["name"] not in eager.engine.flows


@pytest.mark.long
def test_modes(eager: World) -> None:
    """5.6: In manual mode candidates wait for you; in autonomous mode what passes is in force by itself."""
    corrected(eager, "greeting", "farewell", "thanks")
    (one,) = waiting(eager)
    assert one["id"] in [wait.id for wait in eager.engine.queue()]
    eager.work("Write an apology into sorry.txt", "Done.")
    (line,) = one["effect"]["guidance"]
    assert line not in eager.told()
    eager.decided("lint", DecisionSignal.APPROVED, 30)  # in the first days nothing is in force by itself
    eager.say("config", action="set", key="adaptation.mode", value="autonomous")
    eager.job("adaptation")
    (shown,) = [each for each in eager.say("candidates")["candidates"] if each["id"] == one["id"]]
    assert (shown["status"], shown["decidedBy"]) == ("promoted", "autonomy")
