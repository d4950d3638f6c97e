"""Prices of models are read from the list, without asking a provider (SPEC 5.4)."""

from __future__ import annotations

import subprocess
import sys

import pytest

from engine.config import FixedSettings, Settings
from engine.config.sections import ProviderSettings, TokenPrice
from engine.execution.model_router import ModelRouter
from engine.execution.runners.model.prices import find_listed_price
from engine.execution.runners.model.single_questions import make_priced_model
from engine.wiring.adaptation import PROMPT_SHARE, price
from tests.execution.model_routers import StandInKeys


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


def test_a_price_is_known_if_the_model_is_listed_and_has_a_key(router: ModelRouter) -> None:
    large, small = price(router, "openai:gpt-5"), price(router, "openai:gpt-5-mini")
    assert large is not None
    assert small is not None
    assert 0 < small < large
    assert price(router, "local:anything") == 0  # nobody sends a bill
    assert price(router, "box:nobody-knows-it") == 0  # it runs on this machine
    assert price(router, "lan:nobody-knows-it") is None
    listed = price(router, "deepseek:deepseek-chat")
    assert listed  # it may be a gateway
    assert price(router, "deepseek:nobody-knows-it") == 0
    on_this_machine = router.choose_named("mistral:mistral-large-latest", "a test")
    assert on_this_machine.is_free
    assert find_listed_price(make_priced_model(on_this_machine)) == {"input": 0, "output": 0}
    assert price(router, "own:nobody-knows-it") == (PROMPT_SHARE * 2_000_000 + 8_000_000) // (PROMPT_SHARE + 1)
    assert price(router, "own:gpt-5") == price(router, "own:nobody-knows-it")  # in place of the listed price
    assert price(router, "anthropic:claude-sonnet-4-5") is None  # no key: it cannot be had


@pytest.mark.long
def test_the_list_loads_without_the_clients() -> None:
    program = "import sys, engine.execution.runners.model.prices; print('pydantic_ai' in sys.modules)"
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert completed.stdout == "False\n"
