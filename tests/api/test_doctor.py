"""Doctor on homes and machines in all states (SPEC 9.8, 11.2): it changes nothing and always answers."""

import json
import os
import sqlite3
import threading
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import keyring
import keyring.backends.fail
import keyring.backends.null
import pytest

from engine.api import doctor, model_checks
from engine.api.doctor import check_database, check_index_server, check_notifications, check_shared_database
from engine.api.offline import read_rows
from engine.api.operations import dispatch
from engine.api_keys import Keyring, Keys, find_key_variables
from engine.clock import FakeClock
from engine.config import GatewaySettings, MemorySettings, Settings
from engine.config.sections import PROVIDERS, NotifySettings, SurfaceSettings
from engine.events import TwinAnswered
from engine.home import Home
from engine.lock import HomeLock
from engine.storage.database import create_or_check
from tests.api.notify.notification_server import NotificationServer
from tests.api.stand_in import StandIn
from tests.conftest import Repository
from tests.support.helpers import MemoryKeyring, write_settings


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


def test_a_home_that_does_not_exist_is_fine_and_is_not_created(home: Home):
    document = examine_document(home)
    assert document["ok"]
    states = {check["name"]: check["state"] for check in document["checks"]}
    assert (states["database"], states["agents"], states["engine"]) == ("ok", "ok", "ok")
    assert document["paths"] == home.paths()
    assert not home.root.exists()


def test_a_home_in_use_is_described(engine: StandIn, home: Home, clock: FakeClock, repository: Repository):
    lock = HomeLock(home, clock=clock)
    lock.acquire()
    repository.commit("begin", {"README.md": "x"})
    checks = examine_home(home, str(repository.path))
    assert "fail" not in [check["state"] for check in checks.values()]
    assert checks["database"]["message"].startswith("intact, ")
    assert checks["agents"]["message"] == "19 agents, no problems"
    assert "running with process id" in checks["engine"]["message"]
    assert "no tool to run its tests" in checks["workspace"]["message"]
    lock.release()


@pytest.mark.parametrize(
    "file, content, problem",
    [
        (
            "heartbeat.md",
            b"- [ ] every 2h: look\n- [ ] every day 25:00: report\n",
            "agents/coo/heartbeat.md:2: the time is not understood; write `every day",
        ),
        ("soul.md", b"\xff", "agents/coo/soul.md cannot"),
    ],
)
def test_a_bad_file_of_an_agent_is_named_by_doctor_and_with_the_agent(
    engine: StandIn, home: Home, file: str, content: bytes, problem: str
):
    (home.agents / "coo" / file).write_bytes(content)
    [listed] = dispatch(engine, "agents", {})["problems"]
    [shown] = dispatch(engine, "agents", {"action": "show", "id": "coo"})["problems"]
    check = examine_home(home)["agents"]
    assert listed.startswith(problem)
    assert shown.startswith(problem)
    assert (check["state"], problem in check["message"]) == ("warn", True)
    assert dispatch(engine, "agents", {"action": "show", "id": "cto"})["problems"] == []


def test_a_file_of_facts_that_cannot_be_read_is_named(home: Home):
    (group := home.data / "para" / "areas" / "general").mkdir(parents=True)
    (group / "items.json").write_text("[{,")
    check = examine_home(home)["facts"]
    assert check["state"] == "warn"
    assert check["message"].startswith("para/areas/general/items.json cannot be read: ")


def test_a_channel_whose_coding_agent_is_not_in_the_settings_is_a_warning(home: Home):
    write_settings(home, '[channels.koji-core]\nagent = "backend_builder"\nrunner = "acp:ghost"\n')
    checks = examine_home(home)
    assert checks["coding agent"]["message"] == "koji-core names acp:ghost, which is not in the settings"
    assert "ghost" not in checks["prose"]["message"]


def test_what_the_twin_model_answered_last_is_said(engine: StandIn, home: Home):
    write_settings(home, "twinModelEnabled = true\ntwinModelId = 'ollama:small'\n")
    assert examine_home(home)["twin"]["state"] == "ok"
    engine.database.record(TwinAnswered(subject="ollama:small", usable=False, reason="Invalid JSON"))
    check = examine_home(home)["twin"]
    assert (check["state"], check["message"]) == ("warn", "ollama:small gave no usable answer: Invalid JSON")
    engine.database.record(TwinAnswered(subject="ollama:small", usable=True, reason=""))
    assert examine_home(home)["twin"]["state"] == "ok"


