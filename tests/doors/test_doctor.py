"""Doctor on homes and machines in all states; it changes nothing and always answers."""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engine.clock import FakeClock
from engine.doors import doctor
from engine.home import Home
from engine.lock import HomeLock
from tests.conftest import Repository
from tests.doors.stand_in import StandIn


@pytest.fixture(autouse=True)
def _still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asks no keyring of the machine."""
    monkeypatch.setattr(doctor, "_keyring_backend", lambda: "keyring.backends.SecretService.Keyring")


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
    assert found["database"]["message"].startswith("whole, ")
    assert found["agents"]["message"] == "19 agents, all sound"
    assert "running with process id" in found["engine"]["message"]
    assert "no tool to run its tests" in found["workspace"]["message"]
    lock.release()


def test_a_damaged_database(home: Home) -> None:
    home.data.mkdir(parents=True)
    home.database.write_bytes(b"not a database, but long enough to be looked at" * 100)
    assert look(home)["database"]["state"] == "fail"


def test_a_newer_database(home: Home) -> None:
    home.data.mkdir(parents=True)
    with closing(sqlite3.connect(home.database)) as connection, connection:
        connection.execute("CREATE TABLE alembic_version (version_num TEXT)")
        connection.execute("INSERT INTO alembic_version VALUES ('9999')")
    found = look(home)["database"]
    assert (found["state"], "9999 is newer" in found["message"]) == ("fail", True)


def test_a_note_of_a_dead_engine(home: Home) -> None:
    home.data.mkdir(parents=True)
    (home.data / "engine.json").write_text('{"pid": 4194000, "since": "2026-01-05", "address": "/x"}')
    assert "ended without saying so" in look(home)["engine"]["message"]


def test_a_broken_agent_is_a_warning(engine: StandIn, home: Home) -> None:
    (home.agents / "dreamer" / "comms.json").unlink()
    found = look(home)
    assert found["agents"]["message"] == "dreamer: comms.json: is missing"
    assert found["document"]["ok"]


def test_a_slip_of_the_pen_in_the_environment(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAWPY_CROSSPOLL_ENABLED", "false")
    monkeypatch.setenv("CLAWPY_TOGETHER_API_KEY", "secret-value")
    found = look(home)
    assert found["environment"]["message"] == "CLAWPY_CROSSPOLL_ENABLED is no setting and does nothing"
    assert "secret-value" not in json.dumps(found["document"])


def test_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert look(Home.locate(tmp_path / "file"))["home"]["state"] == "fail"


@pytest.mark.parametrize(
    ("backend", "state"),
    [("keyring.backends.fail.Keyring", "warn"), ("keyring.backends.null.Keyring", "warn"), ("keyring.mine", "ok")],
)
def test_keyrings(home: Home, monkeypatch: pytest.MonkeyPatch, backend: str, state: str) -> None:
    monkeypatch.setattr(doctor, "_keyring_backend", lambda: backend)
    assert look(home)["keys"]["state"] == state


def test_a_keyring_that_asks_and_never_returns(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(doctor, "KEYRING_SECONDS", 0.05)
    monkeypatch.setattr(doctor, "_keyring_backend", lambda: str(release.wait(30)))
    assert "did not answer" in look(home)["keys"]["message"]
    release.set()


@pytest.mark.parametrize(
    ("said", "state"), [("git version 2.37.9", "fail"), ("git version 2.38.0", "ok"), ("git version 3.1", "ok")]
)
def test_the_oldest_git(home: Home, monkeypatch: pytest.MonkeyPatch, said: str, state: str) -> None:
    monkeypatch.setattr(doctor.Git, "text", lambda self, *arguments, **options: said)
    assert look(home)["git"]["state"] == state


def test_workspaces_that_are_none(home: Home, repository: Repository, tmp_path: Path) -> None:
    assert "no commit yet" in look(home, str(repository.path))["workspace"]["message"]
    assert look(home, str(tmp_path))["workspace"]["state"] == "fail"
    assert look(home)["workspace"]["message"] == "no workspace"
