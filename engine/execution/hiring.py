"""Having a channel served by a coding agent that is installed here (SPEC 3.8): who is found, who serves, hire one.

Agents are offered, never taken: nothing is written before the operator said so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from engine.config import SettingsSource
from engine.config_agents import ACP, AUTO, MODEL
from engine.execution.runners.acp.known import FoundAgent, discover
from engine.execution.runners.acp.known import found as known_as
from engine.values import Refusal

CHANNEL = "koji-core"
"""The channel that is offered an agent: code, builds, tests."""


class Book(SettingsSource, Protocol):
    """Settings that can be written, each key validated with all the others."""

    def set(self, key: str, value: Any, /) -> Any: ...


class Hiring:
    """The port `engine.hiring`."""

    def __init__(
        self, settings: Book, *, data: Path, model_for: Callable[[str, str], object], path: str | None = None
    ) -> None:
        """`model_for(agent, channel)` raises `Refusal` when no model would answer; `path` is searched for agents, by
        default PATH."""
        self._settings = settings
        self._data = data
        self._model_for = model_for
        self._path = path

    def served(self, channel: str = CHANNEL) -> str:
        """What takes prose on `channel` now: a coding agent's name or "model"; "" when nothing does.

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
            self._model_for(chosen.agent, channel)
        except Refusal:
            return ""
        return MODEL

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
