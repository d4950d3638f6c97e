"""What `doctor` says of the server of the index, of what machines share, and of notifications."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from engine.api.network_checks import index_server_checks, notification_checks, shared_database_checks
from engine.config import MemorySettings, Settings
from engine.config.gateway import GatewaySettings
from engine.config.notify import NotifySettings, SurfaceSettings
from engine.home import Home
from engine.keys import Keys
from engine.storage import schema
from tests.api.notify.notification_server import NotificationServer


def test_the_server_of_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLAWPY_CHROMA_URL", raising=False)
    assert index_server_checks(Settings(), online=True) == []
    named = Settings(memory=MemorySettings(chroma_url="http://127.0.0.1:8000"))
    [one] = index_server_checks(named, online=False)
    assert (one.state, one.message) == ("ok", "the index is on 127.0.0.1:8000; `clawpy doctor --online` checks it")
    monkeypatch.setenv("CLAWPY_CHROMA_URL", "http://me:hunter2@chroma.example")
    [one] = index_server_checks(named, online=True)
    assert one.state == "warn"
    assert "hunter2" not in one.message
    with NotificationServer() as silent:
        monkeypatch.setenv("CLAWPY_CHROMA_URL", f"http://127.0.0.1:{silent.port}")
    [one] = index_server_checks(named, online=True)
    assert one.state == "warn"
    assert "it cannot be reached: [Errno 111] Connection refused" in one.message


def test_the_database_that_machines_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that answers: `tests/hierarchy/test_postgres.py`."""
    monkeypatch.delenv("CLAWPY_SHARED_DATABASE_URL", raising=False)
    assert shared_database_checks(online=True) == []
    monkeypatch.setenv("CLAWPY_SHARED_DATABASE_URL", "postgresql://me:hunter2@127.0.0.1:9/clawpy")
    [one] = shared_database_checks(online=False)
    assert one.state == "ok"
    assert "doctor --online" in one.message
    [one] = shared_database_checks(online=True)
    assert one.state == "warn"
    assert one.message.startswith("the shared database cannot be reached: ")
    assert "port 9 failed: Connection refused" in one.message
    assert "\n" not in one.message
    assert "hunter2" not in one.message
    monkeypatch.setenv("CLAWPY_SHARED_DATABASE_URL", "hunter2")
    [one] = shared_database_checks(online=True)
    assert (one.state, one.message) == ("warn", "CLAWPY_SHARED_DATABASE_URL is not a database URL")


def test_where_notifications_go_and_what_did_not_arrive(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAWPY_NOTIFY_DISCORD_URL", "discord://4242/hunter2hunter2")
    home.data.mkdir(parents=True)
    schema.make_or_check(home.database)
    with closing(sqlite3.connect(home.database)) as connection:
        connection.execute(
            "INSERT INTO notifications (fact_id, surface, happening, subject, urgent, gathered, standing, tries, note,"
            " created_at, due_at, changed_at) VALUES (1, 'phone', 'paused', '', 1, 0, 'dead', 8, 'cannot be reached',"
            " '2026', '2026', '2026')"
        )
        connection.commit()
    settings = Settings(
        push_notifications_enabled=False,
        notify=NotifySettings(phone=SurfaceSettings(url="ntfy://topic"), gateway="https://laptop.example"),
    )
    found = [
        (notification.state, notification.message) for notification in notification_checks(home, settings, Keys(home))
    ]
    assert found == [
        ("ok", "phone: ntfy, from the settings; it is switched off"),
        ("ok", "discord: discord, from the environment; it is switched off"),
        ("warn", "1 not delivered to the phone: cannot be reached"),
        ("warn", "buttons call https://laptop.example, and the gateway does not answer to that name"),
    ]
    known = settings.model_copy(update={"gateway": GatewaySettings(hosts=("laptop.example",))})
    assert len(notification_checks(home, known, Keys(home))) == 3
