"""Having a channel served by what is here (SPEC 3.8): coding agents and local models, who serves, hire one.

They are offered, never taken: nothing is written before the operator said so. A provider is asked for its list of
models only where its address is this very machine; nothing but that is sent. Whatever listens there, it is given
little time and little room.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import json
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from engine.config.agents import ACP, AUTO, MODEL, ProviderKind, ProviderSettings, model_fault
from engine.execution.routing import ModelChoice
from engine.execution.runners.acp.agents import KNOWN_AGENTS, describe_agent, discover
from engine.model import FoundAgent, LocalModels, Refusal, sanitise
from engine.settings_store import SettingsStore

TIMEOUT_S = 0.5
"""Seconds for a server of this machine to answer as a whole; where none listens, no time at all passes."""

LARGEST = 256 * 1024
"""Bytes of an answer that are looked at."""

MAX_MODELS = 9
"""Models that are told of a provider."""

_LATE = f"did not list its models within {TIMEOUT_S:g} s"


def query_local_models(providers: Mapping[str, ProviderSettings]) -> LocalModels:
    """The models that answer on this machine. Blocking, up to a second: all providers are asked at once."""
    addresses = {name: address for name, provider in providers.items() if (address := _local(provider)) is not None}
    if not addresses:
        return LocalModels()
    with ThreadPoolExecutor(len(addresses), thread_name_prefix="local-models") as threads:
        answers = list(threads.map(_ask, addresses.values()))
    ids = [f"{name}:{model}" for name, answer in zip(addresses, answers, strict=True) for model in answer.ids]
    faults = [
        f"{name} at {addresses[name].netloc.rpartition('@')[2]} {fault}"
        for name, answer in zip(addresses, answers, strict=True)
        for fault in answer.faults
    ]
    return LocalModels(tuple(ids), tuple(faults))


def _local(provider: ProviderSettings) -> SplitResult | None:
    """The address of a provider of this machine that needs no key; None for every other one."""
    if not provider.keyless or provider.kind is not ProviderKind.OPENAI:
        return None
    try:
        parts = urlsplit(provider.base_url)
        return parts if parts.scheme == "http" and _is_loopback(parts.hostname or "") and parts.port != 0 else None
    except ValueError:
        return None


def _ask(address: SplitResult) -> LocalModels:
    """What one server says: names without their provider, or what is wrong as the end of a sentence."""
    connection = http.client.HTTPConnection(address.hostname or "", address.port or 80, timeout=TIMEOUT_S)
    try:
        connection.connect()
    except OSError as error:
        # None listens, or one that takes nobody in.
        return LocalModels(faults=(_LATE,) if isinstance(error, TimeoutError) else ())
    # A timeout of the socket begins anew with every byte; this ends it all, whatever was sent.
    timed_out = threading.Event()
    timer = threading.Timer(TIMEOUT_S, _shut_down, (connection.sock, timed_out))
    timer.start()
    try:
        connection.request("GET", f"{address.path.rstrip('/')}/models")  # no proxy, and no redirection is followed
        answer = connection.getresponse()
        if answer.status != 200:
            return LocalModels(faults=(f"answers {answer.status} instead of its list of models",))
        body = answer.read(LARGEST + 1)
        if len(body) > LARGEST:
            return LocalModels(faults=(f"tells more than {LARGEST // 1024} KB instead of its list of models",))
        return LocalModels(tuple(_names(json.loads(body))))
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        if timed_out.is_set():
            return LocalModels(faults=(_LATE,))
        return LocalModels(faults=("answers, but without a list of models",))
    finally:
        timer.cancel()
        connection.close()


def _shut_down(connection: socket.socket, timed_out: threading.Event) -> None:
    timed_out.set()
    with contextlib.suppress(OSError):  # it was over in this moment
        connection.shutdown(socket.SHUT_RDWR)


def _names(document: Any) -> list[str]:
    names = [entry["id"] for entry in document["data"] or []]
    return [name for name in names if name and name == sanitise(name) and len(name) <= 120 and name.isprintable()][
        :MAX_MODELS
    ]


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


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
