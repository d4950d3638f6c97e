"""Optional extras: without one, everything that needs it names the command that installs it."""

import sys
import tomllib
from pathlib import Path

import pytest

from engine.api import model_checks
from engine.api.notify.addresses import store_address
from engine.home import Home
from engine.installed import EXTRAS, find_missing_extras, make_extras_command, make_install_command
from engine.model import Refusal
from engine.storage.shared import SharedDatabase

ROOT = Path(__file__).parents[1]


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch):
    """As the base alone is installed: none of the extras' modules can be found."""
    for extra in EXTRAS.values():
        monkeypatch.setitem(sys.modules, extra.module, None)


def read_declared_extras() -> dict[str, list[str]]:
    """The requirements of each extra in `pyproject.toml`."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_each_extra_is_declared_by_the_package():
    declared = read_declared_extras()
    assert set(EXTRAS) == set(declared) - {"all", "local-model", "test"}
    assert declared["all"] == [f"clawpy-console[{','.join(sorted(EXTRAS))}]"]
    assert find_missing_extras() == ()


@pytest.mark.usefixtures("bare")
def test_a_verb_that_needs_a_missing_extra_names_it(home: Home, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CLAWPY_OPENAI_API_KEY", "sk-of-the-test-alone")
    listed = model_checks.list_keys(home)
    [openai] = [row for row in listed["keys"] if row["name"] == "openai"]
    assert not openai["usable"]
    assert make_extras_command("models") in openai["message"]
    with pytest.raises(Refusal, match="extra `models`") as tested:
        model_checks.check_key(home, "openai")
    assert tested.value.fix == make_extras_command("models")
    with pytest.raises(Refusal, match="extra `notify`"):
        store_address(home, "phone", "ntfys://ntfy.sh/x", in_file=False, write=lambda *_: None)
    with pytest.raises(Refusal, match="extra `postgres`"):
        SharedDatabase("postgresql://localhost/x").connect()


def test_the_command_installs_into_the_running_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "executable", "/my env/bin/python")
    monkeypatch.setattr("engine.installed.find_spec", lambda name: name == "pip" or None)
    assert make_install_command("a>1", "b") == "'/my env/bin/python' -m pip install 'a>1' b"
    monkeypatch.setattr("engine.installed.find_spec", lambda name: None)
    assert make_install_command("a>1", "b") == "uv pip install --python '/my env/bin/python' 'a>1' b"
