"""Sets up the agent or model of a channel: coding agents and local models of this machine are offered, and written to
the settings only when the operator chooses one (SPEC 3.8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from engine.config.agents import ACP, AUTO, MODEL, model_problem
from engine.execution.local_models import query_local_models
from engine.execution.routing import ModelChoice
from engine.execution.runners.acp.agents import KNOWN_AGENTS, describe_agent, find_agents
from engine.model import FoundAgent, LocalModels, Refusal
from engine.settings_store import SettingsStore

CHANNEL = "koji-core"
"""The channel for which an agent is offered: code, builds, tests."""


class AgentSetup:
    """Reads and changes the agent or model that serves a channel."""

    def __init__(
        self,
        settings: SettingsStore,
        *,
        data: Path,
        model_for: Callable[[str, str], ModelChoice],
        path: str | None = None,
    ) -> None:
        """`model_for(agent, channel)` returns the model that would answer, or raises `Refusal`; agents are searched in
        `path`, by default PATH."""
        self._settings = settings
        self._data = data
        self._model_for = model_for
        self._path = path

    def served(self, channel: str = CHANNEL) -> str:
        """The coding agent or the id of the model that serves text prompts on `channel` now, "" for none. May read the
        keyring. An agent that was hired and is gone counts: its cards say what is missing."""
        settings = self._settings.current.channels.get(channel)
        if settings is None:
            return ""
        if settings.runner.startswith(ACP):
            return settings.runner.removeprefix(ACP)
        if settings.runner not in (AUTO, MODEL):
            return ""
        try:
            return self._model_for(settings.agent, channel).id
        except Refusal:
            return ""

    def local_models(self) -> LocalModels:
        """The models of local providers, and the problems of providers that do not list theirs. Blocking, up to a
        second."""
        current = self._settings.current
        named = {name: current.provider(name) for name in current.provider_names()}
        return query_local_models({name: provider for name, provider in named.items() if provider is not None})

    def take_model(self, model_id: str, channel: str = CHANNEL) -> None:
        """Make `provider:model` the model of its provider in the settings, and let models serve `channel` instead of a
        hired agent. Raises `Refusal` `no_model`, and as a change of settings."""
        problem = model_problem(model_id)
        if problem:
            raise Refusal("no_model", problem, "for example ollama:qwen3")
        provider, _, model = model_id.partition(":")
        self._settings.set(f"providers.{provider}.model", model)
        serving = self._settings.current.channels.get(channel)
        if serving is not None and serving.runner.startswith(ACP):
            self._settings.set(f"channels.{channel}.runner", AUTO)

    def find_agents(self) -> list[FoundAgent]:
        """The coding agents of this machine, with those that lack their adapter."""
        return find_agents(self._path, data=self._data)

    def list_agents(self) -> list[FoundAgent]:
        """The agents of the settings, then the others of this machine."""
        configured_agents = {
            name: replace(describe_agent(name, configured.command, data=self._data), hosts=configured.hosts)
            for name, configured in self._settings.current.acp.items()
        }
        return [
            *configured_agents.values(),
            *(agent for agent in self.find_agents() if agent.name not in configured_agents),
        ]

    @property
    def supported(self) -> tuple[str, ...]:
        """The names of the public coding agents that can be found when they are installed."""
        return tuple(agent.title for agent in KNOWN_AGENTS)

    def hire(self, name: str, channel: str = CHANNEL) -> FoundAgent:
        """Let the agent `name` serve `channel` in the settings. The result says how to log it in. Existing settings of
        the agent stay.

        Raises `Refusal` `unknown_agent`, `adapter_missing`, `unknown_channel`, and as a change of settings.
        """
        agent = next((other for other in self.list_agents() if other.name == name), None)
        if agent is None:
            names = ", ".join(other.name for other in self.list_agents()) or "none"
            raise Refusal("unknown_agent", f"no coding agent {name!r} is installed here", f"found: {names}")
        if agent.missing:
            raise Refusal("adapter_missing", f"{agent.title} lacks its adapter for the protocol", agent.missing)
        if channel not in self._settings.current.channels:
            raise Refusal("unknown_channel", f"there is no channel {channel}", "`clawpy config get channels`")
        if name not in self._settings.current.acp:
            self._settings.set(f"acp.{name}.command", list(agent.command))
            if agent.hosts:
                self._settings.set(f"acp.{name}.hosts", list(agent.hosts))
        self._settings.set(f"channels.{channel}.runner", f"{ACP}{name}")
        return agent
