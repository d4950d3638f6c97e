"""A coding agent that is found here is offered, and assigned only on request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.clock import FakeClock
from engine.execution.channel_setup import ChannelSetup
from engine.model import Refusal
from engine.settings_store import SettingsStore

Build = Callable[..., ChannelSetup]


def no_model(agent: str, channel: str) -> Any:
    raise Refusal("no_model", "no provider has a key")


@pytest.fixture
def settings(tmp_path: Path, clock: FakeClock) -> SettingsStore:
    return SettingsStore(tmp_path / "config" / "config.toml", clock=clock)


@pytest.fixture
def build(tmp_path: Path, settings: SettingsStore) -> Build:
    def build_setup(*programs: str, model_for: Callable[[str, str], Any] = no_model) -> ChannelSetup:
        tools = tmp_path / "bin"
        tools.mkdir(exist_ok=True)
        for name in programs:
            (tools / name).write_text("#!/bin/sh\n")
            (tools / name).chmod(0o755)
        return ChannelSetup(settings, data=tmp_path / "data", model_for=model_for, path=str(tools))

    return build_setup


def test_nothing_serves_before_anything_was_set_up(build: Build) -> None:
    assert build("claude-agent-acp").served_by() == ""


def test_a_model_serves_where_one_can_be_used(build: Build) -> None:
    assert build(model_for=lambda agent, channel: SimpleNamespace(id="openai:gpt")).served_by() == "openai:gpt"


def test_an_agent_is_assigned_with_its_command_and_hosts(build: Build, settings: SettingsStore) -> None:
    setup = build("claude-agent-acp")
    assert [agent.name for agent in setup.find_agents()] == ["claude"]

    hired = setup.assign_agent("claude")

    assert hired.title == "Claude Code"
    assert "claude" in hired.login
    current = settings.current
    assert current.channels["koji-core"].runner == "acp:claude"
    assert current.acp["claude"].command == ("claude-agent-acp",)
    assert "api.anthropic.com" in current.acp["claude"].hosts
    assert current.channels["research"].runner == "auto"  # no other channel
    assert setup.served_by() == "claude"


def test_what_the_operator_wrote_of_an_agent_stays(build: Build, settings: SettingsStore) -> None:
    settings.set("acp.claude.command", ["my-own", "--acp"])

    build("claude-agent-acp").assign_agent("claude")

    assert settings.current.acp["claude"].command == ("my-own", "--acp")


def test_an_agent_without_its_adapter_is_not_assigned(build: Build, settings: SettingsStore) -> None:
    setup = build("claude")
    [agent] = setup.find_agents()
    assert agent.missing
    with pytest.raises(Refusal) as refused:
        setup.assign_agent("claude")
    assert (refused.value.code, refused.value.fix) == ("adapter_missing", agent.missing)
    with pytest.raises(Refusal) as unknown:
        setup.assign_agent("codex")
    assert unknown.value.code == "unknown_agent"
    assert not settings.file.exists()


def test_a_model_of_this_machine_is_taken_at_a_word(build: Build, settings: SettingsStore) -> None:
    setup = build("claude-agent-acp")
    setup.assign_agent("claude")

    setup.assign_model("ollama:qwen3:8b")

    assert settings.current.provider("ollama").model == "qwen3:8b"
    assert settings.current.channels["koji-core"].runner == "auto"
    with pytest.raises(Refusal) as refused:
        setup.assign_model("qwen3")
    assert refused.value.code == "no_model"
