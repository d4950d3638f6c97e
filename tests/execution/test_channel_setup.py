"""A coding agent or a model of this machine serves a channel only when you ask for it (SPEC 2.3, 3.8)."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from engine.clock import FakeClock
from engine.execution.channel_setup import ChannelSetup
from engine.execution.model_router import FIRST_KEY
from engine.installed import SetupStep
from engine.model import Refusal
from engine.settings_store import SettingsStore
from tests.support.checks import refused
from tests.support.programs import make_program

Build = Callable[..., ChannelSetup]

STEPS = [SetupStep("the extra models is missing", "pip install x", "clawpy doctor"), FIRST_KEY]


def refuse_model(agent: str, channel: str) -> Any:
    raise Refusal("no_model", "no provider has a key")


@pytest.fixture
def settings(tmp_path: Path, clock: FakeClock) -> SettingsStore:
    return SettingsStore(tmp_path / "config" / "config.toml", clock=clock)


@pytest.fixture
def build_setup(tmp_path: Path, settings: SettingsStore) -> Build:
    def build(
        *programs: str, choose_model: Callable[[str, str], Any] = refuse_model, steps: Sequence[SetupStep] = STEPS
    ) -> ChannelSetup:
        tools = tmp_path / "bin"
        for name in programs:
            make_program(tools / name)
        return ChannelSetup(
            settings,
            data=tmp_path / "data",
            choose_model=choose_model,
            find_missing_steps=lambda: steps,
            path=str(tools),
        )

    return build


def test_the_next_step_is_the_first_that_is_missing(build_setup: Build):
    assert build_setup().find_next_step() is STEPS[0]
    assert build_setup(steps=[]).find_next_step().shown_command == "clawpy doctor"


def test_an_agent_is_assigned_with_its_command_and_hosts(build_setup: Build, settings: SettingsStore):
    setup = build_setup("claude-agent-acp")
    assert [agent.name for agent in setup.find_agents()] == ["claude"]

    assigned = setup.assign_agent("claude")

    assert assigned.title == "Claude Code"
    assert "claude" in assigned.login
    current = settings.current
    assert current.channels["koji-core"].runner == "acp:claude"
    assert current.acp["claude"].command == ("claude-agent-acp",)
    assert "api.anthropic.com" in current.acp["claude"].hosts
    assert current.channels["research"].runner == "auto"  # no other channel
    assert setup.find_executor() == "claude"


def test_an_agent_without_its_adapter_is_not_assigned(build_setup: Build, settings: SettingsStore):
    setup = build_setup("claude")
    [agent] = setup.find_agents()
    assert agent.missing
    assert refused("adapter_missing", lambda: setup.assign_agent("claude")).fix == agent.missing
    refused("unknown_agent", lambda: setup.assign_agent("codex"))
    assert not settings.file.exists()


def test_assigning_a_model_replaces_the_agent(build_setup: Build, settings: SettingsStore):
    setup = build_setup("claude-agent-acp")
    setup.assign_agent("claude")

    setup.assign_model("ollama:qwen3:8b")

    assert settings.current.get_provider("ollama").model == "qwen3:8b"
    assert settings.current.channels["koji-core"].runner == "auto"
    refused("no_model", lambda: setup.assign_model("qwen3"))
    settings.set("channels.koji-core.runner", "flow")
    assert build_setup(choose_model=lambda *_: Mock(id="ollama:qwen3")).find_executor() == ""
