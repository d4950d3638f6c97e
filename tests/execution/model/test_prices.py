"""Prices of models are read from the list, without asking a provider (SPEC 5.4)."""

import pytest

from engine.config import FixedSettings, Settings
from engine.config.sections import ProviderSettings, TokenPrice
from engine.execution.model_router import ModelRouter
from engine.execution.runners.model.prices import find_listed_price
from tests.execution.model_routers import StandInKeys
from tests.support.programs import find_imported


@pytest.fixture
def router() -> ModelRouter:
    """A router with providers of the operator's: `local` needs no key; `own` has a price in the settings. `deepseek`
    and `mistral` have names of the public list, and need no key."""
    providers = {
        "local": ProviderSettings(kind="openai", base_url="http://127.0.0.1:1/v1", model="x", keyless=True),
        "box": ProviderSettings(kind="openai", base_url="http://127.0.0.1:2/v1", model="x"),
        "lan": ProviderSettings(kind="openai", base_url="http://10.0.0.2/v1", model="x"),
        "deepseek": ProviderSettings(kind="openai", base_url="http://10.0.0.2/v1", model="x", keyless=True),
        "mistral": ProviderSettings(kind="openai", base_url="http://127.0.0.1:3/v1", model="x", keyless=True),
        "own": ProviderSettings(
            kind="openai", base_url="http://10.0.0.2/v1", model="x", price=TokenPrice(input=2, output=8)
        ),
    }
    return ModelRouter(
        FixedSettings(Settings(providers=providers)),
        StandInKeys("openai", "box", "lan", "own"),
        models=lambda agent: {},
    )


def test_a_listed_model_with_a_key_has_its_listed_price(router: ModelRouter):
    large, small = router.find_usual_price("openai:gpt-5"), router.find_usual_price("openai:gpt-5-mini")
    assert large
    assert small
    assert small < large
    assert router.find_usual_price("deepseek:deepseek-chat"), "a server of that name may be a gateway to the provider"
    assert router.find_usual_price("anthropic:claude-sonnet-4-5") is None, "without a key it cannot be had"


@pytest.mark.parametrize("provider, expected", [("local", 0), ("box", 0), ("deepseek", 0), ("lan", None)])
def test_a_model_that_is_not_listed_is_free_on_this_machine_or_without_a_key(
    router: ModelRouter, provider: str, expected: int | None
):
    assert router.find_usual_price(f"{provider}:nobody-knows-it") == expected


def test_a_listed_model_on_this_machine_is_free(router: ModelRouter):
    on_this_machine = router.choose_named("mistral:mistral-large-latest", "a test")
    assert on_this_machine.is_free
    assert find_listed_price(on_this_machine.make_model()) == {"input": 0, "output": 0}


@pytest.mark.parametrize("model", ["nobody-knows-it", "gpt-5"])
def test_a_price_in_the_settings_takes_the_place_of_the_listed_one(router: ModelRouter, model: str):
    assert router.find_usual_price(f"own:{model}") == 3_200_000, "four tokens at 2 dollars a million, and one at 8"


@pytest.mark.long
def test_the_list_loads_without_the_clients():
    assert not find_imported("import engine.execution.runners.model.prices", "pydantic_ai")
