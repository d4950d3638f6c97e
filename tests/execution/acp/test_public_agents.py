"""A public coding agent that runs without a key, through a whole session (SPEC 3.8).

Opt-in: CLAWPY_ACP_AGENTS=1, `-m faults`. fast-agent is installed from PyPI with uv, on Python 3.13. Its model
`passthrough` repeats what it is told, and calls the tool that `***CALL_TOOL name {...}` names.
"""

import os
import subprocess
from pathlib import Path

import pytest

from engine.execution.sandbox.ladder import find_best_sandbox
from engine.model import SessionState, SessionView
from tests.execution.acp.acp_world import AcpWorld, MakeAcpWorld, StandInPrompts

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(not os.environ.get("CLAWPY_ACP_AGENTS"), reason="installs a public agent; CLAWPY_ACP_AGENTS=1"),
]


@pytest.fixture
def world(tmp_path: Path, make_acp_world: MakeAcpWorld) -> AcpWorld:
    """A world of fast-agent, which is installed into a temporary folder, in the best sandbox."""
    environment = tmp_path / "fast-agent"
    subprocess.run(["uv", "venv", "-q", "--python", "3.13", str(environment)], check=True, timeout=300)
    install = ["uv", "pip", "install", "-q", "--python", str(environment / "bin/python"), "fast-agent-mcp"]
    subprocess.run(install, check=True, timeout=900)
    # `--home` keeps its own files out of the changes.
    command = [f"{environment}/bin/fast-agent", "acp", "--model", "passthrough", "--home", "/tmp/fast-agent-home"]
    prompts = StandInPrompts(soul="")  # the task alone, so that its first word is a command
    return make_acp_world(command=command, sandbox=find_best_sandbox(), prompts=prompts, start_seconds=90)


def test_a_public_agent_answers_writes_with_permission_and_reads(world: AcpWorld):
    def run_prompt(prompt: str) -> SessionView:
        view = world.finish(world.start(prompt=prompt), 120)
        assert view.state is SessionState.SUCCEEDED, world.read_lines(view, ())
        return view

    assert any("hello there" in line for line in world.read_words(run_prompt("hello there")))
    view = run_prompt('***CALL_TOOL write_text_file {"path": "new.txt", "content": "by fast-agent\\n"}')
    assert world.permission_requests
    assert [file.path for file in world.find_change(view).files] == ["new.txt"]
    view = run_prompt('***CALL_TOOL read_text_file {"path": "a.txt"}')
    assert any("two" in line for line in world.read_lines(view, ()))
