"""Settings of providers, coding agents, runners and models: what is accepted, and where and how an error says no."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import Autonomy, Settings
from engine.config.sections import PROVIDERS, model_problem, runner_problem, url_problem
from engine.config.settings_file import VARIABLES, BadConfig, describe_accepted, parse_key, read_settings
from engine.home import Home
from engine.model import Refusal

# Settings from text: what is accepted, and what each mistake is answered with.


def read(text: str, **environment: str) -> Settings:
    return read_settings(text, file="config.toml", environment=environment)


def complaints(text: str, **environment: str) -> list[str]:
    with pytest.raises(BadConfig) as caught:
        read(text, **environment)
    return [str(problem) for problem in caught.value.problems]


def test_one_value_of_one_channel_leaves_the_rest_of_the_channels() -> None:
    settings = read("[channels.research]\nsessionMinutes = 5\n")
    assert settings.channels["research"].session_minutes == 5
    assert settings.channels["research"].agent == "researcher"
    assert len(settings.channels) == 5


def test_an_unknown_key_names_line_and_what_was_meant() -> None:
    assert complaints("\n# mine\ncrosspollEnabld = true\n") == [
        "config.toml:3: crosspollEnabld: unknown key; did you mean crossPollEnabled?"
    ]


def test_a_key_in_the_wrong_section_is_led_to_the_right_one() -> None:
    assert complaints('theme = "x"\n') == ["config.toml:1: theme: unknown key; did you mean console.theme?"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('crossPollEnabled = "yes"', 'crossPollEnabled: "yes" is not accepted; expected true or false'),
        (
            'workspaces."/srv/shop".prepare = "yes"',
            'workspaces."/srv/shop".prepare: "yes" is not accepted; expected true or false',
        ),
        ("quietHoursStart = 24", "quietHoursStart: 24 is not accepted; expected a whole number from 0 to 23"),
        ("quietHoursStart = -1", "quietHoursStart: -1 is not accepted; expected a whole number from 0 to 23"),
        ("quietHoursStart = 1.5", "quietHoursStart: 1.5 is not accepted; expected a whole number from 0 to 23"),
        (
            "crossPollAutoExecuteThreshold = 0.79",
            "crossPollAutoExecuteThreshold: 0.79 is not accepted; expected a number from 0.8 to 1",
        ),
        ("costPerTrigger = nan", "costPerTrigger: nan is not accepted; expected a number from 0 to 1000000"),
        ("twinModelId = 2026-01-05", "twinModelId: 2026-01-05 is not accepted; expected a string in quotes"),
        (
            "production.branches = 3",
            'production.branches: 3 is not accepted; expected a list of strings, for example ["main", "prod*"]',
        ),
        (
            "channels.koji-core.sessionMinutes = 0",
            "channels.koji-core.sessionMinutes: 0 is not accepted; expected a number above 0 and up to 1440",
        ),
        (
            'channels.koji-core.agent = "../x"',
            'channels.koji-core.agent: "../x" is not accepted; expected an id: a lower-case letter, then at most 39 '
            "of a-z, 0-9, _ and -",
        ),
        ('workspaces."/a".autonomy = "on"', 'workspaces."/a".autonomy: "on" is not accepted; expected one of "off", '
         '"cards", "act"'),
        ("console = 3", "console: 3 is not accepted; expected a section with theme, mouse, bell, emoji"),
    ],
)  # fmt: skip
def test_a_bad_value_says_what_is_accepted(text: str, complaint: str) -> None:
    assert complaints(text) == [f"config.toml:1: {complaint}"]


def test_a_new_channel_needs_an_agent() -> None:
    found = complaints("\n[channels.legal]\nspecialty = 'contracts'\n")
    assert found[0].startswith("config.toml:2: channels.legal.agent: missing")


def test_a_workspace_is_an_absolute_path() -> None:
    [found] = complaints("[workspaces.shop]\nautonomy = 'act'\n")
    assert found.startswith("config.toml:1: workspaces: workspace 'shop' is not an absolute path")


def test_lines_are_right_behind_values_of_several_lines() -> None:
    text = '[production]\nbranches = [\n  "main",\n]\n\n# a remark\nhosts = """x"""\n[console]\ntheme = 1\n'
    assert [complaint.split(": ")[0:2] for complaint in complaints(text)] == [
        ["config.toml:7", "production.hosts"],
        ["config.toml:9", "console.theme"],
    ]


def test_what_is_no_toml_says_line_and_column() -> None:
    [found] = complaints("crossPollEnabled = true\nquietHoursStart = \n")
    assert found.startswith("config.toml:2: column 19: not TOML: Invalid value")
    [found] = complaints('crossPollEnabled = true\n[production]\nbranches = ["main",\n\n')
    assert found.startswith("config.toml:3: the file ends too early: not TOML: Invalid value")


def test_the_environment_wins_over_the_file() -> None:
    settings = read(
        "crossPollEnabled = true\n",
        CLAWPY_CROSS_POLL_ENABLED="off",
        CLAWPY_CONSOLE_THEME="clawpy-light",
        CLAWPY_SILENCE_THRESHOLD_MS="60000",
    )
    assert not settings.cross_poll_enabled
    assert settings.console.theme == "clawpy-light"
    assert settings.silence_threshold_ms == 60_000


def test_a_bad_variable_is_named() -> None:
    assert complaints("quietHoursEnd = 99", CLAWPY_QUIET_HOURS_START="late") == [
        "config.toml:1: quietHoursEnd: 99 is not accepted; expected a whole number from 0 to 23",
        'CLAWPY_QUIET_HOURS_START: quietHoursStart: "late" is not accepted; expected a whole number from 0 to 23',
    ]


def test_every_variable_leads_to_a_setting_and_none_is_taken_twice() -> None:
    assert "CLAWPY_HOME" not in VARIABLES
    for path in VARIABLES.values():
        assert parse_key(".".join(path)) == path
        assert describe_accepted(path)


@pytest.mark.parametrize("key", ["", "a b", "=", "crossPollEnabled = 1\nx", "a..b"])
def test_what_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(Refusal) as caught:
        parse_key(key)
    assert caught.value.code in ("bad_key", "unknown_key")


VALUES = ("true", "3", "-1", "1.5", "nan", '"x"', "[1, 'a']", "{ a = 1 }", "2026-01-05", "[[1]]", "1e400", "0x10")


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.text(max_size=30),
            st.sampled_from(["[console]", "[channels.x]", '[workspaces."/a"]', "[[production]]", "[channels]"]),
            st.tuples(
                st.sampled_from([*Settings().model_dump(by_alias=True), "theme", "agent", "autonomy", "branches"]),
                st.sampled_from(VALUES),
            ).map(" = ".join),
        ),
        max_size=8,
    )
)
def test_whatever_stands_in_the_file_gives_settings_or_says_where_it_is_wrong(lines: list[str]) -> None:
    problems = None
    try:
        read("\n".join(lines))
    except BadConfig as error:
        problems = error.problems
    assert problems is None or problems
    assert all(problem.where.startswith("config.toml") and problem.message for problem in problems or ())


def test_a_workspace_is_found_by_the_path_that_git_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "disk/shop").mkdir(parents=True)
    (tmp_path / "work").symlink_to(tmp_path / "disk")
    monkeypatch.setenv("HOME", str(tmp_path))
    real = str((tmp_path / "disk/shop").resolve())
    for name in ("~/work/shop", str(tmp_path / "work/shop"), f"{real}/"):
        assert read(f'[workspaces."{name}"]\nautonomy = "off"\n').workspace(real).autonomy is Autonomy.OFF
    [found] = complaints(f'[workspaces."~/work/shop"]\n[workspaces."{real}"]\n')
    assert "are the same folder" in found


def test_the_home_of_a_user_that_is_not_there(tmp_path: Path) -> None:
    text = '[workspaces."~nobody-at-all/shop"]\n'
    [found] = complaints(text)
    assert "is not an absolute path" in found
    home = Home.locate(tmp_path)
    home.config.mkdir()
    home.config_file.write_text(text)
    assert home.configured_workspaces() == []


@pytest.mark.parametrize(
    "text",
    ["a = " + "[" * 5_000, "a." * 2_000 + "b = 1", "[" + "a." * 2_000 + "b]", "maxPendingCards = " + "9" * 5_000],
)
def test_what_python_itself_cannot_read_is_a_problem_of_the_file(text: str, tmp_path: Path) -> None:
    [found] = complaints(text)
    assert found.startswith("config.toml: ")
    home = Home.locate(tmp_path)
    home.config.mkdir()
    home.config_file.write_text(text)
    assert home.configured_workspaces() == []


@pytest.mark.parametrize("name", ["owner", "gateway"])
def test_a_channel_may_not_be_called_like_an_origin_of_triggers(name: str) -> None:
    with pytest.raises(ValueError, match="may not be called"):
        Settings.model_validate({"channels": {name: {"agent": "ceo"}}})


def read_agents(text: str) -> Settings:
    return read_settings(text, file="config.toml", environment={})


def test_what_a_file_says_of_a_built_in_provider_goes_over_what_is_built_in():
    settings = read_agents('[providers.openai]\nmodel = "gpt-6-luna"\n[providers.ollama]\n')
    assert settings.provider("openai") == PROVIDERS["openai"].model_copy(update={"model": "gpt-6-luna"})
    assert list(settings.providers) == ["openai", "ollama"], "only those that are named"
    assert settings.provider("anthropic") == PROVIDERS["anthropic"]
    assert settings.provider("nobody") is None
    assert settings.provider_names() == ("openai", "ollama", "anthropic", "together")


def test_a_provider_of_ones_own_says_what_it_speaks_and_where():
    settings = read_agents('[providers.vllm]\nkind = "openai"\nbaseUrl = "http://127.0.0.1:8000/v1/"\nkeyless = true\n')
    one = settings.provider("vllm")
    assert (one.base_url, one.host, one.keyless) == ("http://127.0.0.1:8000/v1", "127.0.0.1:8000", True)


@pytest.mark.parametrize(
    ("text", "line", "key", "words"),
    [
        ("[providers.vllm]\nmodel = 'x'\n", 1, "providers.vllm.kind", "missing"),
        ("[providers.openai]\nkind = 'gemini'\n", 2, "providers.openai.kind", '"openai", "anthropic"'),
        ("[providers.openai]\nbaseUrl = 'http://api.example.com'\n", 2, "providers.openai.baseUrl", "insecure = true"),
        ("[providers.openai]\nbaseUrl = 'https://me:pw@x.org'\n", 2, "providers.openai.baseUrl", "clawpy key set"),
        ("[providers.openai]\napiKey = 'sk-1'\n", 2, "providers.openai.apiKey", "clawpy key set openai"),
        ("[providers.openai]\nmodel = 'a b'\n", 2, "providers.openai.model", "no space"),
        ("[providers.Big]\nkind = 'openai'\n", 1, "providers.Big", "lower-case letter"),
        ("[acp.claude]\nhosts = []\n", 1, "acp.claude.command", "missing"),
        ("[acp.claude]\ncommand = []\n", 2, "acp.claude.command", "begins with a program"),
        ("[acp.c]\ncommand = ['c']\nhosts = ['https://x.org']\n", 3, "acp.c.hosts", "without https://"),
        ("[acp.c]\ncommand = ['c']\nenv = ['A=hush-hush']\n", 3, "acp.c.env", "names of variables"),
        ("[channels.research]\nrunner = 'acp'\n", 2, "channels.research.runner", "acp:NAME"),
        ("[channels.research]\nfallback = ['auto']\n", 2, "channels.research.fallback", "is not a runner"),
        ("[channels.research]\nmodel = 'gpt-5'\n", 2, "channels.research.model", "provider:model"),
    ],
)
def test_an_error_says_line_key_and_how_to_mend_it(text: str, line: int, key: str, words: str):
    with pytest.raises(BadConfig) as caught:
        read_agents(text)
    problems = [problem for problem in caught.value.problems if problem.key == key]
    assert problems, caught.value.message
    assert problems[0].where == f"config.toml:{line}"
    assert words in problems[0].message


def test_no_error_repeats_a_secret_that_stands_where_it_must_not():
    for text in (
        "[providers.openai]\nbaseUrl = 'https://me:hush-hush@x.org'\n",
        "[providers.openai]\nbaseUrl = 'https://x.org/?key=hush-hush'\n",
        "[providers.openai]\napiKey = 'hush-hush'\n",
        "[acp.c]\ncommand = ['c']\nenv = ['A=hush-hush']\n",
    ):
        with pytest.raises(BadConfig) as caught:
            read_agents(text)
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


def test_addresses_that_a_key_may_travel_to():
    assert [url for url in SAFE_ADDRESSES.split() if url_problem(url)] == []
    assert [url for url in (*UNSAFE_ADDRESSES.split(), "", "https://x .org") if not url_problem(url)] == []
    assert url_problem("http://api.example.com", insecure=True) == "", "plain http with open eyes"
    assert url_problem("http://u:p@api.example.com", insecure=True)


def test_names_of_runners():
    assert [name for name in ("auto", "flow", "model", "acp:claude", "acp:a-b_c9") if runner_problem(name)] == []
    wrong = ("", "acp", "acp:", "acp:Big", "Model", "model ", "flow\n", "acp:a" + "b" * 40)
    assert [name for name in wrong if not runner_problem(name)] == []


def test_ids_of_models():
    for name in ("openai:gpt-6.1-terra", "together:zai-org/GLM-5.3", "ollama:qwen3:8b"):
        assert model_problem(name) == ""
    for name in ("gpt", "openai:", ":gpt", "Open:gpt", "openai:g p", "openai:" + "g" * 201):
        assert model_problem(name)


def test_the_models_that_are_built_in_have_a_price():
    from genai_prices import Usage, calc_price

    for name, provider in PROVIDERS.items():
        if provider.keyless:
            continue
        price = calc_price(Usage(input_tokens=1000, output_tokens=100), provider.model, provider_id=name)
        assert price.model.id == provider.model, "the model itself, and not one whose name begins alike"
        assert price.total_price > 0
