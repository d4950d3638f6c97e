"""The rails around a card, in the whole engine (section 3 of docs/SPEC.md).

A test is named after the part that it shows. What must hold is the first line of its docstring.
"""

import json

import pytest

from engine.model import Assignment, AutonomyState, DecidedBy, Refusal, SessionState, Trigger, TriggerType
from tests.seeds.operator_world import OperatorWorld, find_verdict
from tests.support.model_server import make_call
from tests.support.model_world import CHANNEL

RAILS = {"rate", "loop", "cost", "content", "gate", "kill"}


def test_safety_pipeline(world: OperatorWorld):
    """3.1: Six rails speak on each card before you decide, and again on your decision, of which one row is kept."""
    card = world.propose_card("report_branches")
    assert {row["rail"] for row in card["verdicts"]} == RAILS
    world.approve(card["id"])
    (row,) = world.read_rows("SELECT * FROM crosspoll_log")
    stored_verdicts = json.loads(row["verdicts"])
    assert [stored["rail"] for stored in stored_verdicts] == [shown["rail"] for shown in card["verdicts"]]
    assert (row["prediction_id"], row["trigger_type"], row["blocked"]) == (card["id"], "manual", 0)
    (permit,) = world.read_rows("SELECT * FROM permits")
    assert permit["digest"] == row["digest"]
    assert permit["consumed_at"], "nothing runs without a permit, and each is used once"


@pytest.mark.long
def test_rate_limiter(trusted_world: OperatorWorld):
    """3.2: Without a person nothing is triggered within 10 min of the last; what you approve runs at once."""
    ask = trusted_world.serve()
    trusted_world.predict()
    first = ask("POST", "/api/v1/crosspoll/trigger", targetChannel="koji-core")
    assert first["triggered"] is True, first["message"]
    hint = {"hint": "report_branches", "targetChannel": "koji-core"}
    trusted_world.advance(minutes=9, seconds=59)
    again = ask("POST", "/api/v1/crosspoll/trigger", **hint)
    assert not again["triggered"]
    assert "rate" in again["message"]
    assert trusted_world.approve(again["prediction"]["id"]).state is SessionState.SUCCEEDED


@pytest.mark.long
def test_loop_detector(trusted_world: OperatorWorld):
    """3.3: Channels that trigger each other in a circle are stopped, and each loop that was stopped is counted."""

    def ask_loop_detector() -> str:
        """The verdict of the loop detector when work of the channel asks for more of the same."""
        trusted_world.advance(seconds=30)
        work = Assignment("report_branches", CHANNEL, str(trusted_world.repository.path), "flow", "report_branches")
        trigger = Trigger(
            "pred_loop", TriggerType.FOLLOW_UP, work, "backend_builder", 0.95, 0, DecidedBy.AUTONOMY,
            from_channel=CHANNEL, phase=2, approval_bound=0.9, is_forced=True,
        )  # fmt: skip
        engine = trusted_world.engine
        ruling = engine.database.write(lambda tx: engine.safety.pipeline.decide(tx, trigger))
        return next(verdict.verdict.value for verdict in ruling.verdicts if verdict.rail == "loop")

    assert ask_loop_detector() == "allow"
    assert ask_loop_detector() == "block", "it would answer itself within 5 min"
    assert trusted_world.carry_out("status")["crossPollStatus"]["loopDetectionCount"] == 1
    trusted_world.advance(minutes=6)
    assert ask_loop_detector() == "allow"
    assert trusted_world.run_flow("report_branches").state is SessionState.SUCCEEDED


