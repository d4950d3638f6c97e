"""The tools of an agent, the answer to a call that is wrong, commands, and what the journal records (SPEC 3.8)."""

from dataclasses import replace
from typing import Any

import pytest

from engine.events.work import AgentErred, ToolsUsed, name_command
from engine.execution.runners import SessionStopped
from engine.execution.session_processes import find_marked_processes
from engine.execution.tools.toolbelt import ToolbeltFactory
from engine.hierarchy.agent_folders import Tools
from engine.model import Refusal
from engine.storage.database import Database
from tests.execution.tools.belt_world import BeltWorld
from tests.support import read_table
from tests.support.checks import wait_until

TABLE = read_table(__file__)


@pytest.mark.parametrize("tool, arguments, problem", TABLE["mistakes"])
def test_a_mistake_is_answered_with_a_fix(world: BeltWorld, tool: str, arguments: Any, problem: str):
    world.write_file("a.txt", "x x")
    world.write_file("b.txt", "aaa")
    world.write_file("c.bin", b"\0")
    result = world.belt.call(tool, arguments)
    assert not result.ok
    assert problem in result.text
    assert not world.refused, "a mistake is no breach"


def test_an_agent_has_the_tools_of_its_folder_and_none_if_that_is_broken(world: BeltWorld, database: Database):
    def read_tools(agent: str) -> Tools:
        if agent == "broken":
            raise Refusal("broken_agent", "tools.json: it is no JSON")
        return Tools(allow=["read"], ask=["exec"])

    belts = ToolbeltFactory(database, settings=world.settings, permissions=world.permissions, read_tools=read_tools)
    assert [spec.name for spec in belts.open(world.live, world.view, world.folder).list_specs()] == ["read", "exec"]
    broken = belts.open(world.live, replace(world.view, agent="broken"), world.folder)
    assert broken.list_specs() == ()
    result = broken.call("read", {"path": "a"})
    assert result.denied
    assert "tools.json" in result.text


@pytest.mark.parametrize("programs, recorded", TABLE["recorded_commands"])
def test_a_command_is_its_program_and_a_plain_word(programs: list[str], recorded: str):
    assert name_command(programs) == recorded


def test_the_journal_has_the_tools_in_order(world: BeltWorld):
    world.write_file("a.txt", "x")
    world.get_answer("read", path="a.txt")
    world.get_problem("edit", path="a.txt", old_text="y", new_text="z")
    world.get_problem("sing")
    world.get_answer("exec", command="git  --version")
    world.get_problem("exec", command="/no/such/program")
    *erred, used = world.live.journal.make_events(world.view)
    assert isinstance(used, ToolsUsed)
    assert used.calls == ("read", "edit", "exec:git", "exec:program")
    assert [entry.tool for entry in erred if isinstance(entry, AgentErred)] == ["edit", "tool", "exec"]


# Commands


def test_exec_returns_output_and_exit_code(world: BeltWorld):
    assert world.get_answer("exec", command="echo  hello\necho oops >&2").startswith("hello\noops\n\n[exit code 0, ")
    assert "[exit code 3, " in world.get_problem("exec", command="exit 3")
    assert world.read_lines("tool", "output", "exit")[:3] == ["exec echo hello; echo oops >&2", "hello", "oops"]
    assert world.read_lines("command") == []
    assert "[no output]" in world.get_answer("exec", command="true")
    tail = world.get_answer("exec", command="seq 20000")
    assert tail.startswith("[the first 58,")
    assert "characters were left out]\n" in tail
    assert "pipefail" in world.get_answer("exec", command="set -o | grep pipefail; pwd | grep 'work tree'")


@pytest.mark.long
def test_exec_ends_after_its_timeout_with_its_background_processes(world: BeltWorld):
    answer = world.get_problem("exec", command="sleep 300 & setsid sleep 300 & sleep 300", timeout_seconds=1)
    assert "it was ended after 1 s" in answer
    world.get_answer("exec", command="sleep 300 & disown; setsid nohup sleep 300 >/dev/null 2>&1 & echo")
    world.live.processes.end(grace=0)
    wait_until(lambda: not find_marked_processes(world.live.id))


def test_no_command_starts_once_the_session_is_to_end(world: BeltWorld):
    world.stop()
    with pytest.raises(SessionStopped):
        world.live.execute(["touch", "made"], cwd=world.folder)
    assert not (world.folder / "made").exists()


def test_a_command_with_control_characters_is_not_run(world: BeltWorld):
    assert "control characters" in world.get_problem("exec", command="touch a\x1b[2K\x1b[1Gls")
    assert "control characters" in world.get_problem("exec", command="touch \u202ea")
    assert "longer than 20,000" in world.get_problem("exec", command="true " + "x" * 20_000)
    assert "is empty" in world.get_problem("exec", command="  ")
    assert list(world.folder.iterdir()) == [world.folder / ".git"]