def test_a_misspelt_variable_is_named_and_a_key_is_not_shown(home: Home, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CLAWPY_CROSSPOLL_ENABLED", "false")
    monkeypatch.setenv("CLAWPY_TOGETHER_API_KEY", "secret-value")
    checks = examine_home(home)
    assert checks["environment"]["message"] == "CLAWPY_CROSSPOLL_ENABLED is not a setting and does nothing"
    assert "secret-value" not in json.dumps(examine_document(home))


def test_a_keyring_that_never_answers_is_named(home: Home, monkeypatch: pytest.MonkeyPatch):
    release = threading.Event()
    monkeypatch.setattr(keyring, "get_keyring", lambda: release.wait(30))
    monkeypatch.setattr(Keyring.__init__, "__kwdefaults__", {"seconds": 0.05})
    assert "answer" in examine_home(home)["keys"]["message"]
    release.set()


def test_keys_in_a_plain_file_are_named_and_not_shown(home: Home):
    Keys(home).set("openai", "sk-hush-hush", consent_file=True)
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


def test_a_provider_with_a_model_that_lacks_only_its_key_is_named(home: Home):
    write_settings(home, "[providers.box]\nkind = 'openai'\nbaseUrl = 'https://box.test/v1'\nmodel = 'm'\n")
    check = examine_home(home)["prose"]
    assert (check["message"], check["fix"]) == ("box has no key; flows need none", "`clawpy key set box`")


def test_a_key_that_was_exported_after_the_engine_began_serves_nothing(
    home: Home, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CLAWPY_TOGETHER_API_KEY", "sk-known")
    lock = HomeLock(home, clock=clock, key_variables=find_key_variables(os.environ))
    lock.acquire()
    monkeypatch.setenv("CLAWPY_OPENAI_API_KEY", "sk-hush-hush")
    document = examine_document(home)
    assert "CLAWPY_OPENAI_API_KEY was exported after the engine began" in json.dumps(document)
    assert "openai:" not in json.dumps(document["checks"])
    keys = {entry["name"]: entry for entry in model_checks.list_keys(home)["keys"]}
    assert "the running engine began without it" in keys["openai"]["message"]
    assert keys["together"]["message"] == ""
    lock.release()
    assert "openai:" in json.dumps(examine_document(home)["checks"])


def test_providers_are_asked_only_online(home: Home, monkeypatch: pytest.MonkeyPatch):
    hosts = []

    def check_provider(provider: Any, key: str | None) -> str:
        hosts.append(provider.host)
        return "api.openai.com does not accept the key (401)"

    monkeypatch.setattr(model_checks, "check_provider", check_provider)
    monkeypatch.setenv("CLAWPY_OPENAI_API_KEY", "sk-hush-hush")
    examine_home(home)
    assert hosts == []
    document = doctor.examine(home, [], online=True)
    assert hosts == ["api.openai.com"]
    assert any("does not accept the key" in check["message"] for check in document["checks"])


@pytest.mark.parametrize(
    "version, state", [("git version 2.37.9", "fail"), ("git version 2.38.0", "ok"), ("git version 3.1", "ok")]
)
def test_a_git_older_than_2_38_fails(home: Home, monkeypatch: pytest.MonkeyPatch, version: str, state: str):
    monkeypatch.setattr(doctor, "read_git_version", lambda: version)
    assert examine_home(home)["git"]["state"] == state


def test_a_folder_that_is_no_usable_workspace_is_named(home: Home, repository: Repository, tmp_path: Path):
    assert "no commit yet" in examine_home(home, str(repository.path))["workspace"]["message"]
    assert examine_home(home, str(tmp_path))["workspace"]["state"] == "fail"
    assert examine_home(home)["workspace"]["message"] == "no workspace"


# Beyond this machine


def make_sqlite_error(message: str, code: int) -> sqlite3.Error:
    """An error as SQLite raises it."""
    error = sqlite3.OperationalError(message)
    error.sqlite_errorcode = code
    return error


WITH_SERVER = Settings(memory=MemorySettings(chroma_url="http://127.0.0.1:8000"))


def test_without_a_server_of_the_index_none_is_examined():
    assert check_index_server(Settings(), online=True) == []


def test_the_server_of_the_index_is_asked_only_online():
    [check] = check_index_server(WITH_SERVER, online=False)
    assert (check.state, check.message) == ("ok", "the index is on 127.0.0.1:8000; `clawpy doctor --online` checks it")


def test_a_server_of_the_index_that_does_not_answer_is_a_warning(monkeypatch: pytest.MonkeyPatch):
    with NotificationServer() as ended:
        monkeypatch.setenv("CLAWPY_CHROMA_URL", f"http://127.0.0.1:{ended.port}")
    [check] = check_index_server(WITH_SERVER, online=True)
    assert check.state == "warn"
    assert "it cannot be reached: [Errno 111] Connection refused" in check.message


def test_a_password_in_the_address_of_the_index_is_not_shown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CLAWPY_CHROMA_URL", "http://me:hunter2@chroma.example")
    [check] = check_index_server(WITH_SERVER, online=True)
    assert (check.state, "hunter2" in check.message) == ("warn", False)


@pytest.mark.parametrize(
    "error, fix",
    [
        (make_sqlite_error("disk I/O error", sqlite3.SQLITE_IOERR_WRITE), "free some space"),  # also on a full disk
        (make_sqlite_error("database or disk is full", sqlite3.SQLITE_FULL), "free some space"),
        (make_sqlite_error("unable to open database file", sqlite3.SQLITE_CANTOPEN), "make the file and its folder"),
        (make_sqlite_error("attempt to write a readonly database", sqlite3.SQLITE_READONLY_DIRECTORY), "make the file"),
        (make_sqlite_error("unsupported file format", sqlite3.SQLITE_ERROR), f"SQLite {sqlite3.sqlite_version} cannot"),
        (sqlite3.DatabaseError("file is not a database"), "move clawpy.db away to start afresh, but keep it"),
    ],
    ids=str,
)
def test_only_a_damaged_database_is_to_be_moved_away(
    home: Home, monkeypatch: pytest.MonkeyPatch, error: sqlite3.Error, fix: str
):
    home.data.mkdir(parents=True)
    create_or_check(home.database)

    def fail(path: Path, query: str):
        raise error

    monkeypatch.setattr(doctor, "read_rows", fail)
    check = check_database(home.database)
    assert (check.state, check.message) == ("fail", f"{home.database} cannot be read: {error}")
    assert check.fix.startswith(fix)


def test_a_database_that_another_program_writes_to_is_waited_for(home: Home, monkeypatch: pytest.MonkeyPatch):
    home.data.mkdir(parents=True)
    create_or_check(home.database)
    monkeypatch.setattr(doctor, "read_rows", partial(read_rows, seconds=0))
    with closing(sqlite3.connect(home.database, isolation_level=None)) as writer:
        writer.execute("PRAGMA locking_mode=EXCLUSIVE")
        writer.execute("BEGIN EXCLUSIVE")
        check = check_database(home.database)
    assert (check.state, check.message) == ("fail", f"{home.database} cannot be read: database is locked")
    assert check.fix.startswith("another program is writing to it")
    assert check_database(home.database).state == "ok"


# A shared database that answers: `tests/hierarchy/test_postgres.py`

UNREACHABLE = "postgresql://me:hunter2@127.0.0.1:9/clawpy"


def test_without_a_shared_database_none_is_examined():
    assert check_shared_database(online=True) == []


def test_the_shared_database_is_asked_only_online(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CLAWPY_SHARED_DATABASE_URL", UNREACHABLE)
    [check] = check_shared_database(online=False)
    assert (check.state, "doctor --online" in check.message) == ("ok", True)


def test_a_shared_database_that_does_not_answer_is_a_warning_in_one_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CLAWPY_SHARED_DATABASE_URL", UNREACHABLE)
    [check] = check_shared_database(online=True)
    assert check.state == "warn"
    assert check.message.startswith("the shared database cannot be reached: ")
    assert "port 9 failed: Connection refused" in check.message
    assert "\n" not in check.message
    assert "hunter2" not in check.message


def test_an_address_of_a_shared_database_that_is_none_is_not_repeated(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CLAWPY_SHARED_DATABASE_URL", "hunter2")
    [check] = check_shared_database(online=True)
    assert (check.state, check.message) == ("warn", "CLAWPY_SHARED_DATABASE_URL is not a database URL")


def test_addresses_and_undelivered_notifications_are_listed(home: Home, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CLAWPY_NOTIFY_DISCORD_URL", "discord://4242/hunter2hunter2")
    home.data.mkdir(parents=True)
    create_or_check(home.database)
    with closing(sqlite3.connect(home.database)) as connection:
        connection.executemany(
            "INSERT INTO notifications (fact_id, surface, happening, subject, urgent, gathered, standing, tries, note,"
            " created_at, due_at, changed_at) VALUES (?, 'phone', 'paused', '', 1, 0, 'dead', 8, ?,"
            " '2026', '2026', '2026')",
            [(1, "the server answers 401"), (2, "cannot be reached")],
        )
        connection.commit()
    settings = Settings(
        push_notifications_enabled=False,
        notify=NotifySettings(phone=SurfaceSettings(url="ntfy://topic"), gateway="https://laptop.example"),
    )
    checks = [
        (notification.state, notification.message) for notification in check_notifications(home, settings, Keys(home))
    ]
    assert checks == [
        ("ok", "phone: ntfy, from the settings; it is switched off"),
        ("ok", "discord: discord, from the environment; it is switched off"),
        ("warn", "2 not delivered to the phone: cannot be reached"),
        ("warn", "buttons call https://laptop.example, and the gateway does not answer to that name"),
    ]
    with_host = settings.model_copy(update={"gateway": GatewaySettings(hosts=("laptop.example",))})
    assert len(check_notifications(home, with_host, Keys(home))) == 3
