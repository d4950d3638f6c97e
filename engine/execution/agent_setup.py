"""Having a channel served by what is here (SPEC 3.8): coding agents and local models, who serves, hire one.

They are offered, never taken: nothing is written before the operator said so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from engine.config.agents import ACP, AUTO, MODEL, model_fault
from engine.execution.local_models import running
from engine.execution.routing import ModelChoice
from engine.execution.runners.acp.known import KNOWN, discover
from engine.execution.runners.acp.known import found as known_as
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
        chosen = self._settings.current.channels.get(channel)
        if chosen is None:
            return ""
        if chosen.runner.startswith(ACP):
            return chosen.runner.removeprefix(ACP)
        if chosen.runner not in (AUTO, MODEL):
            return ""
        try:
            return self._model_for(chosen.agent, channel).id
        except Refusal:
            return ""

    def models(self) -> LocalModels:
        """The models that run on this machine, and what does not tell its own. Blocking, up to a second."""
        current = self._settings.current
        named = {name: current.provider(name) for name in current.provider_names()}
        return running({name: one for name, one in named.items() if one is not None})

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
        mine = {
            name: replace(known_as(name, one.command, data=self._data), hosts=one.hosts)
            for name, one in self._settings.current.acp.items()
        }
        return [*mine.values(), *(one for one in self.found() if one.name not in mine)]

    @property
    def supported(self) -> tuple[str, ...]:
        """What the public coding agents are called that would be found here if they were installed."""
        return tuple(one.title for one in KNOWN)

    def hire(self, name: str, channel: str = CHANNEL) -> FoundAgent:
        """Write into the settings that `channel` is served by the agent `name`; how it logs in is in what comes back.

        What the settings say of that agent already is left as it is. Raises `Refusal` `unknown_agent`,
        `adapter_missing`, `unknown_channel`, and what writing settings raises.
        """
        agent = next((one for one in self.known() if one.name == name), None)
        if agent is None:
            here = ", ".join(one.name for one in self.known()) or "none"
            raise Refusal("unknown_agent", f"no coding agent {name!r} is installed here", f"found: {here}")
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
