"""Messages of a coding agent are read whatever they are, and it sees only its installation of the operator's files
(SPEC 3.8)."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from acp import schema
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.execution.runners.acp import make_agent_confinement, make_agent_environment, make_command_confinement
from engine.execution.runners.acp.pipe import parse_message
from engine.execution.runners.acp.requests import choose_option, find_command
from engine.execution.sandbox import Confinement
from engine.execution.sandbox.host_paths import find_readable_places
from tests.support import read_table
from tests.support.programs import make_program

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
MESSAGES = st.dictionaries(st.sampled_from(["id", "method", "result", "error", "params"]), JSON)
OPTION_KINDS = st.lists(st.sampled_from(["allow_once", "allow_always", "reject_once", "reject_always"]), max_size=6)


def make_option(kind: Any) -> schema.PermissionOption:
    return schema.PermissionOption(option_id=f"id-{kind}", name=str(kind), kind=kind)


@given(st.binary(max_size=200) | (JSON | MESSAGES).map(lambda value: json.dumps(value).encode()))
@settings(max_examples=60)
def test_any_line_parses_to_a_valid_message_or_none(line: bytes):
    """A message has the fields that the library reads without looking."""
    message = parse_message(line)
    if message is None:
        return
    if "method" in message:
        assert isinstance(message["method"], str)
        return
    assert isinstance(message["id"], int)
    if "result" not in message:
        assert isinstance(message["error"], dict)


def test_an_answer_without_a_result_is_an_error():
    assert (parse_message(b'{"id": 1, "error": "boom"}') or {})["error"] == {"code": -32603, "message": "boom"}
    assert parse_message(b'{"id": 1}')


@given(OPTION_KINDS, st.booleans())
def test_the_chosen_option_never_allows_more_than_was_decided(kinds: list[str], allowed: bool):
    chosen = choose_option([make_option(kind) for kind in kinds], allowed=allowed)
    if allowed:
        assert chosen == ("id-allow_once" if "allow_once" in kinds else None)
    else:
        assert chosen is None or chosen.startswith("id-reject")
        assert (chosen is None) == (not any(kind.startswith("reject") for kind in kinds))


@pytest.mark.parametrize("tool_input, command", [*read_table(__file__)["commands"], (None, "")])
def test_the_command_is_read_from_the_input_of_a_call(tool_input: Any, command: str):
    assert find_command(tool_input) == command


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
