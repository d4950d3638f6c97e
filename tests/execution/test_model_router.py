"""The router of models: the order of choices, hints, providers without a key or a model, and usual prices (SPEC 3.8,
5.4)."""

from collections.abc import Mapping
from typing import Any

import pytest

from engine.api_keys import Key
from engine.config.settings import FixedSettings
from engine.config.settings_file import read_settings
from engine.execution import model_router
from engine.execution.model_router import ModelRouter
from engine.installed import make_extras_command
from engine.model import Refusal
from tests.support import read_table
from tests.support.checks import refused


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


CHANNEL = '[channels.koji-core]\nmodel = "{}"\n'
TABLE = read_table(__file__)


def choose_model(router: ModelRouter, run_kind: str = "task") -> str:
    return router.choose("builder", "koji-core", run_kind, "explain").id


def find_refusal(router: ModelRouter) -> Refusal:
    return refused("no_model", lambda: choose_model(router))


@pytest.mark.parametrize("row", TABLE["choice"], ids=lambda row: row["name"])
def test_a_hint_comes_before_the_agents_tools_the_channel_and_the_first_provider(row: dict[str, Any]):
    router = make_router(
        *row["keys"], config=row.get("config", ""), models=row.get("tools_json"), hint=row.get("hint", "")
    )
    assert choose_model(router, row.get("run_kind", "task")) == row["model"]


@pytest.mark.parametrize("default, hint, model", TABLE["local"])
def test_a_hint_never_moves_work_from_a_local_model_to_a_remote_one(default: str, hint: str, model: str):
    router = make_router(
        "openai", config='[providers.ollama]\nmodel = "qwen3"\n', models={"default": default}, hint=hint
    )
    assert choose_model(router) == model


@pytest.mark.parametrize("model", ["ollama:qwen3", "anthropic:claude-sonnet-5-5", "nobody:x", "gpt"])
def test_the_model_of_the_agent_is_never_replaced_by_another(model: str):
    assert find_refusal(make_router("openai", models={"task": model})).fix


@pytest.mark.parametrize("has_extra, keys, config, commands", TABLE["missing_steps"])
def test_each_missing_step_is_named_and_no_other(
    monkeypatch: pytest.MonkeyPatch, has_extra: bool, keys: tuple[str, ...], config: str, commands: list[str]
):
    monkeypatch.setattr(model_router, "has_extra", lambda extra: has_extra)
    router = make_router(*keys, config=config)
    steps = router.find_missing_steps()
    assert [step.shown_command for step in steps] == commands
    if steps:
        refusal = find_refusal(router)
        assert (f"`{commands[0]}`" if has_extra else make_extras_command("models")) in refusal.fix
        assert ("key set openai" in refusal.fix) == ("clawpy key set openai" in commands)


def test_a_provider_whose_keys_cannot_be_read_is_not_usable_and_its_refusal_is_about_the_keys():
    router = make_router("!openai")
    state = router.read_provider("openai")
    assert not state.usable
    assert state.problem == "keys.json is not a list of keys: move it away"
    assert find_refusal(router).message == "the keys cannot be read"
    refusal = find_refusal(make_router("!openai", config=CHANNEL.format("openai:gpt-6-sol")))
    assert state.problem in refusal.message
    assert "clawpy key list" in refusal.fix


# The usual price of a model

PROVIDERS_WITH_PRICES = """
[providers]
on_this_machine = { kind = "openai", baseUrl = "http://127.0.0.1:2/v1" }
in_the_network = { kind = "openai", baseUrl = "http://10.0.0.2/v1" }
keyless = { kind = "openai", baseUrl = "http://10.0.0.2/v1", keyless = true }
deepseek = { kind = "openai", baseUrl = "http://10.0.0.2/v1", keyless = true }
own = { kind = "openai", baseUrl = "http://10.0.0.2/v1", price = { input = 2, output = 8 } }
"""
"""`deepseek` is also the name of a provider of the public list."""


def find_price(model: str) -> int | None:
    """The usual price where all providers but anthropic have what they need."""
    router = make_router("openai", "on_this_machine", "in_the_network", "own", config=PROVIDERS_WITH_PRICES)
    return router.find_blended_price(model)


def test_a_listed_model_has_its_listed_price():
    assert 0 < find_price("openai:gpt-5-mini") < find_price("openai:gpt-5")


@pytest.mark.parametrize(
    "provider, price", [("on_this_machine", 0), ("keyless", 0), ("deepseek", 0), ("in_the_network", None)]
)
def test_a_model_that_is_not_listed_is_free_on_this_machine_or_without_a_key(provider: str, price: int | None):
    assert find_price(f"{provider}:nobody-knows-it") == price


@pytest.mark.parametrize("model", ["nobody-knows-it", "gpt-5"])
def test_a_price_in_the_settings_takes_the_place_of_the_listed_one(model: str):
    assert find_price(f"own:{model}") == 3_200_000, "four tokens at 2 dollars a million, and one at 8"
