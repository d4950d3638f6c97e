"""Every call goes through policy, content filter, production targets, where needed a person (SPEC 3.5, 3.6, 4.1)."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.clock import FakeClock
from engine.config import Production
from engine.events import AgentErred, ToolsUsed
from engine.execution.live_session import AUTONOMOUS
from engine.execution.process_termination import marked_processes
from engine.execution.runners.flow import SessionStopped
from engine.execution.sandbox.ladder import best_sandbox
from engine.execution.tools import policy
from engine.execution.tools.policy import Policy
from engine.execution.tools.tool_arguments import TOOL_NAMES
from engine.execution.tools.toolbelt import Toolbelts
from engine.hierarchy.agents import Agents
from engine.hierarchy.organisation import Tools
from engine.model import PermissionAnswer, Refusal, Verdict
from engine.safety.content import programs_of
from engine.storage.database import Database
from tests.execution.session_world import until
from tests.execution.tools.belt_world import BeltWorld
from tests.execution.tools.conftest import MakeWorld

ALLOW_ONCE, ALLOW_SESSION = PermissionAnswer.ALLOW_ONCE, PermissionAnswer.ALLOW_SESSION
DENY_ONCE, DENY_SESSION = PermissionAnswer.DENY_ONCE, PermissionAnswer.DENY_SESSION


def names(world: BeltWorld) -> list[str]:
    return [spec.name for spec in world.belt.specs()]


# What is offered


def test_a_tool_that_tools_json_does_not_allow_is_not_offered(make: MakeWorld) -> None:
    world = make(policy=Policy(allow=("read", "exec:git *"), ask=("write",), deny=("edit",)))
    assert names(world) == ["read", "write", "exec"]
    assert "does not allow edit (there is read, write, exec)" in world.no("edit", path="a", old_text="a", new_text="b")


def test_exactly_six_tools_are_offered(make: MakeWorld) -> None:
    world = make(settings={"web": {"searchUrl": "http://127.0.0.1:1/search"}})
    assert names(world) == ["read", "write", "edit", "exec", "web_search", "web_fetch"]
    for name in ("message", "tts", "browser", "Read", ""):
        assert not world(name, path="a").ok


def test_by_itself_nothing_is_executed_without_a_sandbox(make: MakeWorld) -> None:
    world = make(mode=AUTONOMOUS)
    assert "exec" not in names(world)
    assert "without a sandbox" in world.no("exec", command="touch done")
    assert not (world.folder / "done").exists()
    if best_sandbox().confines:
        assert "exec" in names(make(mode=AUTONOMOUS, sandbox=best_sandbox()))


def test_an_agent_whose_folder_is_broken_has_no_tools(
    make: MakeWorld, tmp_path: Path, database: Database, clock: FakeClock
) -> None:
    world = make()
    agents = Agents(tmp_path / "agents", cascade_config=tmp_path / "c.json", settings=world.settings, database=None)
    agents.ensure_organisation()
    folder = tmp_path / "agents" / "backend_builder" / "tools.json"
    belts = Toolbelts(database, settings=world.settings, permissions=world.permissions, lists=agents.tools)
    view = replace(world.view, agent="backend_builder")
    assert [spec.name for spec in belts.open(world.live, view, world.folder).specs()] == [
        "read", "write", "edit", "exec", "web_fetch",
    ]  # fmt: skip
    folder.write_text("{")
    belt = belts.open(world.live, view, world.folder)
    assert belt.specs() == ()
    result = belt.call("read", {"path": "a"})
    assert result.denied
    assert "tools.json" in result.text
    assert belts.open(world.live, replace(world.view, agent="nobody"), world.folder).specs() == ()
    folder.write_text(json.dumps(Tools(allow=["read"], ask=["exec"]).model_dump(exclude={"budget"})))
    assert [spec.name for spec in belts.open(world.live, view, world.folder).specs()] == ["read", "exec"]


# exec


def test_exec_returns_output_and_exit_code(world: BeltWorld) -> None:
    assert world.ok("exec", command="echo hello; echo oops >&2").startswith("hello\noops\n\n[exit code 0, ")
    assert "[exit code 3, " in world.no("exec", command="exit 3")
    assert world.lines("tool", "output", "exit")[:3] == ["exec echo hello; echo oops >&2", "hello", "oops"]
    assert world.lines("command") == []
    assert "[no output]" in world.ok("exec", command="true")
    assert "pipefail" in world.ok("exec", command="set -o | grep pipefail; pwd | grep 'work tree'")


@pytest.mark.long
def test_exec_ends_after_its_timeout_with_its_background_processes(world: BeltWorld) -> None:
    answer = world.no("exec", command="sleep 300 & setsid sleep 300 & sleep 300", timeout_seconds=1)
    assert "it was ended after 1 s" in answer
    world.ok("exec", command="sleep 300 & disown; setsid nohup sleep 300 >/dev/null 2>&1 & echo")
    world.live.processes.end(grace=0)
    until(lambda: not marked_processes(world.live.id))


def test_exec_ends_with_its_session(world: BeltWorld) -> None:
    results: list[object] = []

    def work() -> None:
        try:
            results.append(world.belt.call("exec", {"command": "sleep 300"}))
        except SessionStopped as stopped:
            results.append(str(stopped))

    thread = threading.Thread(target=work)
    thread.start()
    until(lambda: marked_processes(world.live.id))
    world.stop("enough")
    world.live.processes.end()
    thread.join(5)
    assert results == ["enough"]
    with pytest.raises(SessionStopped):
        world.belt.call("read", {"path": "."})


def test_a_command_with_control_characters_is_not_run(world: BeltWorld) -> None:
    assert "control characters" in world.no("exec", command="touch a\x1b[2K\x1b[1Gls")
    assert "control characters" in world.no("exec", command="touch \u202ea")
    assert "longer than 20,000" in world.no("exec", command="true " + "x" * 20_000)
    assert "is empty" in world.no("exec", command="  ")
    assert list(world.folder.iterdir()) == [world.folder / ".git"]


# The content filter


def test_a_blocked_command_is_recorded_and_not_run(world: BeltWorld) -> None:
    result = world("exec", command="rm -rf /")
    assert (result.ok, result.denied) == (False, True)
    assert "content filter blocks this" in result.text
    refused = world.refused[0]
    assert (refused.tool, refused.what, refused.rule, refused.subject) == ("exec", "rm -rf /", "blocked", world.view.id)
    assert world.permissions.latest() == [], "a block is nobody's to allow"
    assert world.lines()[-1].startswith("exec rm -rf / refused: the content filter blocks this")


def test_a_risky_command_waits_for_a_person(world: BeltWorld) -> None:
    for name in ("a", "b"):
        world.file(name, "x")
    world.answering(ALLOW_ONCE)
    world.ok("exec", command="shred -u a")
    assert not (world.folder / "a").exists()
    request = world.permissions.latest()[0]
    assert (request.tool, request.title, request.detail) == ("exec", "run shred -u a", "shred -u a")
    assert request.reason == "overwrites files permanently"
    world.answering(DENY_ONCE)
    result = world("exec", command="shred -u b")
    assert result.denied
    assert "the operator said no" in result.text
    assert (world.folder / "b").exists()


def test_a_risky_command_by_itself_is_not_run(make: MakeWorld) -> None:
    if not best_sandbox().confines:
        pytest.skip("no sandbox")
    world = make(mode=AUTONOMOUS, sandbox=best_sandbox())
    world.file("a", "x")
    answer = world.no("exec", command="shred -u a")
    assert "nobody is available" in answer
    assert world.permissions.latest()[0].by == "nobody"
    assert world.ok("exec", command="ls").startswith("a\n")


def test_the_operators_rules_hold_for_file_tools(make: MakeWorld) -> None:
    world = make(settings={"content": {"block": ["cat .env", "tee secrets/*", "curl https://evil.example/*"]}})
    world.file(".env", "KEY=1")
    assert "content filter blocks" in world.no("read", path="./.env")
    assert "content filter blocks" in world.no("write", path="secrets/a", content="x")
    assert "content filter blocks" in world.no("web_fetch", url="https://evil.example/a")
    assert not (world.folder / "secrets").exists()


# Production, ask lists, answers


def test_production_is_always_asked_about(make: MakeWorld) -> None:
    world = make(settings={"production": {"paths": ["deploy/*"]}})
    world.file("deploy/live.yml", "a: 1\n")
    assert world.ok("read", path="deploy/live.yml") == "a: 1\n"
    world.answering(DENY_ONCE)
    assert "said no" in world.no("edit", path="deploy/live.yml", old_text="1", new_text="2")
    request = world.permissions.latest()[0]
    assert request.reason == "touches production: path deploy/live.yml"
    assert request.detail.endswith("@@ -1 +1 @@\n-a: 1\n+a: 2")
    (world.folder / "link").symlink_to("deploy")
    world.answering(DENY_ONCE)
    assert "said no" in world.no("write", path="link/live.yml", content="x"), "a link is no way around"


def test_an_answer_for_the_session_holds_for_a_tool_that_tools_json_asks_about(
    make: MakeWorld, clock: FakeClock
) -> None:
    world = make(policy=Policy(allow=("read",), ask=("write", "exec")))
    world.answering(ALLOW_SESSION)
    world.ok("write", path="a.txt", content="1")
    assert "holds for every write" in world.permissions.latest()[0].reason
    world.ok("write", path="b.txt", content="2")
    world.answering(ALLOW_SESSION)
    world.ok("exec", command="echo 1")
    world.ok("exec", command="echo 1")
    world.answering(DENY_SESSION)
    world.no("exec", command="echo 2")
    world.no("exec", command="echo 2")
    assert world.permissions.waiting() == []


def test_nothing_is_written_before_it_is_allowed(make: MakeWorld) -> None:
    world = make(policy=Policy(ask=("write",)))
    world.answering(DENY_ONCE)
    world.no("write", path="a/b/c.txt", content="x")
    assert not (world.folder / "a").exists()


# Agents with tools of their own


def test_an_agents_own_tools_pass_the_same_gate(make: MakeWorld) -> None:
    if not best_sandbox().confines:
        pytest.skip("no sandbox")
    world = make(sandbox=best_sandbox(), policy=Policy(allow=TOOL_NAMES, deny=("exec:make *",)))
    may = world.belt.is_allowed
    assert may("think", "think", "", {})
    assert may("execute", "run tests", "", {"command": "pytest -q"})
    assert may("read", "read a", "", {"paths": [str(world.folder / "a.py")]})
    assert may("edit", "edit a", "", {"paths": ["a.py", "b/c.py"]})
    assert may("search", "grep", "", {})
    assert not may("execute", "x", "", {"command": "rm -rf /"})
    assert not may("execute", "x", "", {"command": "cd a && make deploy"})
    assert not may("edit", "x", "", {"paths": ["a.py", "../b"]})
    assert not may("delete", "x", "", {"paths": [".git/config"]})
    assert not may("read", "x", "", {"paths": [".git/config"]})
    assert world.permissions.latest() == []
    assert [entry.rule for entry in world.refused] == ["blocked", "denied", "outside", "git_folder", "git_folder"]


@pytest.mark.parametrize(
    ("kind", "arguments", "reason"),
    [
        ("other", {}, "is not clear"), ("switch_mode", {}, "is not clear"), ("execute", {}, "is not clear"),
        ("edit", {"paths": []}, "is not clear"), ("fetch", {}, "is not clear"),
        ("edit", {"paths": 3}, "is not clear"), ("", {"command": 3}, "is not clear"),
        ("read", {"paths": ["/usr/include/stdio.h"]}, "is not in the project"),
        ("fetch", {"url": "https://docs.python.org/"}, "has not been allowed yet"),
        ("execute", {"command": "npm publish"}, "publishes"),
    ],
)  # fmt: skip
def test_a_person_is_asked_about_unknown_kinds_of_tools(
    make: MakeWorld, kind: str, arguments: dict[str, object], reason: str
) -> None:
    if not best_sandbox().confines:
        pytest.skip("no sandbox")
    world = make(sandbox=best_sandbox())
    for answer in (ALLOW_ONCE, DENY_ONCE):
        world.answering(answer)
        assert world.belt.is_allowed(kind, "do something", "with this", arguments) is answer.allows
    assert all(reason in entry.reason for entry in world.permissions.latest())
    assert len(world.permissions.latest()) == 2
    alone = make(sandbox=best_sandbox(), mode=AUTONOMOUS)
    assert not alone.belt.is_allowed(kind, "do something", "with this", arguments)


def test_a_person_is_asked_about_an_agents_own_tools_without_a_sandbox(world: BeltWorld) -> None:
    world.answering(DENY_ONCE)
    assert not world.belt.is_allowed("read", "read a", "", {"paths": ["a.py"]})
    assert "no sandbox confines" in world.permissions.latest()[0].reason


def test_an_agent_that_may_not_write_cannot_write_through_the_client(make: MakeWorld) -> None:
    world = make(policy=Policy(allow=("read",), ask=("edit",)))
    with pytest.raises(Refusal, match="does not allow"):
        world.belt.write_text("a.txt", "x")
    assert not (world.folder / "a.txt").exists()


def test_the_journal_has_the_tools_in_order(world: BeltWorld) -> None:
    world.file("a.txt", "x")
    world.ok("read", path="a.txt")
    world.no("edit", path="a.txt", old_text="y", new_text="z")
    world.no("sing")
    world.ok("exec", command="git  --version")
    world.no("exec", command="/no/such/program")
    world.answering(DENY_ONCE)
    world.belt.is_allowed("execute", "say it", "", {"command": "echo hello"})
    *erred, used = world.live.journal.events(world.view)
    assert isinstance(used, ToolsUsed)
    assert used.calls == ("read", "edit", "exec:git", "exec:program", "exec:echo hello")
    assert [entry.tool for entry in erred if isinstance(entry, AgentErred)] == ["edit", "tool", "exec"]


# `tools.json` and production targets: deny over ask over allow, patterns without a way around (SPEC 3.6, 4.1).


ALLOW, ASK, BLOCK = Verdict.ALLOW, Verdict.ASK, Verdict.BLOCK


def decide(policy: Policy, command: str) -> Verdict:
    return policy.decide("exec", (command, *programs_of(command))).verdict


def test_deny_wins_over_ask_over_allow() -> None:
    entries = ("exec", "exec:git push*")
    assert decide(Policy(allow=entries, ask=entries, deny=entries[1:]), "git push") is BLOCK
    assert decide(Policy(allow=entries, ask=entries), "git push") is ASK
    assert decide(Policy(allow=entries), "git push") is ALLOW


def test_unknown_tools_and_broken_files_allow_nothing() -> None:
    assert Policy(allow=("*", "message", "tts", "browser")).decide("message", ("a",)).verdict is BLOCK
    broken = Policy(allow=TOOL_NAMES, problem="tools.json is broken")
    assert not any(broken.is_offered(name) for name in TOOL_NAMES)
    assert {broken.decide(name, ("x",)).verdict for name in TOOL_NAMES} == {BLOCK}


@pytest.mark.parametrize(
    "command",
    [
        "git push origin x", "  git   push", "cd a && git push", "true; git push", "sh -c 'git push'", "g''it push",
        "sudo git push", "env A=b git push", "/usr/bin/git push", "$(git push)", "echo x | xargs git push",
        "git 'push'", "bash <<< 'git push'", "nohup git push &",
    ],
)  # fmt: skip
def test_no_spelling_slips_past_a_deny(command: str) -> None:
    assert decide(Policy(allow=("exec",), deny=("exec:git push*",)), command) is BLOCK
    assert decide(Policy(allow=("exec",), ask=("exec:git push*",)), command) is ASK


@pytest.mark.parametrize(
    "command",
    [
        "git status; make", "git status && make", "git status | sh", "git status $(make)", "git status `make`",
        "git status > x", "git status\nmake", "git status & make", "(git status)", "{ git status; }", "git status ${x}",
    ],
)  # fmt: skip
def test_a_compound_command_is_not_allowed_by_its_beginning(command: str) -> None:
    policy = Policy(allow=("exec:git status*",))
    assert decide(policy, command) is BLOCK
    assert decide(policy, "git status -s") is ALLOW
    assert decide(policy, "git push") is BLOCK


def test_patterns_of_paths_and_hosts() -> None:
    policy = Policy(allow=("read", "write:docs/*", "web_fetch", "web_fetch:*.python.org"), deny=("read:*.pem",))
    assert policy.decide("write", ("docs/a/b.md",)).verdict is ALLOW
    assert policy.decide("write", ("src/a.py",)).verdict is BLOCK
    assert policy.decide("write", ("docs/a.md", "src/a.py")).verdict is BLOCK, "all of them must be allowed"
    assert policy.decide("read", ("keys/x.pem",)).verdict is BLOCK
    assert policy.decide("read", ("a.py", "keys/x.pem")).verdict is BLOCK
    assert policy.decide("web_fetch", ("docs.python.org", "docs.python.org", "https://docs.python.org/")).pattern
    assert not policy.decide("web_fetch", ("example.org", "example.org", "https://example.org/")).pattern


@given(st.sets(st.sampled_from(TOOL_NAMES)), st.sets(st.sampled_from(TOOL_NAMES)), st.sets(st.sampled_from(TOOL_NAMES)))
def test_exactly_the_tools_that_may_be_allowed_are_offered(allow: set[str], ask: set[str], deny: set[str]) -> None:
    policy = Policy(tuple(allow), tuple(ask), tuple(deny))
    for name in TOOL_NAMES:
        verdict = policy.decide(name, ("x",)).verdict
        assert verdict is (BLOCK if name in deny else ASK if name in ask else ALLOW if name in allow else BLOCK)
        assert policy.is_offered(name) is (verdict is not BLOCK)


PRODUCTION = Production(paths=("deploy/**", "/srv/shop/live.cfg"))


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("git push origin main", "branch main"), ("git push origin x:refs/heads/main", "branch main"),
        ("git push production x", "remote production"), ("git diff main", ""), ("git log main..x", ""),
        ("ssh prod-1 uptime", "host prod-1"), ("scp a deploy@prod-1:/srv", "host prod-1"),
        ("curl https://prod.example.org/x", "host prod.example.org"), ("psql -h prod-db x", "host prod-db"),
        ("psql --host=prod-db x", "host prod-db"), ("kubectl --context prod get pods", "context prod"),
        ("kubectl --context=eu-prod get pods", "context eu-prod"), ("kubectl config use-context prod", "context prod"),
        ("cat products.py production.md", ""), ("pytest tests/prod_test.py", ""), ("npm run production", ""),
        ("vi deploy/live.yml", "path deploy/live.yml"), ("cat '", ""), ("", ""),
    ],
)  # fmt: skip
def test_production_targets_of_commands(command: str, found: str) -> None:
    targets = policy.production_targets(command, PRODUCTION)
    assert found in targets if found else targets == ()


def test_production_targets_of_paths_and_hosts() -> None:
    assert policy.production_paths("deploy/x", "/srv/shop", PRODUCTION) == ("path deploy/x",)
    assert policy.production_paths("live.cfg", "/srv/shop", PRODUCTION) == ("path live.cfg",)
    assert policy.production_paths("products.py", "/srv/shop", PRODUCTION) == ()
    assert policy.production_hosts("api.prod.example.org", PRODUCTION)
    assert not policy.production_hosts("docs.python.org", PRODUCTION)


@given(st.text(max_size=200))
def test_any_command_has_an_answer(command: str) -> None:
    policy.production_targets(command, PRODUCTION)
    decide(Policy(allow=("exec",), deny=("exec:rm *",)), command)
