"""Sessions of prose on a real model: what is streamed, called, counted and stored is what the server really says."""

from __future__ import annotations

from engine.values import SessionState
from tests.execution.model.world import ModelWorld
from tests.model.server import Wire

ASKED = "Look into readme.md"


def test_a_tool_is_called_and_its_result_is_told_the_model(world: ModelWorld, wire: Wire) -> None:
    with world.opened() as engine:
        view = world.run(ASKED, seconds=300)
        assert (view.state, view.error) == (SessionState.SUCCEEDED, "")
        assert {"read", "write", "edit", "exec"} <= set(wire.tools)
        first, second = wire.requests
        assert first["tools"] == second["tools"]
        [*_, called, result] = second["messages"]
        assert called["tool_calls"][0]["function"]["name"] == "read"
        assert "# Shop" in result["content"]
        assert result["tool_call_id"] == called["tool_calls"][0]["id"]
        [used] = engine.ledger.latest(kinds=("ToolsUsed",))
        assert used.payload["calls"] == ["read"]
        assert world.texts(view, "say") == view.summary.splitlines()
        world.close_well(view)
