"""Finds the coding agents and models of this machine for the text prompts of a channel, and assigns one (SPEC 3.8).

Providers on this machine, such as Ollama, are asked for their models. The settings change only when the operator
chooses one.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from engine.background import run_in_thread
from engine.config import ACP_PREFIX, AUTO, MODEL, find_model_problem, is_loopback_host
from engine.config.external_sections import ProviderKind, ProviderSettings
from engine.execution.model_router import ModelChoice
from engine.execution.runners.acp import KNOWN_AGENTS, describe_agent, find_agents
from engine.frozen import frozen
from engine.installed import FoundAgent, LocalModels, SetupStep
from engine.model import Refusal
from engine.settings_store import SettingsStore
from engine.text import sanitise

DEFAULT_CHANNEL = "koji-core"
"""The channel for which agents and models are offered: code, builds, tests."""

TIMEOUT_S = 0.5
"""Seconds in which a server must answer completely."""

MAX_MODEL_LIST_BYTES = 256 * 1024
"""Size of an answer after which no more of it is read."""

MAX_MODELS = 9
"""Maximum number of models of a provider."""

_LATE = f"did not list its models within {TIMEOUT_S:g} s"
"""The end of a sentence about a provider that did not answer in time."""


@frozen
class ChannelSetup:
    """Reads and changes the agent or model that serves a channel.

    `choose_model(agent, channel)` returns the model that would answer, or raises `Refusal`. `find_missing_steps`
    returns the steps before a model can, the next one first. Agents are searched in `path`, by default in PATH.
    """

    settings: SettingsStore
    data: Path
    choose_model: Callable[[str, str], ModelChoice]
    find_missing_steps: Callable[[], Sequence[SetupStep]]
    path: str | None = None

    def find_executor(self, channel: str = DEFAULT_CHANNEL) -> str:
        """The coding agent or the id of the model that serves text prompts on `channel` now; "" for none. May read the
        keyring. An assigned agent counts even if it is gone, because its cards say what is missing."""
        channel_settings = self.settings.current.channels.get(channel)
        if channel_settings is None:
            return ""
        if channel_settings.runner.startswith(ACP_PREFIX):
            return channel_settings.runner.removeprefix(ACP_PREFIX)
        if channel_settings.runner not in (AUTO, MODEL):
            return ""
        try:
            return self.choose_model(channel_settings.agent, channel).id
        except Refusal:
            return ""

    def find_next_step(self) -> SetupStep:
        """The next step towards a model for `DEFAULT_CHANNEL`, which nothing serves. May read the keyring."""
        steps = self.find_missing_steps()
        return steps[0] if steps else SetupStep(f"no model serves {DEFAULT_CHANNEL}", "clawpy doctor")

    def find_local_models(self) -> LocalModels:
        """The models of local providers, and the problems of those that list none. Blocks for at most a second."""
        current = self.settings.current
        providers = {name: provider for name in current.list_providers() if (provider := current.get_provider(name))}
        return query_local_models(providers)

    def assign_model(self, model_id: str) -> None:
        """Make `provider:model` the model of its provider in the settings, and let models serve `DEFAULT_CHANNEL`
        instead of a coding agent. Raises `Refusal` `no_model`, and as a change of settings."""
        problem = find_model_problem(model_id)
        if problem:
            raise Refusal("no_model", problem, "for example ollama:qwen3")
        provider, _, model = model_id.partition(":")
        self.settings.set(f"providers.{provider}.model", model)
        channel_settings = self.settings.current.channels.get(DEFAULT_CHANNEL)
        if channel_settings is not None and channel_settings.runner.startswith(ACP_PREFIX):
            self.settings.set(f"channels.{DEFAULT_CHANNEL}.runner", AUTO)

    def find_agents(self) -> list[FoundAgent]:
        """The coding agents of this machine, with those that lack their adapter."""
        return find_agents(self.data, self.path)

    def list_agents(self) -> list[FoundAgent]:
        """The agents of the settings, then the others of this machine."""
        configured_agents = {
            name: replace(describe_agent(name, configured.command, self.data), hosts=configured.hosts)
            for name, configured in self.settings.current.acp.items()
        }
        return [
            *configured_agents.values(),
            *(agent for agent in self.find_agents() if agent.name not in configured_agents),
        ]

    @property
    def supported_agents(self) -> tuple[str, ...]:
        """The names of the public coding agents that can be found when they are installed."""
        return tuple(agent.title for agent in KNOWN_AGENTS)

    def assign_agent(self, name: str, channel: str = DEFAULT_CHANNEL) -> FoundAgent:
        """Let the agent `name` serve `channel` in the settings. The result says how to log it in. Existing settings of
        the agent stay.

        Raises `Refusal` `unknown_agent`, `adapter_missing`, `unknown_channel`, and as a change of settings.
        """
        agents = {agent.name: agent for agent in self.list_agents()}
        agent = agents.get(name)
        if agent is None:
            names = ", ".join(agents) or "none"
            raise Refusal("unknown_agent", f"no coding agent {name!r} is installed here", f"found: {names}")
        if agent.missing:
            raise Refusal("adapter_missing", f"{agent.title} lacks its adapter for the protocol", agent.missing)
        self.settings.current.get_channel(channel)
        if name not in self.settings.current.acp:
            self.settings.set(f"acp.{name}.command", list(agent.command))
            if agent.hosts:
                self.settings.set(f"acp.{name}.hosts", list(agent.hosts))
        self.settings.set(f"channels.{channel}.runner", f"{ACP_PREFIX}{name}")
        return agent


def query_local_models(providers: Mapping[str, ProviderSettings]) -> LocalModels:
    """Ask the providers on this machine for their models, all at the same time. Blocks for at most a second."""
    addresses = {
        name: address for name, provider in providers.items() if (address := _find_local_address(provider)) is not None
    }
    until = time.monotonic() + TIMEOUT_S
    pending = {
        name: run_in_thread(f"clawpy-models-{name}", partial(_query_server, address, until))
        for name, address in addresses.items()
    }
    ids: list[str] = []
    faults: list[str] = []
    for name, future in pending.items():
        try:
            models, fault = future.result(max(0.0, until - time.monotonic()))
        except TimeoutError:
            models, fault = [], _LATE
        ids += [f"{name}:{model}" for model in models]
        faults += [f"{name} at {addresses[name].netloc.rpartition('@')[2]} {fault}"] if fault else []
    return LocalModels(tuple(ids), tuple(faults))


def _find_local_address(provider: ProviderSettings) -> SplitResult | None:
    """The address of a provider on this machine that needs no key. None for every other one."""
    if not provider.keyless or provider.kind is not ProviderKind.OPENAI:
        return None
    try:
        address = urlsplit(provider.base_url)
        is_local = address.scheme == "http" and is_loopback_host(address.hostname or "") and address.port != 0
    except ValueError:
        return None
    return address if is_local else None


def _query_server(address: SplitResult, until: float) -> tuple[list[str], str]:
    """(models, problem): the models of one server, and its problem as the end of a sentence, "" for none. Both are
    empty if no server listens. `until` is in monotonic seconds."""
    connection = http.client.HTTPConnection(address.hostname or "", address.port or 80, timeout=TIMEOUT_S)
    with contextlib.closing(connection):
        try:
            connection.connect()
        except OSError as error:
            return [], _LATE if isinstance(error, TimeoutError) else ""
        try:
            connection.request("GET", f"{address.path.rstrip('/')}/models")  # no proxy, and no redirection is followed
            response = connection.getresponse()
            body = b""
            while (chunk := response.read1(65_536)) and len(body) <= MAX_MODEL_LIST_BYTES and time.monotonic() < until:
                body += chunk
            names = [entry["id"] for entry in json.loads(body)["data"] or []]
            # A name must be one that can be shown and stored; what is no text raises TypeError.
            plain_names = [
                name for name in names if 0 < len(name) <= 120 and name == sanitise(name) and name.isprintable()
            ]
            return plain_names[:MAX_MODELS], ""
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return [], "answers, but without a list of models"
