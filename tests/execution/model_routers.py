"""Routers of models with the settings, keys and hints that a test names."""

from collections.abc import Mapping

from engine.api_keys import Key
from engine.config import FixedSettings
from engine.config.settings_file import read_settings
from engine.execution.model_router import ModelRouter
from engine.model import Refusal


class StandInKeys:
    """Keys of these providers; one with "!" before its name lies in a file that cannot be used."""

    def __init__(self, *providers: str):
        self.providers = providers

    def get(self, provider: str) -> Key | None:
        if f"!{provider}" in self.providers:
            raise Refusal("damaged_keys", "keys.json is not a list of keys", "move it away")
        return Key(provider, "environment", "sk-1") if provider in self.providers else None


def make_router(*keys: str, config: str = "", models: Mapping[str, str] | None = None, hint: str = "") -> ModelRouter:
    """A router with keys of these providers, these settings, an agent's own models, and a hint of the learning."""
    return ModelRouter(
        FixedSettings(read_settings(config, file="config.toml", environment={})),
        StandInKeys(*keys),
        models=lambda agent: models or {},
        hints=lambda run: (hint, f"it did well on {run.channel}") if hint else None,
    )
