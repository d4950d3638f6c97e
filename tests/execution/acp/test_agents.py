"""Coding agents are found on the PATH, and can read only their installation of the operator's files (SPEC 3.8)."""

import os
from pathlib import Path

from engine.execution.runners.acp.runner import (
    make_agent_confinement,
    make_agent_environment,
    make_command_confinement,
)
from engine.execution.sandbox import Confinement
from engine.execution.sandbox.host_paths import find_readable_places
from tests.support.helpers import make_program


def test_an_agent_sees_only_its_installation_in_the_operators_home(tmp_path: Path):
    user, package = tmp_path / "home", ".npm-global/lib/node_modules/@agentclientprotocol/claude-agent-acp"
    for folder in (".ssh", ".local/share/clawpy/acp/claude", ".cargo/bin", "notes", ".npm-global/bin"):
        (user / folder).mkdir(parents=True)
    (user / ".npm-global/bin/claude-agent-acp").symlink_to(make_program(user / package / "dist/index.js"))
    agent_home = user / ".local/share/clawpy/acp/claude"
    path = os.pathsep.join(str(user / folder) for folder in (".cargo/bin", ".npm-global/bin"))
    environment = {"HOME": str(user), "PATH": path, "KEY": "k", "OTHER": "o"}
    session = Confinement(tmp_path / "work", tmp_path / "scratch", tmp_path / "caches", hidden=(user / ".ssh",))
    agent = make_agent_confinement(session, home=agent_home, command=["claude-agent-acp"], hosts=["api.anthropic.com"])
    readable = find_readable_places(agent, "claude-agent-acp", environment)
    assert {str(path.relative_to(user)) for path in readable if path.is_relative_to(user)} == {
        ".cargo/bin", ".npm-global", ".npm-global/bin/claude-agent-acp", ".npm-global/lib/node_modules",
    }  # fmt: skip
    assert (agent.writable, agent.hosts) == ((agent_home,), ("api.anthropic.com",))
    commands = make_command_confinement(agent, session, home=agent_home)
    assert (commands.writable, commands.hosts) == ((), ())
    variables = make_agent_environment(home=agent_home, names=["KEY", "GONE"], environment=environment)
    assert variables == {"HOME": str(agent_home), "CARGO_HOME": str(user / ".cargo"), "KEY": "k"}
