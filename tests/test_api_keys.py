"""Keys (SPEC 11.1): where they are found and stored, what is refused, and that no text ever contains a key."""

import copy
import json
import pickle
import threading
import traceback
from datetime import UTC, datetime

import keyring.backends.chainer
import keyring.backends.fail
import keyring.backends.null
import pytest
from keyring.backend import KeyringBackend

from engine.api_keys import KEYRING_TIMEOUT_S, KeyFile, Keyring, Keys, NoKeyring, find_system_keyring
from engine.clock import FakeClock
from engine.home import Home
from engine.model import Refusal
from tests.support.checks import refused
from tests.support.keys import MemoryKeyring
from tests.support.programs import find_imported

SECRET = "sk-hush-hush-0123456789abcdef"
START = datetime(2026, 3, 2, 9, tzinfo=UTC)


class HangingKeyring(MemoryKeyring):
    """A locked keyring whose window nobody answers."""

    def __init__(self):
        super().__init__()
        self.answered = threading.Event()

    def get_password(self, service: str, username: str) -> str | None:
        self.asked += 1
        self.answered.wait(20)
        return super().get_password(service, username)

    set_password = None


class FailingKeyring(MemoryKeyring):
    """A keyring that fails, and says more than it should."""

    def get_password(self, service: str, username: str) -> str | None:
        raise RuntimeError(f"locked; the key was {SECRET}")

    def set_password(self, service: str, username: str, password: str):
        raise RuntimeError(f"locked; the key was {password}")


def find_keys(home: Home, backend: KeyringBackend | None = None, **environment: str) -> Keys:
    """The keys of a home with this keyring (None: the machine has none) and this environment."""

    def find() -> KeyringBackend:
        if backend is None:
            raise NoKeyring("this machine has no usable keyring")
        return backend

    return Keys(home, environment=environment, keyring=Keyring(find, seconds=0.1), clock=FakeClock(START))


# The sources of a key


def test_the_environment_comes_first_then_the_keyring_then_the_file(home: Home):
    backend = MemoryKeyring()
    KeyFile(home.config / "keys.json").set("openai", "sk-file")
    keys = find_keys(home, backend)
    assert keys.find_source("openai") == "file"
    backend.held["clawpy-console", "openai"] = "sk-keyring"
    keys.clear_cache()
    assert keys.find_source("openai") == "keyring"
    keys = find_keys(home, backend, CLAWPY_OPENAI_API_KEY=" sk-environment\n")
    key = keys.get("openai")
    assert (key.source, key.value) == ("environment", "sk-environment")


# Storing and deleting a key


def test_a_key_is_stored_in_one_place_only(home: Home):
    backend = MemoryKeyring()
    keys = find_keys(home, backend)
    keys.set("openai", "sk-1", in_file=True)
    keys.set("openai", "sk-2")
    assert (keys.find_source("openai"), keys.find_file_warning()) == ("keyring", "")
    keys.set("openai", "sk-3", in_file=True)
    assert backend.held == {}
    assert keys.find_source("openai") == "file"
    file = home.config / "keys.json"
    assert str(file) in keys.find_file_warning()
    keys.delete("openai")
    assert not file.exists()
    assert keys.find_file_warning() == ""


@pytest.mark.parametrize(
    "name, code", [("openai", "no_key"), ("together", "in_environment"), (SECRET, "bad_name")], ids=range(3)
)
def test_what_cannot_be_deleted_is_refused_without_its_value(home: Home, name: str, code: str):
    keys = find_keys(home, MemoryKeyring(), CLAWPY_TOGETHER_API_KEY=SECRET)
    assert "hush" not in str(refused(code, lambda: keys.delete(name)))


@pytest.mark.parametrize("value", ["", "  ", "sk hush", "sk-hush\nsk-hush", "sk-h\u00fcsh", "s" * 4001, "sk-\x1b[2J"])
def test_a_malformed_key_is_not_stored(home: Home, value: str):
    refusal = refused("bad_key", lambda: find_keys(home, MemoryKeyring()).set("openai", value))
    assert "hush" not in str(refusal)


# Keyrings that do not work


def test_a_keyring_that_hangs_blocks_nothing(home: Home):
    backend = HangingKeyring()
    keys = find_keys(home, backend)
    before = threading.active_count()
    try:
        assert keys.get("openai") is None
        assert keys.get("together") is None
        assert backend.asked == 1, "it is not asked again for another name"
        with pytest.raises(Refusal, match="CLAWPY_OPENAI_API_KEY"):
            keys.set("openai", SECRET)
        assert threading.active_count() < before + 5
    finally:
        backend.answered.set()


