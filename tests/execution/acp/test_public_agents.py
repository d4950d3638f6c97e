"""Public coding agents that run without a key, through a whole session (SPEC 3.8).

Opt-in: CLAWPY_ACP_AGENTS=1, `-m faults`. The agents are installed into a temporary folder, from PyPI (uv; Python 3.13,
or the one that CLAWPY_ACP_PYTHON names) and npm. fast-agent's model `passthrough` repeats what it is told, and calls
the tool that `***CALL_TOOL name {...}` names. The others start, and report that they have no login.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from engine.execution.sandbox.ladder import find_best_sandbox
from engine.model import SessionState, SessionView
from tests.execution.acp.acp_world import AcpWorld, MakeAcpWorld, StandInPrompts

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(not os.environ.get("CLAWPY_ACP_AGENTS"), reason="installs public agents; CLAWPY_ACP_AGENTS=1"),
]


TASK_ALONE = StandInPrompts(soul="")
"""Prompts of the task alone, so that its first word is a command."""


@pytest.fixture(scope="session")
def fast_agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install fast-agent, and return its program."""
    folder = tmp_path_factory.mktemp("fast-agent")
    uv = shutil.which("uv") or "uv"
    python_version = os.environ.get("CLAWPY_ACP_PYTHON", "3.13")
    subprocess.run([uv, "venv", "-q", "--python", python_version, str(folder / "venv")], check=True, timeout=300)
    python = str(folder / "venv" / "bin" / "python")
    subprocess.run([uv, "pip", "install", "-q", "--python", python, "fast-agent-mcp"], check=True, timeout=900)
    return folder / "venv" / "bin" / "fast-agent"


@pytest.fixture(params=["sandbox", "none"])
def world(request: pytest.FixtureRequest, make_acp_world: MakeAcpWorld, fast_agent: Path) -> AcpWorld:
    """A world of fast-agent, in the best sandbox and in none."""
    if request.param == "sandbox" and not find_best_sandbox().confines:
        pytest.skip("no sandbox works here")
    # `--home` keeps its own files out of the changes.
    command = [str(fast_agent), "acp", "--model", "passthrough", "--home", "/tmp/fast-agent-home"]
    sandbox = find_best_sandbox() if request.param == "sandbox" else None
    return make_acp_world(command=command, sandbox=sandbox, prompts=TASK_ALONE, start_seconds=90)


def run_prompt(world: AcpWorld, prompt: str) -> SessionView:
    return world.finish(world.start(prompt=prompt), 120)


def test_an_agent_answers_a_prompt(world: AcpWorld):
    view = run_prompt(world, "hello there")
    assert view.state is SessionState.SUCCEEDED, world.read_lines(view, ())
    assert any("hello there" in line for line in world.read_words(view))
    assert world.calls.begun[0]["model"].startswith("fast-agent")


def test_an_agent_writes_with_permission_and_reads(world: AcpWorld):
    view = run_prompt(world, '***CALL_TOOL write_text_file {"path": "new.txt", "content": "by fast-agent\\n"}')
    assert view.state is SessionState.SUCCEEDED, world.read_lines(view, ())
    assert world.permission_requests
    assert [file.path for file in world.find_change(view).files] == ["new.txt"]
    view = run_prompt(world, '***CALL_TOOL read_text_file {"path": "a.txt"}')
    assert view.state is SessionState.SUCCEEDED, world.read_lines(view, ())
    assert any("two" in line for line in world.read_lines(view, ()))
