"""Sets up who serves a channel: the coding agents and local models found here are offered, and written into the
settings only when the operator chooses one (SPEC 3.8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from engine.config.agents import ACP, AUTO, MODEL, model_fault
from engine.execution.local_models import query_local_models
from engine.execution.routing import ModelChoice
from engine.execution.runners.acp.agents import KNOWN_AGENTS, describe_agent, discover
from engine.model import FoundAgent, LocalModels, Refusal
from engine.settings_store import SettingsStore

CHANNEL = "koji-core"
"""The channel that is offered an agent: code, builds, tests."""


class AgentSetup:
    """Who serves a channel, and how that is changed."""

    def __init__(
        self,
        settings: SettingsStore,
        *,
        data: Path,
        model_for: Callable[[str, str], ModelChoice],
        path: str | None = None,
    ) -> None:
        """`model_for(agent, channel)` gives the model that would answer, or raises `Refusal`; `path` is searched for
        agents, by default PATH."""
        self._settings = settings
        self._data = data
        self._model_for = model_for
        self._path = path

    def served(self, channel: str = CHANNEL) -> str:
        """What takes prose on `channel` now: a coding agent's name or a model's id; "" when nothing does.

        May ask the keyring. An agent that was hired and is gone counts: its cards say what is missing.
        """
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

    def models(self) -> LocalModels:
        """The models that run on this machine, and what does not tell its own. Blocking, up to a second."""
        current = self._settings.current
        named = {name: current.provider(name) for name in current.provider_names()}
        return query_local_models({name: provider for name, provider in named.items() if provider is not None})

    def take_model(self, model_id: str, channel: str = CHANNEL) -> None:
        """Write into the settings that the model `provider:model` is the one of its provider, and have `channel` served
        by models again where an agent was hired. Raises `Refusal` `no_model`, and what writing settings raises."""
        if fault := model_fault(model_id):
            raise Refusal("no_model", fault, "for example ollama:qwen3")
        provider, _, model = model_id.partition(":")
        self._settings.set(f"providers.{provider}.model", model)
        serving = self._settings.current.channels.get(channel)
        if serving is not None and serving.runner.startswith(ACP):
            self._settings.set(f"channels.{channel}.runner", AUTO)

    def found(self) -> list[FoundAgent]:
        """The coding agents of this machine that could serve, those that lack a part of theirs included."""
        return discover(self._path, data=self._data)

    def known(self) -> list[FoundAgent]:
        """Those of the settings, as they have them, then the others that were found."""
        configured_agents = {
            name: replace(describe_agent(name, configured.command, data=self._data), hosts=configured.hosts)
            for name, configured in self._settings.current.acp.items()
        }
        return [*configured_agents.values(), *(agent for agent in self.found() if agent.name not in configured_agents)]

    @property
    def supported(self) -> tuple[str, ...]:
        """What the public coding agents are called that would be found here if they were installed."""
        return tuple(agent.title for agent in KNOWN_AGENTS)

    def hire(self, name: str, channel: str = CHANNEL) -> FoundAgent:
        """Write into the settings that `channel` is served by the agent `name`; how it logs in is in what comes back.

        What the settings say of that agent already is left as it is. Raises `Refusal` `unknown_agent`,
        `adapter_missing`, `unknown_channel`, and what writing settings raises.
        """
        agent = next((other for other in self.known() if other.name == name), None)
        if agent is None:
            names = ", ".join(other.name for other in self.known()) or "none"
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
