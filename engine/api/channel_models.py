"""Finds the model that answers the text prompts of each channel, without an engine: for `doctor` and `key`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from engine.config import SettingsSource
from engine.config.agents import AUTO, MODEL
from engine.execution.routing import ModelRouter
from engine.frozen import frozen
from engine.hierarchy.agents import Agents
from engine.home import Home
from engine.keys import Keys
from engine.model import Refusal


@frozen
class ChannelModel:
    """A channel and the `model` that answers its text prompts, or another `runner`. Both are "" when nothing does, and
    `reason` says why."""

    channel: str
    model: str = ""
    runner: str = ""
    reason: str = ""


def offline_agents(home: Home, settings: SettingsSource) -> Agents:
    """The agents of a home, without an engine."""
    cascade_config = home.data / "wisdom_cascade_config.json"
    return Agents(home.agents, cascade_config=cascade_config, settings=settings, database=None)


def offline_router(home: Home, settings: SettingsSource, keys: Keys) -> ModelRouter:
    """The router of models, without an engine."""
    agents = offline_agents(home, settings)

    def models(agent: str) -> Mapping[str, str]:
        try:
            return agents.tools(agent).models
        except Refusal as refusal:
            if refusal.code == "unknown_agent":  # the organisation is made at the first start
                return {}
            raise

    return ModelRouter(settings, keys, models=models)


def channel_models(settings: SettingsSource, router: ModelRouter) -> list[ChannelModel]:
    """The model or runner that answers the text prompts of each channel."""
    models = []
    for name, channel in settings.current.channels.items():
        if channel.runner not in (AUTO, MODEL):
            models.append(ChannelModel(name, runner=channel.runner))
            continue
        try:
            models.append(ChannelModel(name, router.choose(channel.agent, name).id))
        except Refusal as refusal:
            reason = f"{refusal.message} ({refusal.fix})" if refusal.fix else refusal.message
            models.append(ChannelModel(name, reason=reason))
    return models


def channels_by_model(models: Iterable[ChannelModel]) -> dict[str, str]:
    """The names of the channels that each model answers, as a list in words."""
    channels: dict[str, list[str]] = {}
    for entry in models:
        if entry.model:
            channels.setdefault(entry.model, []).append(entry.channel)
    return {model: ", ".join(names) for model, names in channels.items()}
