"""Doctor on homes and machines in all states (SPEC 9.8, 11.2): it changes nothing and always answers."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import keyring
import pytest

from engine.api import doctor
from engine.api.doctor import check_database, check_index_server, check_notifications, check_shared_database
from engine.api_keys import Keys
from engine.clock import FakeClock
from engine.config.external_sections import PROVIDERS, NotifySettings, SurfaceSettings
from engine.config.settings import MemorySettings, Settings
from engine.home import Home
from engine.lock import HomeLock
from engine.storage.database import create_or_check
from tests.support import read_table
from tests.support.keys import MemoryKeyring
from tests.support.repository import Repository
from tests.support.settings import write_settings

TABLE = read_table(__file__)


@pytest.fixture(autouse=True)
def _without_keys_and_variables_of_this_machine(monkeypatch: pytest.MonkeyPatch):
    """Doctor names every variable of Clawpy that it does not know, also those that benchmarks are told by."""
    monkeypatch.setattr(keyring, "get_keyring", MemoryKeyring)
    for name in [name for name in os.environ if name.startswith("CLAWPY_") or name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)


def examine_document(home: Home, *workspaces: str) -> dict[str, Any]:
    """The document of doctor, in which each check that is not ok says how to fix it."""
    document = doctor.examine(home, workspaces)
    for check in document["checks"]:
        assert check["state"] in ("ok", "warn", "fail")
        assert check["state"] == "ok" or check["fix"], check
    return json.loads(json.dumps(document))


def examine_home(home: Home, *workspaces: str) -> dict[str, Any]:
    """The checks of doctor by name."""
    return {check["name"]: check for check in examine_document(home, *workspaces)["checks"]}


def create_database(home: Home, *statements: str):
    """Create the database of a home, and execute these statements."""
    home.data.mkdir(parents=True)
    create_or_check(home.database)
    with closing(sqlite3.connect(home.database)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def test_a_home_that_does_not_exist_is_fine_and_is_not_created(home: Home):
    document = examine_document(home)
    assert document["ok"]
    states = {check["name"]: check["state"] for check in document["checks"]}
    assert (states["database"], states["agents"], states["engine"]) == ("ok", "ok", "ok")
    assert document["paths"] == home.list_paths()
    assert not home.root.exists()


@pytest.mark.usefixtures("engine")
def test_a_home_in_use_is_described(home: Home, repository: Repository):
    repository.commit("begin", {"README.md": "x"})
    checks = examine_home(home, str(repository.path))
    assert "fail" not in [check["state"] for check in checks.values()]
    assert checks["database"]["message"].startswith("intact, ")
    assert checks["agents"]["message"] == "19 agents, no problems"
    assert "running with process id" in checks["engine"]["message"]
    assert "no tool to run its tests" in checks["workspace"]["message"]


def test_a_misspelt_variable_is_named_and_a_key_is_not_shown(home: Home, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CLAWPY_CROSSPOLL_ENABLED", "false")
    monkeypatch.setenv("CLAWPY_TOGETHER_API_KEY", "secret-value")
    checks = examine_home(home)
    assert checks["environment"]["message"] == "CLAWPY_CROSSPOLL_ENABLED is not a setting and does nothing"
    assert "secret-value" not in json.dumps(examine_document(home))


def test_keys_in_a_plain_file_are_named_and_not_shown(home: Home):
    Keys(home).set("openai", "sk-hush-hush", in_file=True)
    checks = examine_home(home)
    assert "openai" in checks["keys"]["message"]
    assert checks["provider"]["message"].startswith("openai: ")
    assert checks["provider"]["message"].endswith("key: file")
    assert "hush" not in json.dumps(checks)


def test_the_models_that_would_answer_text_prompts_are_named(home: Home, monkeypatch: pytest.MonkeyPatch):
    assert "clawpy key set openai" in examine_home(home)["prose"]["fix"]
    monkeypatch.setenv("CLAWPY_OPENAI_API_KEY", "sk-hush-hush")
    check = examine_home(home)["prose"]
    assert check["state"] == "ok"
    channels = "koji-core, chronicle-hub, dream-weaver, research, garden"
    assert f"{channels} on openai:{PROVIDERS['openai'].model}" in check["message"]
    write_settings(home, "[channels.garden]\nmodel = 'ollama:qwen3'\n[providers.together]\n")
    assert "garden" in examine_home(home)["prose"]["fix"]
    assert any("together: no key" in check["message"] for check in examine_document(home)["checks"])


@pytest.mark.parametrize("config, name, words", TABLE["findings"])
def test_what_the_settings_lack_is_named(home: Home, config: str, name: str, words: str):
    write_settings(home, config)
    assert examine_home(home)[name]["message"] == words


def test_a_key_that_was_exported_after_the_engine_began_is_named(
    home: Home, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    lock = HomeLock(home, clock=clock, key_variables=())
    lock.acquire()
    monkeypatch.setenv("CLAWPY_OPENAI_API_KEY", "sk-hush-hush")
    document = json.dumps(examine_document(home))
    assert "CLAWPY_OPENAI_API_KEY was exported after the engine began" in document
    assert "hush" not in document
    lock.release()


@pytest.mark.parametrize("version, state", TABLE["git_versions"])
def test_a_git_older_than_2_38_fails(home: Home, monkeypatch: pytest.MonkeyPatch, version: str, state: str):
    monkeypatch.setattr(doctor, "read_git_version", lambda: version)
    assert examine_home(home)["git"]["state"] == state


def test_a_folder_that_is_no_usable_workspace_is_named(home: Home, repository: Repository, tmp_path: Path):
    assert "no commit yet" in examine_home(home, str(repository.path))["workspace"]["message"]
    assert examine_home(home, str(tmp_path))["workspace"]["state"] == "fail"
    assert examine_home(home)["workspace"]["message"] == "no workspace"


@pytest.mark.usefixtures("engine")
def test_a_bad_file_of_an_agent_is_named(home: Home):
    (home.agents / "coo" / "heartbeat.md").write_text("- [ ] every 2h: look\n- [ ] every day 25:00: report\n")
    check = examine_home(home)["agents"]
    assert check["state"] == "warn"
    assert "agents/coo/heartbeat.md:2: the time is not understood; write `every day" in check["message"]


# The database


def test_a_damaged_database_is_to_be_moved_away(home: Home):
    home.data.mkdir(parents=True)
    home.database.write_bytes(b"no database" * 1_000)
    check = check_database(home.database)
    assert (check.state, check.message) == ("fail", f"{home.database} cannot be read: file is not a database")
    assert check.fix.startswith("move clawpy.db away to start afresh, but keep it")


def test_a_database_that_cannot_be_read_now_is_not_to_be_moved_away(home: Home, monkeypatch: pytest.MonkeyPatch):
    create_database(home)
    monkeypatch.setattr(doctor, "read_rows", Mock(side_effect=sqlite3.OperationalError("database is locked")))
    assert check_database(home.database).fix.startswith("end the program that writes to it")


@pytest.mark.parametrize("model, state", [("gpt-new", "ok"), ("gpt-old", "warn")])
def test_only_the_present_twin_model_answers_for_its_last_answer(home: Home, model: str, state: str):
    write_settings(home, f'twinModelEnabled = true\ntwinModelId = "openai:{model}"\n')
    create_database(
        home,
        "INSERT INTO memory_events (at, kind, subject, workspace, payload)"
        """ VALUES ('2026', 'TwinAnswered', 'openai:gpt-old', '', '{"reason": "it was no JSON"}')""",
    )
    assert examine_home(home)["twin"]["state"] == state


# Beyond this machine. A shared database that answers: `tests/hierarchy/test_postgres.py`


def test_servers_beyond_this_machine_are_asked_only_online_and_their_passwords_are_not_shown(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("CLAWPY_SHARED_DATABASE_URL", "postgresql://me:hunter2@127.0.0.1:9/clawpy")
    monkeypatch.setenv("CLAWPY_CHROMA_URL", "http://me:hunter2@chroma.example")
    with_index = Settings(memory=MemorySettings(chroma_url="http://127.0.0.1:8000"))
    for online, state in ((False, "ok"), (True, "warn")):
        [database] = check_shared_database(online=online)
        [index] = check_index_server(with_index, online=online)
        assert (database.state, index.state) == (state, "warn")  # a password has no place in the index's address
        assert "hunter2" not in database.message + index.message
    assert "port 9 failed: Connection refused" in database.message
    assert "\n" not in database.message


def test_addresses_and_undelivered_notifications_are_listed(home: Home, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CLAWPY_NOTIFY_DISCORD_URL", "discord://4242/hunter2hunter2")
    create_database(
        home,
        "INSERT INTO notifications (entry_id, surface, kind, subject, urgent, is_collected, state, tries, reason,"
        " created_at, due_at, changed_at)"
        " VALUES (1, 'phone', 'paused', '', 1, 0, 'given_up', 8, 'cannot be reached', '2026', '2026', '2026')",
    )
    settings = Settings(
        notify=NotifySettings(phone=SurfaceSettings(url="ntfy://topic"), gateway="https://laptop.example")
    )
    checks = [(check.state, check.message) for check in check_notifications(home, settings, Keys(home))]
    assert checks == [
        ("ok", "phone: ntfy, from the settings"),
        ("ok", "discord: discord, from the environment"),
        ("warn", "1 not delivered to the phone: cannot be reached"),
        ("warn", "buttons call https://laptop.example, and the gateway does not answer to that name"),
    ]
