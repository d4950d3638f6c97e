"""A coding agent that is found here is offered, and hired only on request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.clock import FakeClock
from engine.execution.agent_setup import AgentSetup
from engine.model import Refusal
from engine.settings_store import SettingsStore


def no_model(agent: str, channel: str) -> Any:
    raise Refusal("no_model", "no provider has a key")


@pytest.fixture
def settings(tmp_path: Path, clock: FakeClock) -> SettingsStore:
    return SettingsStore(tmp_path / "config" / "config.toml", clock=clock)


@pytest.fixture
def hiring(tmp_path: Path, settings: SettingsStore) -> Callable[..., AgentSetup]:
    def build(*programs: str, model_for: Callable[[str, str], Any] = no_model) -> AgentSetup:
        tools = tmp_path / "bin"
        tools.mkdir(exist_ok=True)
        for name in programs:
            (tools / name).write_text("#!/bin/sh\n")
            (tools / name).chmod(0o755)
        return AgentSetup(settings, data=tmp_path / "data", model_for=model_for, path=str(tools))

    return build


def test_nothing_serves_before_anything_was_set_up(hiring: Callable[..., AgentSetup]) -> None:
    assert hiring("claude-agent-acp").served() == ""


def test_a_model_serves_where_one_can_be_used(hiring: Callable[..., AgentSetup]) -> None:
    assert hiring(model_for=lambda agent, channel: SimpleNamespace(id="openai:gpt")).served() == "openai:gpt"


def test_an_agent_is_hired_with_its_command_and_hosts(
    hiring: Callable[..., AgentSetup], settings: SettingsStore
) -> None:
    setup = hiring("claude-agent-acp")
    assert [agent.name for agent in setup.find_agents()] == ["claude"]

    hired = setup.hire("claude")

    assert hired.title == "Claude Code"
    assert "claude" in hired.login
    current = settings.current
    assert current.channels["koji-core"].runner == "acp:claude"
    assert current.acp["claude"].command == ("claude-agent-acp",)
    assert "api.anthropic.com" in current.acp["claude"].hosts
    assert current.channels["research"].runner == "auto"  # no other channel
    assert setup.served() == "claude"


def test_what_the_operator_wrote_of_an_agent_stays(hiring: Callable[..., AgentSetup], settings: SettingsStore) -> None:
    settings.set("acp.claude.command", ["my-own", "--acp"])

    hiring("claude-agent-acp").hire("claude")

    assert settings.current.acp["claude"].command == ("my-own", "--acp")


def test_an_agent_without_its_adapter_is_not_hired(hiring: Callable[..., AgentSetup], settings: SettingsStore) -> None:
    setup = hiring("claude")
    [agent] = setup.find_agents()
    assert agent.missing
    with pytest.raises(Refusal) as refused:
        setup.hire("claude")
    assert (refused.value.code, refused.value.fix) == ("adapter_missing", agent.missing)
    with pytest.raises(Refusal) as unknown:
        setup.hire("codex")
    assert unknown.value.code == "unknown_agent"
    assert not settings.file.exists()


def test_a_model_of_this_machine_is_taken_at_a_word(hiring: Callable[..., AgentSetup], settings: SettingsStore) -> None:
    setup = hiring("claude-agent-acp")
    setup.hire("claude")

    setup.take_model("ollama:qwen3:8b")

    assert settings.current.provider("ollama").model == "qwen3:8b"
    assert settings.current.channels["koji-core"].runner == "auto"
    with pytest.raises(Refusal) as refused:
        setup.take_model("qwen3")
    assert refused.value.code == "no_model"
