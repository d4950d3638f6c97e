"""Doctor on homes and machines in all states; it changes nothing and always answers."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import keyring
import keyring.backends.fail
import keyring.backends.null
import pytest

from engine.api import doctor, model_checks
from engine.clock import FakeClock
from engine.config.agents import PROVIDERS
from engine.home import Home
from engine.key_stores import Keyring
from engine.keys import Keys
from engine.lock import HomeLock
from tests.api.stand_in import StandIn
from tests.conftest import Repository
from tests.support.keyrings import MemoryKeyring


@pytest.fixture(autouse=True)
def _still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asks no keyring of the machine."""
    monkeypatch.setattr(keyring, "get_keyring", MemoryKeyring)
    for name in [name for name in os.environ if name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)


def look(home: Home, *workspaces: str) -> dict[str, Any]:
    document = doctor.examine(home, workspaces)
    assert json.dumps(document)
    for check in document["checks"]:
        assert check["state"] in ("ok", "warn", "fail")
        assert check["state"] == "ok" or check["fix"], check
    return {check["name"]: check for check in document["checks"]} | {"document": document}


def test_a_home_that_is_not_there_yet_is_well_and_stays_away(home: Home) -> None:
    found = look(home)
    assert found["document"]["ok"]
    assert (found["database"]["state"], found["agents"]["state"], found["engine"]["state"]) == ("ok", "ok", "ok")
    assert found["document"]["paths"] == home.paths()
    assert home.root is not None
    assert not home.root.exists()


def test_a_home_in_use(engine: StandIn, home: Home, clock: FakeClock, repository: Repository) -> None:
    lock = HomeLock(home, clock=clock)
    lock.acquire()
    repository.commit("begin", {"README.md": "x"})
    found = look(home, str(repository.path))
    assert found["document"]["ok"]
    assert found["database"]["message"].startswith("intact, ")
    assert found["agents"]["message"] == "19 agents, no problems"
    assert "running with process id" in found["engine"]["message"]
    assert "no tool to run its tests" in found["workspace"]["message"]
    lock.release()


def test_a_damaged_database(home: Home) -> None:
    home.data.mkdir(parents=True)
    home.database.write_bytes(b"not a database, but long enough to be looked at" * 100)
    assert look(home)["database"]["state"] == "fail"


def test_a_slip_of_the_pen_in_the_environment(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAWPY_CROSSPOLL_ENABLED", "false")
    monkeypatch.setenv("CLAWPY_TOGETHER_API_KEY", "secret-value")
    found = look(home)
    assert found["environment"]["message"] == "CLAWPY_CROSSPOLL_ENABLED is not a setting and does nothing"
    assert "secret-value" not in json.dumps(found["document"])


def test_a_keyring_that_asks_and_never_returns(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(keyring, "get_keyring", lambda: release.wait(30))
    monkeypatch.setattr(Keyring.__init__, "__kwdefaults__", {"seconds": 0.05})
    assert "answer" in look(home)["keys"]["message"]
    release.set()


def test_keys_in_a_plain_file_are_told_as_long_as_they_lie_there(home: Home) -> None:
    Keys(home).set("openai", "sk-hush-hush", consent_file=True)
    found = look(home)
    assert "openai" in found["keys"]["message"]
    assert found["provider"]["message"].startswith("openai: ")
    assert found["provider"]["message"].endswith("key: file")
    assert "hush" not in json.dumps(found)


def test_who_would_carry_prose_out(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "clawpy key set openai" in look(home)["prose"]["fix"]
    monkeypatch.setenv("CLAWPY_OPENAI_API_KEY", "sk-hush-hush")
    found = look(home)["prose"]
    assert found["state"] == "ok"
    assert (
        f"koji-core, chronicle-hub, dream-weaver, research, garden on openai:{PROVIDERS['openai'].model}"
        in found["message"]
    )
    home.config.mkdir(parents=True)
    home.config_file.write_text("[channels.garden]\nmodel = 'ollama:qwen3'\n[providers.together]\n")
    found = look(home)
    assert "garden" in found["prose"]["fix"]
    assert any("together: no key" in one["message"] for one in found["document"]["checks"])


def test_only_when_asked_for_are_providers_asked(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def check_provider(provider: Any, key: str | None) -> str:
        asked.append(provider.host)
        return "api.openai.com does not accept the key (401)"

    monkeypatch.setattr(model_checks, "check_provider", check_provider)
    monkeypatch.setenv("CLAWPY_OPENAI_API_KEY", "sk-hush-hush")
    look(home)
    assert asked == []
    document = doctor.examine(home, [], online=True)
    assert asked == ["api.openai.com"]
    assert any("does not accept the key" in one["message"] for one in document["checks"])


@pytest.mark.parametrize(
    ("said", "state"), [("git version 2.37.9", "fail"), ("git version 2.38.0", "ok"), ("git version 3.1", "ok")]
)
def test_the_oldest_git(home: Home, monkeypatch: pytest.MonkeyPatch, said: str, state: str) -> None:
    monkeypatch.setattr(doctor, "git_version", lambda: said)
    assert look(home)["git"]["state"] == state


def test_workspaces_that_are_none(home: Home, repository: Repository, tmp_path: Path) -> None:
    assert "no commit yet" in look(home, str(repository.path))["workspace"]["message"]
    assert look(home, str(tmp_path))["workspace"]["state"] == "fail"
    assert look(home)["workspace"]["message"] == "no workspace"