@pytest.mark.long
def test_cost_caps(world: OperatorWorld):
    """3.4: Nothing starts that would pass a cap of the hour, day or month; what was spent is shown beside it."""
    world.work("Write a greeting into hello.txt", "Done.")
    spent = world.carry_out("status")["crossPollStatus"]
    assert 0 < spent["costThisHour"] == spent["costToday"] < spent["costCapPerHour"] == 2.0
    assert world.read_rows("SELECT * FROM cost_entries")
    for window, default in (("Hour", 2), ("Day", 20), ("Month", 200)):
        world.change_setting(f"crossPollCostCapPer{window}", 0.001)
        card = world.propose_card("Write a farewell into bye.txt")
        assert find_verdict(card, "cost")[0] == "block"
        world.change_setting(f"crossPollCostCapPer{window}", default)
    world.change_setting("crossPollCostCapPerHour", 0.001)
    with pytest.raises(Refusal, match="cost"):
        world.engine.cards.approve(card["id"], without_sandbox=True)
    world.change_setting("crossPollCostCapPerHour", 2)
    world.server.script("Done.")
    assert world.approve(card["id"]).state is SessionState.SUCCEEDED


@pytest.mark.long
def test_content_filter(world: OperatorWorld):
    """3.5: Destructive commands and payments are blocked, messages to others wait for your word, work passes."""
    verdicts = {
        "rm  -fr /": "block",
        "DROP TABLE customers": "block",
        "buy more credits": "block",
        "email the customers about the delay": "ask",
        "fix the cart": "allow",
    }
    assert {text: find_verdict(world.propose_card(text), "content")[0] for text in verdicts} == verdicts
    world.server.script(make_call("exec", command="git push --force origin main"), "I could not push.")
    view = world.approve(world.propose_card("Tidy up")["id"])
    assert "the content filter blocks this" in world.last_request.tool_results[-1]
    assert any("push --force origin main refused" in text for text in world.read_lines(view))


def test_human_gate(world: OperatorWorld):
    """3.6: Low confidence, production, a new pair of channels and the first days always wait for a person."""
    world.server.script("Done.")
    card = world.propose_card("Restart the workers of production")
    gate_verdict, reasons = find_verdict(card, "gate")
    assert gate_verdict == "ask"
    for reason in ("confidence 0.40 is below 0.60", "touches production", "NEW", "first days: 0 of 10"):
        assert reason in reasons
    assert card["novel"] is True


def test_pause_after_rejections(world: OperatorWorld):
    """3.6, 7.1: After three rejections in a row it pauses, and watches again once you resume it."""
    world.change_setting("autonomousModeEnabled", True)
    world.change_setting(f'workspaces."{world.repository.path}".autonomy', "act")
    guesses = [json.dumps({"prediction": f"Try {n}", "confidence": 0.5, "channel": "garden"}) for n in range(3)]
    (world.home.data / "predictions.jsonl").write_text("\n".join(guesses) + "\n")
    for guess in world.predict(channel="garden"):
        world.carry_out("dismiss", id=guess["id"])
    world.run_jobs("state")
    assert world.carry_out("status")["state"] == "PAUSED", "three rejections in a row"
    world.carry_out("resume", word="pause")
    assert world.carry_out("status")["state"] == "WATCHING"


@pytest.mark.long
def test_kill_switch(world: OperatorWorld):
    """3.7: A stop ends what runs, holds over a restart, and is lifted by its own word alone."""
    card = world.propose_card("Write a greeting into hello.txt")
    world.server.script(make_call("exec", command="sleep 60"))
    approved = world.engine.cards.approve(card["id"], without_sandbox=True)
    world.server.wait(1)
    assert approved.session_id in world.carry_out("stop", reason="smoke")["stopped"]
    assert world.engine.sessions.wait(approved.session_id or "", 10).state is SessionState.CANCELLED
    with world.restarted() as engine:
        assert engine.autonomy.update_state().state is AutonomyState.DISABLED
        with pytest.raises(Refusal):
            world.run_flow("report_branches")
        with pytest.raises(Refusal):
            world.carry_out("resume", word="pause")
        world.carry_out("resume", word="stop")
        assert world.run_flow("report_branches").state is SessionState.SUCCEEDED
