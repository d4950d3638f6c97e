"""Settings while the engine runs (SPEC 7.6, 11.2): edits keep the format of the file, edits of other programs are read,
and invalid ones change nothing."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from engine.clock import FakeClock
from engine.config.settings_file import format_key
from engine.model import Refusal
from engine.settings_store import SettingsStore
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from tests.support.checks import refused

SECOND = timedelta(seconds=1)
WRITTEN = """# how I like it
quietHoursStart = 22   # early bird

[console]
theme = "paper"  # bright room
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config" / "config.toml"


@pytest.fixture
def store(file: Path, clock: FakeClock, database: Database) -> SettingsStore:
    store = open_store(file, clock)
    store.attach_database(database)
    return store


def open_store(file: Path, clock: FakeClock, **environment: str) -> SettingsStore:
    return SettingsStore(file, clock=clock, environment=environment)


def save(file: Path, text: str):
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)


def read_events(database: Database) -> list[tuple[str, str, str]]:
    """(kind, subject, value) of each entry of the ledger, oldest first."""
    database.write(lambda tx: None)  # what was submitted before is done now
    entries = reversed(Ledger(database).read_newest())
    return [(entry.kind, entry.subject, entry.payload.get("value", "")) for entry in entries]


def list_keys(settings: Mapping[str, Any], *section: str) -> Iterator[str]:
    for name, value in settings.items():
        yield format_key((*section, name))
        yield from list_keys(value, *section, name) if isinstance(value, dict) else ()


def find_refusal(store: SettingsStore, key: str, value: object) -> Refusal | None:
    try:
        store.set(key, value)
    except Refusal as refusal:
        return refusal
    return None


# Edits of ours


def test_set_writes_the_file_and_records_the_change(store: SettingsStore, file: Path, database: Database):
    store.set("crossPollEnabled", "false")
    assert not store.current.cross_poll_enabled
    assert file.stat().st_mode & 0o777 == 0o600
    assert read_events(database) == [("SettingChanged", "crossPollEnabled", "False")]


def test_set_keeps_comments_and_order(file: Path, clock: FakeClock):
    save(file, WRITTEN)
    store = open_store(file, clock)
    store.set("quietHoursStart", 21)
    store.set("silenceThresholdMs", "60000")
    store.set("console.bell", False)
    store.set('workspaces."/srv/my shop".autonomy', "act")
    text = file.read_text()
    assert "# how I like it\nquietHoursStart = 21   # early bird\n" in text
    assert 'theme = "paper"  # bright room\nbell = false\n' in text
    assert '[workspaces."/srv/my shop"]\nautonomy = "act"\n' in text
    again = open_store(file, clock)
    assert again.current == store.current
    assert again.current.silence_threshold_ms == 60_000


def test_unset_restores_the_default(file: Path, clock: FakeClock):
    save(file, WRITTEN)
    store = open_store(file, clock)
    assert store.unset("quietHoursStart") == 23
    assert "# how I like it" in file.read_text()
    refused("not_set", lambda: store.unset("quietHoursStart"))


def test_an_edit_that_a_variable_overrides_is_refused(file: Path, clock: FakeClock):
    store = open_store(file, clock, CLAWPY_QUIET_HOURS_START="20")
    assert store.get("quietHoursStart") == 20
    assert store.find_origin("quietHoursStart") == "CLAWPY_QUIET_HOURS_START"
    refused("overridden", lambda: store.set("quietHoursStart", "21"))
    assert not file.exists()


# Files that other programs write


def test_an_edit_by_another_program_counts_within_a_second(
    store: SettingsStore, file: Path, clock: FakeClock, database: Database
):
    save(file, "quietHoursStart = 20\n")
    assert store.current.quiet_hours_start == 23  # looked at less than a second ago
    clock.advance(SECOND)
    assert store.current.quiet_hours_start == 20
    assert read_events(database) == [("SettingChanged", "quietHoursStart", "20")]
    file.unlink()
    clock.advance(SECOND)
    assert store.current.quiet_hours_start == 20, "an editor may be writing it again"
    clock.advance(SECOND)
    assert store.current.quiet_hours_start == 23


def test_an_invalid_edit_keeps_the_last_valid_settings_and_is_reported_once(
    store: SettingsStore, file: Path, clock: FakeClock, database: Database
):
    store.set("quietHoursStart", "20")
    save(file, "quietHoursStart = 99\n")
    for _ in range(3):
        clock.advance(SECOND)
        assert store.current.quiet_hours_start == 20
    assert [kind for kind, _, _ in read_events(database)] == ["SettingChanged", "FaultReported"]
    assert "config.toml:1: quietHoursStart: 99" in store.fault
    with pytest.raises(Refusal, match="99"):
        store.set("quietHoursEnd", "7")
    save(file, "quietHoursStart = 9\n")
    clock.advance(SECOND)
    assert store.current.quiet_hours_start == 9
    assert store.fault == ""


def test_a_file_that_is_too_large_refuses_the_start(file: Path, clock: FakeClock):
    save(file, "#" * 262_145)
    assert "larger than 262144" in refused("bad_config", lambda: open_store(file, clock)).message


def test_windows_line_ends_and_a_byte_order_mark_are_accepted(file: Path, clock: FakeClock):
    file.parent.mkdir()
    file.write_bytes(b"\xef\xbb\xbfquietHoursStart = 1\r\n[console]\r\nbell = false\r\n")
    store = open_store(file, clock)
    assert store.get("console.bell") is False


# Any key and value


ANY_VALUES = ["", " ", "x", "[1]", "[]", "{}", "-1", "nan", "1979-05-27", "9" * 400, "[" * 2000, "\0"]


@pytest.mark.parametrize(
    "value",
    ["\udcff", None, [None], *(pytest.param(value, marks=pytest.mark.long) for value in ANY_VALUES)],
    ids=lambda value: repr(value)[:12],
)
def test_each_setting_accepts_a_value_or_refuses_it_and_changes_nothing(file: Path, clock: FakeClock, value: object):
    store = open_store(file, clock)
    for key in [*list_keys(store.make_document()), 'workspaces."/srv".autonomy', "providers.own", "keys.nothing"]:
        before = file.read_bytes() if file.exists() else b""
        if (refusal := find_refusal(store, key, value)) is not None:
            assert refusal.code == "bad_config"
            assert refusal.message.startswith(key)
            assert refusal.fix.startswith("nothing was changed")
            assert before == (file.read_bytes() if file.exists() else b"")


def test_values_that_belong_together_are_set_at_once(store: SettingsStore, file: Path):
    """A provider has a kind and an address. Setting one of them is refused, and the refusal says how to set both."""
    with pytest.raises(Refusal) as caught:
        store.set("providers.box.kind", "openai")
    assert caught.value.message.startswith("providers.box.baseUrl: missing")
    assert "clawpy config set providers.box '{baseUrl = …, …}', or write it into" in caught.value.fix
    assert not file.exists()
    store.set("providers.box", '{kind = "openai", baseUrl = "http://127.0.0.1:8000/v1"}')
    assert store.current.providers["box"].base_url == "http://127.0.0.1:8000/v1"
