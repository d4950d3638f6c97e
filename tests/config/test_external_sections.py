"""Settings of providers, coding agents, runners and models (SPEC 3.8, 7.6): what is accepted, and that no problem
repeats a secret."""

from collections.abc import Callable

import pytest

from engine.config import find_model_problem, find_runner_problem, find_url_problem
from engine.config.external_sections import PROVIDERS
from engine.config.settings import Settings
from engine.config.settings_file import BadConfig, read_settings
from tests.support import read_table

TABLE = read_table(__file__)


def parse_settings(text: str) -> Settings:
    return read_settings(text, file="config.toml", environment={})


def test_the_file_overrides_single_values_of_a_built_in_provider():
    settings = parse_settings('[providers.openai]\nmodel = "gpt-6-luna"\n[providers.ollama]\n')
    assert settings.get_provider("openai") == PROVIDERS["openai"].model_copy(update={"model": "gpt-6-luna"})
    assert list(settings.providers) == ["openai", "ollama"], "only those that are named"
    assert settings.get_provider("anthropic") == PROVIDERS["anthropic"]
    assert settings.get_provider("nobody") is None
    assert settings.list_providers() == ("openai", "ollama", "anthropic", "together")


@pytest.mark.parametrize("text, line, key, words", TABLE["problems"])
def test_a_problem_names_line_key_and_fix(text: str, line: int, key: str, words: str):
    with pytest.raises(BadConfig) as caught:
        parse_settings(text)
    problems = [problem for problem in caught.value.problems if problem.key == key]
    assert problems, caught.value.message
    assert problems[0].where == f"config.toml:{line}"
    assert words in problems[0].message


@pytest.mark.parametrize(
    "text",
    [
        "[providers.openai]\nbaseUrl = 'https://me:hush-hush@x.org'\n",
        "[providers.openai]\nbaseUrl = 'https://x.org/?key=hush-hush'\n",
        "[providers.openai]\napiKey = 'hush-hush'\n",
        "[acp.c]\ncommand = ['c']\nenv = ['A=hush-hush']\n",
    ],
)
def test_no_problem_repeats_a_secret(text: str):
    with pytest.raises(BadConfig) as caught:
        parse_settings(text)
    assert "hush" not in str(caught.value)


SAFE_ADDRESSES = (
    "http://localhost:11434/v1 http://127.0.0.1 http://[::1]:8000/v1 http://10.1.2.3 http://192.168.1.4:1 "
    "http://gpu:8000 http://box.lan https://api.example.com/v1 http://app.localhost"
)
UNSAFE_ADDRESSES = (
    "http://api.example.com http://8.8.8.8/v1 http://0.0.0.0 https://u@x.org https://u:p@x.org ftp://x x.org/v1 "
    "https:// https://x.org/v1?k=1 https://x.org/#k https://x.org:99999 http://10.0.0.1@evil.org "
    "http://127.0.0.1.evil.org https://[::1 https://ex\u00e4mple.org"
)


def test_plain_http_is_accepted_for_nearby_addresses_only():
    assert [url for url in SAFE_ADDRESSES.split() if find_url_problem(url)] == []
    assert [url for url in (*UNSAFE_ADDRESSES.split(), "", "https://x .org") if not find_url_problem(url)] == []
    assert find_url_problem("http://api.example.com", insecure=True) == "", "the operator accepts plain http"
    assert find_url_problem("http://u:p@api.example.com", insecure=True)


@pytest.mark.parametrize("find_problem, name", [(find_runner_problem, "runner"), (find_model_problem, "model")])
def test_malformed_names_are_refused(find_problem: Callable[[str], str], name: str):
    assert [text for text in TABLE[name]["accepted"] if find_problem(text)] == []
    assert [text for text in TABLE[name]["refused"] if not find_problem(text)] == []


def test_the_built_in_models_have_a_price():
    from genai_prices import Usage, calc_price

    for name, provider in PROVIDERS.items():
        if provider.keyless:
            continue
        price = calc_price(Usage(input_tokens=1000, output_tokens=100), provider.model, provider_id=name)
        assert price.model.id == provider.model, "the model itself, and not one whose name begins alike"
        assert price.total_price > 0
