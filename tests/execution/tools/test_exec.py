"""The tool that runs commands: what it returns, when it ends, and what it does not run (SPEC 3.8)."""

import pytest

from engine.execution.session_processes import find_marked_processes
from tests.execution.tools.belt_world import BeltWorld
from tests.support.helpers import wait_until


def test_exec_returns_output_and_exit_code(world: BeltWorld):
    assert world.get_answer("exec", command="echo hello; echo oops >&2").startswith("hello\noops\n\n[exit code 0, ")
    assert "[exit code 3, " in world.get_problem("exec", command="exit 3")
    assert world.read_lines("tool", "output", "exit")[:3] == ["exec echo hello; echo oops >&2", "hello", "oops"]
    assert world.read_lines("command") == []
    assert "[no output]" in world.get_answer("exec", command="true")
    assert "pipefail" in world.get_answer("exec", command="set -o | grep pipefail; pwd | grep 'work tree'")


@pytest.mark.long
def test_exec_ends_after_its_timeout_with_its_background_processes(world: BeltWorld):
    answer = world.get_problem("exec", command="sleep 300 & setsid sleep 300 & sleep 300", timeout_seconds=1)
    assert "it was ended after 1 s" in answer
    world.get_answer("exec", command="sleep 300 & disown; setsid nohup sleep 300 >/dev/null 2>&1 & echo")
    world.live.processes.end(grace=0)
    wait_until(lambda: not find_marked_processes(world.live.id))


def test_a_command_with_control_characters_is_not_run(world: BeltWorld):
    assert "control characters" in world.get_problem("exec", command="touch a\x1b[2K\x1b[1Gls")
    assert "control characters" in world.get_problem("exec", command="touch \u202ea")
    assert "longer than 20,000" in world.get_problem("exec", command="true " + "x" * 20_000)
    assert "is empty" in world.get_problem("exec", command="  ")
    assert list(world.folder.iterdir()) == [world.folder / ".git"]
