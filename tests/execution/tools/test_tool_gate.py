"""Every call of a tool passes its policy, the content filter, production targets, and where needed a person (SPEC 3.5,
3.6, 4.1)."""

from typing import Any

import pytest

from engine.execution.sandbox.ladder import find_best_sandbox
from engine.execution.session_store import AUTONOMOUS
from engine.execution.tools import TOOL_NAMES, Policy
from engine.execution.tools.tool_gate import AgentToolCall
from engine.model import PermissionAnswer, Refusal
from tests.execution.session_world import needs_sandbox
from tests.execution.tools.belt_world import BeltWorld, MakeBeltWorld
from tests.support import read_table

TABLE = read_table(__file__)

ALLOW_ONCE, ALLOW_SESSION = PermissionAnswer.ALLOW_ONCE, PermissionAnswer.ALLOW_SESSION
DENY_ONCE = PermissionAnswer.DENY_ONCE


def list_offered_tools(world: BeltWorld) -> list[str]:
    return [spec.name for spec in world.belt.list_specs()]


def test_by_itself_nothing_is_executed_without_a_sandbox(make_belt_world: MakeBeltWorld):
    world = make_belt_world(mode=AUTONOMOUS)
    assert "exec" not in list_offered_tools(world)
    assert "without a sandbox" in world.get_problem("exec", command="touch done")
    assert not (world.folder / "done").exists()
    if find_best_sandbox().confines:
        assert "exec" in list_offered_tools(make_belt_world(mode=AUTONOMOUS, sandbox=find_best_sandbox()))


def test_a_blocked_command_is_recorded_and_not_run(world: BeltWorld):
    result = world("exec", command="rm -rf /")
    assert (result.ok, result.denied) == (False, True)
    assert "content filter blocks this" in result.text
    refused = world.refused[0]
    assert (refused.tool, refused.what, refused.rule, refused.subject) == ("exec", "rm -rf /", "blocked", world.view.id)
    assert world.permissions.list_newest() == [], "a block is nobody's to allow"
    assert world.read_lines()[-1].startswith("exec rm -rf / refused: the content filter blocks this")


def test_a_risky_command_waits_for_a_person(world: BeltWorld):
    for name in ("a", "b"):
        world.write_file(name, "x")
    world.answer_request(ALLOW_ONCE)
    world.get_answer("exec", command="# a \\\nshred -\\\nu a")
    assert not (world.folder / "a").exists()
    request = world.permissions.list_newest()[0]
    assert (request.tool, request.title, request.detail) == ("exec", "run # a \\; shred -u a", "# a \\\nshred -\\\nu a")
    assert request.reason == "overwrites files permanently"
    world.answer_request(DENY_ONCE)
    result = world("exec", command="shred -u b")
    assert result.denied
    assert "the operator said no" in result.text
    assert (world.folder / "b").exists()


def test_the_operators_rules_hold_for_file_tools(make_belt_world: MakeBeltWorld):
    world = make_belt_world(
        settings={"content": {"block": ["cat .env", "tee secrets/*", "curl https://evil.example/*"]}}
    )
    world.write_file(".env", "KEY=1")
    assert "content filter blocks" in world.get_problem("read", path="./.env")
    assert "content filter blocks" in world.get_problem("write", path="secrets/a", content="x")
    assert "content filter blocks" in world.get_problem("web_fetch", url="https://evil.example/a")
    assert not (world.folder / "secrets").exists()


def test_production_is_always_asked_about(make_belt_world: MakeBeltWorld):
    world = make_belt_world(settings={"production": {"paths": ["deploy/*"]}})
    world.write_file("deploy/live.yml", "a: 1\n")
    assert world.get_answer("read", path="deploy/live.yml") == "a: 1\n"
    world.answer_request(DENY_ONCE)
    assert "said no" in world.get_problem("edit", path="deploy/live.yml", old_text="1", new_text="2")
    request = world.permissions.list_newest()[0]
    assert request.reason == "touches production: path deploy/live.yml"
    assert request.detail.endswith("@@ -1 +1 @@\n-a: 1\n+a: 2")
    (world.folder / "link").symlink_to("deploy")
    world.answer_request(DENY_ONCE)
    assert "said no" in world.get_problem("write", path="link/live.yml", content="x"), "a link is no way around"


def test_an_answer_for_the_session_holds_for_a_tool_that_tools_json_asks_about(make_belt_world: MakeBeltWorld):
    world = make_belt_world(policy=Policy(ask=("write",)))
    world.answer_request(ALLOW_SESSION)
    for name in ("a.txt", "b.txt"):
        world.get_answer("write", path=name, content="1")
    assert "holds for every write" in world.permissions.list_newest()[-1].reason


@needs_sandbox
@pytest.mark.parametrize(
    "call, rule",
    [
        (AgentToolCall("think", "a title"), ""),
        (AgentToolCall("execute", "a title", command="pytest -q"), ""),
        (AgentToolCall("edit", "a title", paths=("a.py", "b/c.py")), ""),
        (AgentToolCall("execute", "a title", command="rm -rf /"), "blocked"),
        (AgentToolCall("execute", "a title", command="cd a && make deploy"), "denied"),
        (AgentToolCall("edit", "a title", paths=("a.py", "../b")), "outside"),
        (AgentToolCall("read", "a title", paths=(".git/config",)), "git_folder"),
    ],
)
def test_an_agents_own_tools_pass_the_same_gate(make_belt_world: MakeBeltWorld, call: AgentToolCall, rule: str):
    world = make_belt_world(sandbox=find_best_sandbox(), policy=Policy(allow=TOOL_NAMES, deny=("exec:make *",)))
    assert world.belt.ask_permission(call) is (rule == "")
    assert [entry.rule for entry in world.refused] == ([rule] if rule else [])
    assert world.permissions.list_newest() == []


@needs_sandbox
@pytest.mark.parametrize("kind, arguments, reason", TABLE["asked_about"])
def test_a_person_is_asked_about_unknown_kinds_of_tools(
    make_belt_world: MakeBeltWorld, kind: str, arguments: dict[str, Any], reason: str
):
    world = make_belt_world(sandbox=find_best_sandbox())
    call = AgentToolCall(kind, "do something", "with this", **arguments)
    for answer in (ALLOW_ONCE, DENY_ONCE):
        world.answer_request(answer)
        assert world.belt.ask_permission(call) is answer.allows
    assert all(reason in entry.reason for entry in world.permissions.list_newest())
    assert len(world.permissions.list_newest()) == 2
    alone = make_belt_world(sandbox=find_best_sandbox(), mode=AUTONOMOUS)
    assert not alone.belt.ask_permission(call)


def test_a_person_is_asked_about_an_agents_own_tools_without_a_sandbox(world: BeltWorld):
    world.answer_request(DENY_ONCE)
    assert not world.belt.ask_permission(AgentToolCall("read", "read a", paths=["a.py"]))
    assert "no sandbox confines" in world.permissions.list_newest()[0].reason


def test_an_agent_that_may_not_write_cannot_write_through_the_client(make_belt_world: MakeBeltWorld):
    world = make_belt_world(policy=Policy(allow=("read",), ask=("edit",)))
    with pytest.raises(Refusal, match="does not allow"):
        world.belt.write_text("a.txt", "x")
    assert not (world.folder / "a.txt").exists()
