"""Settings from a text and the environment (SPEC 7.6): each mistake is reported with its place and what is accepted."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config.settings import Settings, WorkspaceAutonomy
from engine.config.settings_file import SETTING_VARIABLES, BadConfig, describe_accepted, parse_key, read_settings
from engine.home import Home
from engine.model import Refusal
from tests.support import read_table
from tests.support.settings import write_settings

TABLE = read_table(__file__)


def parse_settings(text: str, **environment: str) -> Settings:
    return read_settings(text, file="config.toml", environment=environment)


def find_problems(text: str, **environment: str) -> list[str]:
    """The problems of a text that is refused."""
    with pytest.raises(BadConfig) as caught:
        parse_settings(text, **environment)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("key, advice", TABLE["unknown_keys"].items())
def test_an_unknown_key_is_answered_with_what_was_probably_meant_or_where_all_are(key: str, advice: str):
    with pytest.raises(Refusal) as caught:
        parse_key(key)
    assert caught.value.fix == advice


@pytest.mark.parametrize("text, complaint", TABLE["mistakes"].items())
def test_a_mistake_is_answered_with_what_is_accepted(text: str, complaint: str):
    assert find_problems(text) == [f"config.toml:1: {complaint}"]


def test_reported_lines_are_right_after_values_of_several_lines():
    text = '[production]\nbranches = [\n  "main",\n]\n\n# a remark\nhosts = """x"""\n[console]\ntheme = 1\n'
    assert [complaint.split(": ")[:2] for complaint in find_problems(text)] == [
        ["config.toml:7", "production.hosts"],
        ["config.toml:9", "console.theme"],
    ]


def test_a_syntax_error_is_reported_with_line_and_column():
    [found] = find_problems("crossPollEnabled = true\nquietHoursStart = \n")
    assert found.startswith("config.toml:2: column 19: not TOML: Invalid value")
    [found] = find_problems('crossPollEnabled = true\n[production]\nbranches = ["main",\n\n')
    assert found.startswith("config.toml:3: the file ends too early: not TOML: Invalid value")


def test_the_environment_wins_over_the_file():
    parsed = parse_settings(
        "crossPollEnabled = true\n",
        CLAWPY_CROSS_POLL_ENABLED="off",
        CLAWPY_CONSOLE_THEME="clawpy-light",
        CLAWPY_SILENCE_THRESHOLD_MS="60000",
    )
    assert not parsed.cross_poll_enabled
    assert parsed.console.theme == "clawpy-light"
    assert parsed.silence_threshold_ms == 60_000


def test_a_bad_variable_is_named():
    assert find_problems("quietHoursEnd = 99", CLAWPY_QUIET_HOURS_START="late") == [
        "config.toml:1: quietHoursEnd: 99 is not accepted; expected a whole number from 0 to 23",
        'CLAWPY_QUIET_HOURS_START: quietHoursStart: "late" is not accepted; expected a whole number from 0 to 23',
    ]


def test_a_key_of_an_earlier_checkout_is_ignored():
    assert parse_settings("console.emoji = true") == Settings()


def test_every_variable_sets_a_setting():
    for path in SETTING_VARIABLES.values():
        assert parse_key(".".join(path)) == path
        assert describe_accepted(path)


@pytest.mark.parametrize("key", ["", "a b", "=", "crossPollEnabled = 1\nx", "a..b"])
def test_a_malformed_key_is_refused(key: str):
    with pytest.raises(Refusal) as caught:
        parse_key(key)
    assert caught.value.code in ("bad_key", "unknown_key")


VALUES = ("true", "3", "-1", "1.5", "nan", '"x"', "[1, 'a']", "{ a = 1 }", "2026-01-05", "[[1]]", "1e400", "0x10")


@pytest.mark.long
@settings(max_examples=300)
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
def test_any_text_gives_settings_or_problems_with_their_place(lines: list[str]):
    problems = None
    try:
        parse_settings("\n".join(lines))
    except BadConfig as error:
        problems = error.problems
    assert problems is None or problems
    assert all(problem.where.startswith("config.toml") and problem.message for problem in problems or ())


def test_a_workspace_is_found_by_its_resolved_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "disk/shop").mkdir(parents=True)
    (tmp_path / "work").symlink_to(tmp_path / "disk")
    monkeypatch.setenv("HOME", str(tmp_path))
    real = str((tmp_path / "disk/shop").resolve())
    for name in ("~/work/shop", str(tmp_path / "work/shop"), f"{real}/"):
        assert (
            parse_settings(f'[workspaces."{name}"]\nautonomy = "off"\n').get_workspace(real).autonomy
            is WorkspaceAutonomy.OFF
        )
    [found] = find_problems(f'[workspaces."~/work/shop"]\n[workspaces."{real}"]\n')
    assert "are the same folder" in found


@pytest.mark.parametrize(
    "text, problem",
    [
        ('[workspaces."~nobody-at-all/shop"]\n', "is not an absolute path"),
        *(
            (text, "config.toml: ")
            for text in ("a = " + "[" * 5_000, "a." * 2_000 + "b = 1", "[" + "a." * 2_000 + "b]")
        ),
        ("maxPendingCards = " + "9" * 5_000, "config.toml: "),
    ],
)
def test_a_file_that_names_no_workspace_or_that_python_cannot_parse_is_a_problem(
    text: str, problem: str, tmp_path: Path
):
    [found] = find_problems(text)
    assert problem in found
    home = Home.locate(tmp_path)
    write_settings(home, text)
    assert home.read_configured_workspaces() == []


@pytest.mark.parametrize("name", ["owner", "gateway"])
def test_a_channel_may_not_be_named_like_the_start_of_a_chain(name: str):
    with pytest.raises(ValueError, match="may not be called"):
        Settings.model_validate({"channels": {name: {"agent": "ceo"}}})
