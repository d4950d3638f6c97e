"""Settings that only the console can check (SPEC 7.6, 9.7): keys and themes, before they are set and in doctor."""

from pathlib import Path

import pytest

from clawpy_console.appearance import check_setting
from engine.home import Home
from engine.model import Refusal
from engine.settings_store import SettingsStore
from tests.cli.calls import Clawpy
from tests.support.repository import Repository
from tests.support.settings import write_settings


def test_a_theme_that_does_not_exist_is_not_set(clawpy: Clawpy, shop: Repository, home: Home):
    result = clawpy("config", "set", "console.theme", "foo")
    assert result.code == 1
    assert "there is no theme 'foo'" in result.err
    assert "clawpy-dark, clawpy-high-contrast, clawpy-light" in result.err
    assert "there is no theme 'xxx" in clawpy("config", "set", "console.theme", "x" * 5000).err
    assert not home.config_file.exists()
    assert clawpy("config", "set", "console.theme", "clawpy-light").code == 0


def test_a_key_that_has_an_action_already_is_not_set(tmp_path: Path):
    with pytest.raises(Refusal, match="is already stack"):
        check_setting('keys."stack.approve"', "h", Home.locate(tmp_path))


def test_an_older_problem_does_not_prevent_a_change(home: Home):
    write_settings(home, '[keys]\n"stack.approve" = "h"\n')
    check_setting('keys."stack.undo"', "f9", home)
    check_setting("quietHoursStart", "3", home)
    check_setting("no key at all", "3", home)


@pytest.mark.parametrize("verb", [("config",), ("config", "get", "quietHoursStart"), ("status",)])
def test_a_file_that_has_become_invalid_is_named_beside_the_settings_that_still_apply(
    clawpy: Clawpy, shop: Repository, monkeypatch: pytest.MonkeyPatch, verb: tuple[str, ...]
):
    fault = "config.toml:1: column 6: not TOML"
    monkeypatch.setattr(SettingsStore, "fault", property(lambda store: fault, lambda store, value: None), raising=False)
    result = clawpy(*verb)
    assert result.code == 0
    assert result.out != ""
    assert result.err.startswith(f"clawpy: {fault}\n")
    machine = clawpy(*verb, "--json")
    assert (machine.err, machine.document["settingsFault"]) == ("", fault)


@pytest.mark.long
def test_doctor_names_each_problem_of_the_settings(clawpy: Clawpy, shop: Repository, home: Home):
    write_settings(
        home, '[console]\ntheme = "foo"\n[keys]\nnothing = "x"\n"stack.approve" = "h"\n[workspaces."/nope"]\n'
    )
    result = clawpy("doctor")
    assert result.code == 1
    problems = [line for line in result.out.splitlines() if line[:8] in ("! config", "✗ config")]
    assert len(problems) == 4
    for words in (
        "! config       console.theme: there is no theme 'foo'",
        f"✗ config       {home.config_file}: keys.nothing: no such action",
        f"✗ config       {home.config_file}: keys.stack.approve: 'h' is already stack.dismiss",
        '"/nope": the folder does not exist',
    ):
        assert any(words in line for line in problems), words
    assert clawpy("config", "unset", 'workspaces."/nope"').code == 0
    assert "/nope" not in clawpy("doctor").out