def test_a_keyring_that_drops_values_is_noticed(home: Home):
    with pytest.raises(Refusal, match="did not store it"):
        find_keys(home, keyring.backends.null.Keyring()).set("openai", SECRET)


def test_the_error_of_a_keyring_contains_no_secret(home: Home):
    keys = find_keys(home, FailingKeyring())
    assert keys.get("openai") is None
    with pytest.raises(Refusal) as caught:
        keys.set("openai", SECRET)
    assert "RuntimeError" in caught.value.message
    assert "hush" not in "".join(traceback.format_exception(caught.value))


def test_only_a_real_keyring_of_the_machine_is_used(monkeypatch: pytest.MonkeyPatch):
    good = MemoryKeyring()
    plain_file = type("PlaintextKeyring", (MemoryKeyring,), {"__module__": "keyrings.alt.file"})()

    class Chain:
        backends = (plain_file, keyring.backends.null.Keyring(), good)

    for chosen in (good, Chain()):
        monkeypatch.setattr(keyring, "get_keyring", lambda chosen=chosen: chosen)
        assert find_system_keyring() is good
    for chosen in (plain_file, keyring.backends.null.Keyring(), keyring.backends.fail.Keyring()):
        monkeypatch.setattr(keyring, "get_keyring", lambda chosen=chosen: chosen)
        with pytest.raises(NoKeyring, match="no usable keyring"):
            find_system_keyring()


# Files that must not be used


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o606, 0o660, 0o610])
def test_a_file_that_others_may_read_is_refused_with_the_command_to_run(home: Home, mode: int):
    keys = find_keys(home)
    keys.set("openai", SECRET, in_file=True)
    file = home.config / "keys.json"
    file.chmod(mode)
    for act in (lambda: keys.get("openai"), lambda: keys.set("together", "sk-1", in_file=True), keys.list_names):
        refusal = refused("loose_keys", act)
        assert f"chmod 600 '{file}'" in refusal.fix
    assert "others" in keys.find_file_warning()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1}', '{"a": null}', SECRET, "[" * 100_000, '"' + "x" * 70_000])
def test_a_damaged_key_file_is_refused_without_repeating_its_text(home: Home, text: str):
    home.config.mkdir(parents=True)
    file = home.config / "keys.json"
    file.write_text(text)
    file.chmod(0o600)
    refusal = refused("damaged_keys", lambda: find_keys(home).get("openai"))
    assert "hush" not in "".join(traceback.format_exception(refusal))
    assert file.read_text() == text


# No text contains a key


def test_no_text_of_a_key_contains_its_value(home: Home):
    keys = find_keys(home, MemoryKeyring())
    keys.set("openai", SECRET)
    key = keys.get("openai")
    assert key is not None
    for text in (repr(key), str(key), f"{key}", f"{key!r:>40}", repr([key]), repr(vars(keys))):
        assert "hush" not in text
    for store in (lambda: json.dumps(key), lambda: pickle.dumps(key), lambda: copy.deepcopy(key)):
        with pytest.raises(TypeError) as caught:
            store()
        assert "hush" not in str(caught.value)
    assert not hasattr(key, "__dict__")
    assert keys.secrets() == (SECRET,), "it is known, so that it can be removed from texts"


def test_secrets_are_known_before_they_are_used(home: Home):
    """A command that prints a `.env` may print a key that was not read yet."""
    KeyFile(home.config / "keys.json").set("openai", "file-value-1")
    others = {"GITHUB_TOKEN": "abc123abc123abc123", "SIGNING_TOKEN": "disabled", "MY_PASSWORD": "/run/secrets/db-1"}
    keys = find_keys(home, MemoryKeyring(), CLAWPY_TWIN_API_KEY="from-the-environment", PATH="/usr/bin:/bin1", **others)
    assert set(keys.secrets()) == {"file-value-1", "from-the-environment", "abc123abc123abc123"}
    KeyFile(home.config / "keys.json").set("openai", "file-value-2")
    assert "file-value-2" in keys.secrets(), "another process may have set it"
    (home.config / "keys.json").chmod(0o644)
    assert "file-value-2" in keys.secrets(), "a key that others may read is not used, but removed from texts"
    (home.config / "keys.json").chmod(0o600)
    assert "file-value-2" in keys.secrets(), "the operator fixed that"


def test_the_keyring_library_is_imported_only_when_it_is_used():
    assert not find_imported("import engine.api_keys", "keyring", "filelock")
    assert KEYRING_TIMEOUT_S == 3.0
