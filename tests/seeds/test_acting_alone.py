"""What the engine does by itself, and when it does nothing (sections 3 and 7 of docs/SPEC.md).

A test is named after the part that it shows. What must hold is the first line of its docstring.
"""

import os
from pathlib import Path

import pytest

from engine.model import DecidedBy, Outcome
from tests.seeds.operator_world import OperatorWorld
from tests.support.model_server import make_call

pytestmark = pytest.mark.long


def test_autonomous_states(trusted_world: OperatorWorld):
    """2.2, 7.1, 7.4: Thirty silent minutes prime it, a file that you save ends that; without the flag it never does."""

    def state_after(minutes: int) -> str:
        trusted_world.advance(minutes=minutes)
        trusted_world.run_jobs("state")
        return str(trusted_world.carry_out("status")["state"])

    assert state_after(9) == "WATCHING", "and twenty before"
    assert state_after(2) == "PRIMING"
    saved = trusted_world.repository.write("readme.md", "# Our shop\n")
    stamp = trusted_world.clock.now().timestamp()
    os.utime(saved, (stamp, stamp))
    assert state_after(5) == "WATCHING"
    trusted_world.change_setting("autonomousModeEnabled", False)
    assert state_after(60) == "WATCHING"
    trusted_world.change_setting("crossPollEnabled", False)
    assert state_after(0) == "DISABLED"


def test_autonomous_cycle(trusted_world: OperatorWorld):
    """7.2: In your absence it runs what you have always approved, and tells you what it did."""
    trusted_world.leave_alone()
    (cycle,) = trusted_world.read_events("AutonomousCycleFinished")
    card = trusted_world.engine.cards.get(cycle["acted"])
    view = trusted_world.engine.sessions.find_of_card(card.id)
    trusted_world.engine.sessions.wait(view.id, 20)
    assert (card.kind, card.decided_by) == ("report_branches", DecidedBy.AUTONOMY)
    assert trusted_world.engine.cards.get(card.id).outcome is Outcome.SUCCEEDED
    assert trusted_world.carry_out("status")["state"] == "AUTONOMOUS"
    assert trusted_world.engine.read_activity().approved_by_itself == 1, "told after an absence"


def test_session_boundaries(trusted_world: OperatorWorld):
    """3.8: What runs by itself is marked and in a sandbox; no session writes beyond its folder or sends messages."""
    trusted_world.leave_alone()
    (running,) = [session for session in trusted_world.engine.sessions.list_newest() if session.mode == "autonomous"]
    session = trusted_world.engine.sessions.wait(running.id, 20)
    assert session.id.startswith("auto_")
    assert session.prediction_id
    assert session.sandbox not in ("", "no sandbox")
    trusted_world.advance(minutes=20)
    trusted_world.server.script(make_call("exec", command="cat ~/.ssh/id_rsa; echo x > ../escaped.txt"), "I looked.")
    trusted_world.approve(trusted_world.propose_card("Look around")["id"])
    assert set(trusted_world.last_request.tools).isdisjoint({"message", "tts", "browser"})
    assert not (Path(session.cwd).parent / "escaped.txt").exists()
    assert (
        "No such file" in trusted_world.last_request.tool_results[-1]
        or "denied" in trusted_world.last_request.tool_results[-1]
    )


def test_quiet_hours(trusted_world: OperatorWorld):
    """7.3: At night and while you asked not to be disturbed cards are made, but nothing runs by itself."""
    trusted_world.carry_out("dnd", seconds=7200)
    trusted_world.leave_alone()
    (cycle,) = trusted_world.read_events("AutonomousCycleFinished")
    assert cycle["acted"] == ""
    assert "report_branches" in [card.kind for card in trusted_world.engine.cards.list_pending()]
    trusted_world.carry_out("dnd", off=True)
    assert trusted_world.carry_out("status")["quiet"] is False
    night = trusted_world.clock.now().replace(hour=23, minute=30)
    trusted_world.clock.advance(night - trusted_world.clock.now())
    assert trusted_world.carry_out("status")["quiet"] is True
    trusted_world.run_jobs("state", "act")
    assert [cycle["acted"] for cycle in trusted_world.read_events("AutonomousCycleFinished")] == ["", ""]
