"""Commands that a coding agent runs through the client: their output, their end, and who allows them (SPEC 3.8)."""

import json
from typing import Any

import pytest

from engine.model import SessionState, SessionView
from tests.execution.acp.acp_world import AcpWorld
from tests.execution.acp.steps import ask_to_execute, request, run_in_terminal, say

pytestmark = pytest.mark.long


def read_terminal_answers(world: AcpWorld, view: SessionView) -> list[Any]:
    """What the agent was answered about its first terminal: its end, its output, and whether it is released."""
    line = next(line for line in world.read_words(view) if line.startswith("terminal ["))
    return json.loads(line.removeprefix("terminal "))


def test_a_terminal_runs_in_the_worktree_with_its_output_and_exit(world: AcpWorld):
    env = [{"name": name, "value": "hi"} for name in ("WORD", "LD_LIBRARY_PATH")]
    view = world.run(run_in_terminal("sh", "-c", "pwd; echo $WORD$LD_LIBRARY_PATH; exit 3", env=env))
    ended, output, released = read_terminal_answers(world, view)
    assert ended["exitCode"] == 3
    assert output["exitStatus"]["exitCode"] == 3
    assert output["output"] == f"{world.worktrees.folder_of(view.id)}\nhi\n"
    assert output["truncated"] is False
    assert released
    assert "exit 3" in "".join(world.read_lines(view, ["exit"]))


def test_a_terminal_is_killed_alone(world: AcpWorld):
    view = world.run(run_in_terminal("sh", "-c", "echo ready; sleep 3600", kill=True), say("still here"))
    assert read_terminal_answers(world, view)[0]["signal"] == "SIGTERM"
    assert world.read_words(view)[-1] == "still here"


def test_an_allowed_command_is_not_asked_about_again(world: AcpWorld):
    echo = run_in_terminal("bash", "-c", "echo hello")
    view = world.run(ask_to_execute("echo hello"), echo, echo)
    assert [call.detail for call in world.permission_requests] == ["echo hello", "echo hello"]  # the second run asks
    assert view.state is SessionState.SUCCEEDED


def test_a_permission_that_the_agent_cannot_be_told_does_not_count(world: AcpWorld):
    call = {"toolCallId": "t9", "title": "run it", "kind": "execute", "rawInput": {"command": "echo hello"}}
    echo = run_in_terminal("bash", "-c", "echo hello")
    world.run(request("session/request_permission", toolCall=call, options=[]), echo)
    assert [call.detail for call in world.permission_requests] == ["echo hello", "echo hello"]


def test_a_terminal_that_is_denied_or_outside_the_folder_does_not_run(world: AcpWorld):
    world.decide = lambda title: "rm" not in title
    view = world.run(
        run_in_terminal("rm", "-rf", "a.txt"), run_in_terminal("ls", cwd="/etc"), run_in_terminal("no-such-program")
    )
    lines = world.read_words(view)
    assert "not allowed" in lines[0]
    assert "is not a folder of this session" in lines[1]
    ended, output, _ = read_terminal_answers(world, view)
    assert ended["exitCode"] == 126
    assert "`no-such-program` is not installed" in output["output"]
