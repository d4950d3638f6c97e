"""Which model does it: what the operator named is never replaced, and whoever is missing is named with the way in."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from engine.config import FixedSettings, Settings
from engine.config.agents import PROVIDERS, ProviderKind
from engine.config.toml_settings import read_settings
from engine.execution.routing import ModelRouter
from engine.keys import Key
from engine.model import Refusal


class Ring:
    """Keys by name; a name with "!" before it lies in a file that others can read."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def get(self, name: str) -> Key | None:
        if f"!{name}" in self.names:
            raise Refusal("loose_keys", "keys.json can be read by others", "chmod 600 'keys.json'")
        return Key(name, "environment", "sk-1") if name in self.names else None


def router(
    *keys: str,
    config: str = "",
    models: Mapping[str, str] | None = None,
    hint: str = "",
    settings: Settings | None = None,
) -> ModelRouter:
    read = settings or read_settings(config, file="config.toml", environment={})
    return ModelRouter(
        FixedSettings(read),
        Ring(*keys),
        models=lambda agent: models or {},
        hints=lambda agent, channel, *_: (hint, f"it did well on {channel}") if hint else None,
    )


def chosen(model_router: ModelRouter, run_kind: str = "task") -> str:
    return model_router.choose("backend_builder", "koji-core", run_kind, "explain").id


CHANNEL = '[channels.koji-core]\nmodel = "anthropic:claude-opus-5-5"\n'
TOOLS = {"default": "openai:gpt-6-luna", "heal": "openai:gpt-6-sol"}


def test_the_order_hint_run_kind_default_channel_first_provider():
    keys = ("openai", "anthropic")
    assert chosen(router(*keys)) == f"openai:{PROVIDERS['openai'].model}"
    assert chosen(router("anthropic")) == f"anthropic:{PROVIDERS['anthropic'].model}"
    assert chosen(router(*keys, config=CHANNEL)) == "anthropic:claude-opus-5-5"
    assert chosen(router(*keys, config=CHANNEL, models=TOOLS)) == "openai:gpt-6-luna"
    assert chosen(router(*keys, config=CHANNEL, models=TOOLS), "heal") == "openai:gpt-6-sol"
    assert chosen(router(*keys, config=CHANNEL, models=TOOLS, hint="openai:gpt-6.1-sol")) == "openai:gpt-6.1-sol"


def test_a_choice_says_where_it_goes_and_why():
    choice = router("openai", config=CHANNEL.replace("anthropic:claude-opus-5-5", "openai:gpt-6-sol")).choose(
        "a", "koji-core"
    )
    assert (choice.base_url, choice.host, choice.kind) == (
        "https://api.openai.com/v1",
        "api.openai.com",
        ProviderKind.OPENAI,
    )
    assert choice.reason == "channel koji-core names it"


def test_providers_that_the_settings_name_come_before_the_others():
    local = '[providers.ollama]\nmodel = "qwen3-coder:30b"\n'
    assert chosen(router("openai", config=local)) == "ollama:qwen3-coder:30b"
    assert chosen(router("openai")).startswith("openai:"), "nobody said that ollama runs here"


def test_a_provider_without_a_model_is_passed_over():
    assert chosen(router("openai", config="[providers.ollama]\n")).startswith("openai:")
    with pytest.raises(Refusal, match=r"ollama is available.*providers\.ollama\.model"):
        chosen(router(config="[providers.ollama]\n"))


@pytest.mark.parametrize(
    ("config", "models"),
    [
        ('[channels.koji-core]\nmodel = "ollama:qwen3"\n', {}),
        ("", {"default": "ollama:qwen3"}),
        ("", {"task": "anthropic:claude-sonnet-5-5"}),
        ("", {"task": "nobody:x"}),
        ("", {"task": "gpt"}),
    ],
)
def test_what_the_operator_named_is_never_replaced(config: str, models: dict[str, str]):
    with pytest.raises(Refusal) as caught:
        chosen(router("openai", config=config, models=models))
    assert caught.value.code == "no_model"
    assert caught.value.fix


def test_a_hint_that_cannot_be_followed_is_passed_over():
    assert chosen(router("openai", hint="anthropic:claude-opus-5-5")).startswith("openai:")
    assert chosen(router("openai", hint="rubbish")).startswith("openai:")


def test_a_hint_takes_no_work_from_a_model_on_this_machine_to_one_elsewhere():
    config = '[providers.ollama]\nmodel = "qwen3"\n'
    local = {"default": "ollama:qwen3"}
    assert chosen(router("openai", config=config, models=local, hint="openai:gpt-6-luna")) == "ollama:qwen3"
    assert chosen(router("openai", config=config, models=local, hint="ollama:qwen3-small")) == "ollama:qwen3-small"
    assert chosen(router("openai", config=config, models=TOOLS, hint="ollama:qwen3-small")) == "ollama:qwen3-small"


def test_without_any_provider_the_way_in_is_told():
    with pytest.raises(Refusal) as caught:
        chosen(router())
    assert caught.value.code == "no_model"
    assert "clawpy key set openai" in caught.value.fix
    assert "providers.ollama.model" in caught.value.fix


def test_a_named_provider_without_a_key_tells_how_to_give_it_one():
    with pytest.raises(Refusal) as caught:
        chosen(router(config=CHANNEL))
    assert "CLAWPY_ANTHROPIC_API_KEY" in caught.value.fix
    assert "channel koji-core names it" in caught.value.message


def test_keys_that_must_not_be_used_make_no_provider_usable():
    model_router = router("!openai")
    state = model_router.provider("openai")
    assert not state.usable
    assert "chmod 600" in state.problem
    with pytest.raises(Refusal, match="others"):
        chosen(model_router)


def test_states_of_providers():
    model_router = router(
        "openai", config='[providers.box]\nkind = "openai"\nbaseUrl = "http://box:1/v1"\nkeyless = true\n'
    )
    states = {state.name: (state.usable, state.source, state.is_configured) for state in model_router.providers()}
    assert states == {
        "box": (True, "keyless", True), "openai": (True, "environment", False), "anthropic": (False, "", False),
        "together": (False, "", False), "ollama": (False, "", False),
    }  # fmt: skip


def test_an_agent_that_is_broken_has_no_model():
    def models(agent: str) -> Mapping[str, str]:
        raise Refusal("broken_agent", "tools.json: bad", "fix it")

    with pytest.raises(Refusal, match=r"tools\.json"):
        ModelRouter(FixedSettings(), Ring("openai"), models=models).choose("a", "koji-core")
