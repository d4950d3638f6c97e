"""Public coding agents that run without a key, through a whole session. Opt-in: CLAWPY_ACP_AGENTS=1, `-m faults`.

They are installed into a temporary folder, from PyPI (uv; Python 3.13, or the one that CLAWPY_ACP_PYTHON names) and
npm. fast-agent's model `passthrough` says back what it is told and calls the tool that `***CALL_TOOL name {...}` names;
the others begin, and say what they lack.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from engine.execution.sandbox.ladder import find_best_sandbox
from engine.execution.session_processes import find_marked_processes
from engine.model import SessionState, SessionView
from tests.execution.acp.acp_world import AcpWorld, Prompts
from tests.execution.acp.conftest import Make
from tests.support.helpers import wait_until

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(not os.environ.get("CLAWPY_ACP_AGENTS"), reason="installs public agents; CLAWPY_ACP_AGENTS=1"),
]

NODE = ("@agentclientprotocol/claude-agent-acp", "opencode-ai")


TASK_ALONE = Prompts(soul="")
"""No more than the task, so that its first word is a command."""


@pytest.fixture(scope="session")
def fast_agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fast-agent")
    uv = shutil.which("uv") or "uv"
    wanted = os.environ.get("CLAWPY_ACP_PYTHON", "3.13")
    subprocess.run([uv, "venv", "-q", "--python", wanted, str(folder / "venv")], check=True, timeout=300)
    python = str(folder / "venv" / "bin" / "python")
    subprocess.run([uv, "pip", "install", "-q", "--python", python, "fast-agent-mcp"], check=True, timeout=900)
    return folder / "venv" / "bin" / "fast-agent"


@pytest.fixture(scope="session")
def node_agents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("node-agents")
    install = ["npm", "install", "--no-audit", "--no-fund", "--silent", "--prefix", str(folder), *NODE]
    subprocess.run(install, check=True, timeout=900)
    return folder / "node_modules" / ".bin"


@pytest.fixture(params=["sandbox", "none"])
def talk(request: pytest.FixtureRequest, make: Make, fast_agent: Path) -> AcpWorld:
    if request.param == "sandbox" and not find_best_sandbox().confines:
        pytest.skip("no sandbox works here")
    # It keeps its own files away from the work.
    command = [str(fast_agent), "acp", "--model", "passthrough", "--home", "/tmp/fast-agent-home"]
    sandbox = find_best_sandbox() if request.param == "sandbox" else None
    return make(command=command, sandbox=sandbox, prompts=TASK_ALONE, start_seconds=90)


def lap(world: AcpWorld, prompt: str) -> SessionView:
    return world.finish(world.start(prompt=prompt), 120)


def test_an_agent_answers_a_prompt(talk: AcpWorld) -> None:
    view = lap(talk, "hello there")
    assert view.state is SessionState.SUCCEEDED, talk.texts(view, ())
    assert any("hello there" in line for line in talk.texts(view))
    assert talk.calls.begun[0]["model"].startswith("fast-agent")


def test_an_agent_writes_with_permission_and_reads(talk: AcpWorld) -> None:
    view = lap(talk, '***CALL_TOOL write_text_file {"path": "new.txt", "content": "by fast-agent\\n"}')
    assert view.state is SessionState.SUCCEEDED, talk.texts(view, ())
    assert talk.permission_requests
    assert [file.path for file in talk.change_of(view).files] == ["new.txt"]
    view = lap(talk, '***CALL_TOOL read_text_file {"path": "a.txt"}')
    assert view.state is SessionState.SUCCEEDED, talk.texts(view, ())
    assert any("two" in line for line in talk.texts(view, ()))


def test_a_denied_write_leaves_no_changes(talk: AcpWorld) -> None:
    talk.answer = lambda title: False
    view = lap(talk, '***CALL_TOOL write_text_file {"path": "new.txt", "content": "no\\n"}')
    assert talk.permission_requests
    assert view.state.over
    assert talk.change_of(view) is None


def test_a_stopped_agent_leaves_no_process(talk: AcpWorld) -> None:
    talk.answer = lambda title: None
    view = talk.start(prompt='***CALL_TOOL write_text_file {"path": "new.txt", "content": "no\\n"}')
    wait_until(lambda: talk.permission_requests, 60)
    talk.sessions.stop(view.id, "enough")
    assert talk.finish(view).state is SessionState.CANCELLED
    assert find_marked_processes(view.id) == []
    assert talk.change_of(view) is None


@pytest.mark.parametrize("command", [("claude-agent-acp",), ("opencode", "acp")])
def test_agents_without_a_login_start_and_report_what_is_missing(
    make: Make, node_agents: Path, command: tuple[str, ...]
) -> None:
    world = make(command=[str(node_agents / command[0]), *command[1:]], prompts=TASK_ALONE, start_seconds=90)
    view = world.finish(world.start(prompt="hello"), 120)
    transcript = "\n".join(world.texts(view, ()))
    assert world.calls.begun, transcript  # it answered initialize and session/new
    assert view.state.over
    print(view.state, view.error or view.summary)
