"""A session of a coding agent from the permit to the change set, and its commands in terminals (SPEC 3.8, 3.9, 9.4)."""

import json
import threading
from typing import Any

import pytest

from engine.execution.sandbox.ladder import find_best_sandbox
from engine.model import Refusal, SessionState, SessionView
from tests.execution.acp.acp_world import AcpWorld, MakeAcpWorld
from tests.execution.acp.steps import (
    ask_permission,
    ask_to_execute,
    end_turn,
    read,
    read_by_itself,
    request,
    run_in_terminal,
    say,
    send_update,
    tell_environment,
    write,
    write_by_itself,
)
from tests.execution.session_world import needs_sandbox
from tests.support.checks import wait_until

pytestmark = pytest.mark.long


def test_text_is_shown_and_written_files_become_a_change_set(world: AcpWorld):
    view = world.run(
        say("I look "),
        say("around.\nThen"),
        send_update("agent_thought_chunk", content={"type": "text", "text": "hm"}),
        read("a.txt", line=2, limit=1),
        write("b.txt", "new\n"),
        say("All done."),
    )
    assert view.state is SessionState.SUCCEEDED, world.read_lines(view, ())
    assert world.read_words(view) == ["I look around.", "Then", "read two", "", "wrote ok", "All done."]
    assert world.read_lines(view, ["thought"]) == ["hm"]
    change = world.find_change(view)
    assert [file.path for file in change.files] == ["b.txt"]
    assert change.id == view.change_set_id
    assert not (world.workspace / "b.txt").exists()
    assert view.summary.endswith("All done.")


def test_tool_calls_and_the_plan_are_shown_as_they_happen(world: AcpWorld):
    diff = {"type": "diff", "path": "a.txt", "oldText": "one\ntwo\n", "newText": "one\n2\n"}
    looking = {"content": "look", "priority": "high", "status": "completed"}
    writing = {"content": "write", "priority": "high", "status": "in_progress"}
    view = world.run(
        send_update("plan", entries=[looking, writing]),
        send_update("tool_call", toolCallId="c1", title="Edit a.txt", kind="edit"),
        send_update("tool_call_update", toolCallId="c1", status="completed", content=[diff]),
        send_update("plan", entries=[looking, writing | {"status": "completed"}]),
        send_update("current_mode_update", currentModeId="yolo"),
    )
    assert world.read_lines(view, ["tool"]) == ["Edit a.txt · waits", "Edit a.txt · done"]
    assert world.read_lines(view, ["output"])[3:] == [" one", "-two", "+2"]
    notes = ["plan 1/2 ✓ look", "plan 2/2 → write", "plan 2/2 ✓ write", "its mode is now yolo"]
    assert [line for line in world.read_lines(view, ["note"]) if line in notes] == notes


# Replies and further turns


def test_replies_are_further_turns(world: AcpWorld):
    replied = threading.Event()
    world.decide = lambda title: True if replied.is_set() else None
    view = world.start(ask_permission("go on?", "edit"))
    wait_until(lambda: world.permission_requests)
    world.sessions.reply(view.id, "and then the second thing")
    replied.set()
    view = world.finish(view)
    assert world.read_words(view)[-1] == "You said: and then the second thing"
    assert [entry["run_kind"] for entry in world.calls.begun] == ["task", "reply"]
    assert world.calls.begun[1]["follows"] == "call_1"
    with pytest.raises(Refusal, match=rf"\(finished\).*clawpy propose --continue {view.id} TEXT"):
        world.sessions.reply(view.id, "too late")


@pytest.mark.parametrize("reason, words", [("refusal", "refused"), ("cancelled", "ended the turn early")])
def test_a_turn_that_did_not_end_well_fails_the_session(world: AcpWorld, reason: str, words: str):
    view = world.run(end_turn(reason))
    assert view.state is SessionState.FAILED
    assert words in view.error


# In the sandbox


@needs_sandbox
def test_in_the_sandbox_it_writes_by_itself_only_where_it_may(make_acp_world: MakeAcpWorld):
    world = make_acp_world(sandbox=find_best_sandbox())
    secret = world.root / "outside.txt"
    secret.write_text("secret")
    view = world.run(
        read_by_itself(secret),
        read_by_itself(world.home.config / "config.toml"),
        tell_environment("HOME"),
        write_by_itself("mine.txt", "mine\n"),
        run_in_terminal("sh", "-c", "echo from the terminal > term.txt; ls $HOME"),
    )
    assert view.state is SessionState.SUCCEEDED, world.read_lines(view, ())
    lines = world.read_words(view)
    assert lines[0] == lines[1] == "own read FileNotFoundError"
    assert json.loads(lines[2].removeprefix("environment "))["HOME"] == str(world.home.data / "acp" / "small")
    assert [file.path for file in world.find_change(view).files] == ["mine.txt", "term.txt"]


@needs_sandbox
def test_an_agent_reaches_only_its_provider(make_acp_world: MakeAcpWorld):
    """The way out of the sandbox is the agent's alone; commands that are run for it have none."""
    world = make_acp_world(sandbox=find_best_sandbox(), section={"hosts": ("api.example.com",)})
    view = world.run(tell_environment("HTTPS_PROXY"), run_in_terminal("sh", "-c", "echo proxy=$HTTPS_PROXY"))
    environment = json.loads(world.read_words(view)[0].removeprefix("environment "))
    assert environment["HTTPS_PROXY"].startswith("http://127.0.0.1:")
    assert "proxy=" in world.read_lines(view, ["output"])
    assert any("network only to api.example.com" in line for line in world.read_lines(view, ["note"]))


# Terminals


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
