"""Secrets that verbs read from a hidden prompt or standard input, store, and never show (SPEC 11.1)."""

import getpass
import io
import stat
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import keyring
import pytest

from engine.api_keys import Keys
from engine.clock import FakeClock
from engine.config.external_sections import PROVIDERS
from engine.home import Home
from engine.lock import HomeLock
from tests.cli.calls import Clawpy
from tests.support.keys import MemoryKeyring
from tests.support.settings import write_settings
from tests.support.web_server import LoopbackServer, send_reply

SECRET = "sk-hush-hush-0123456789abcdef"


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> MemoryKeyring:
    """A machine with a keyring."""
    ring = MemoryKeyring()
    monkeypatch.setattr(keyring, "get_keyring", lambda: ring)
    return ring


@pytest.fixture
def piped_key(monkeypatch: pytest.MonkeyPatch):
    """Somebody pipes the key in."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{SECRET}\n"))


class ProviderServer(LoopbackServer):
    """Takes one key; sends whoever asks for `/moved` elsewhere."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            good = self.headers.get("authorization") == f"Bearer {SECRET}" or self.headers.get("x-api-key") == SECRET
            status = 302 if self.path.startswith("/moved") else 200 if good else 401
            send_reply(self, b"", {"location": "https://example.org/"}, status)


@pytest.fixture
def provider() -> Iterator[str]:
    with ProviderServer() as server:
        yield server.url


@pytest.mark.usefixtures("piped_key")
def test_a_key_is_stored_and_its_effect_is_named(clawpy: Clawpy, ring: MemoryKeyring, home: Home):
    result = clawpy("key", "set", "openai")
    assert result.code == 0
    assert ring.held == {("clawpy-console", "openai"): SECRET}
    assert "stored in the keyring" in result.out
    assert (
        f"koji-core, chronicle-hub, dream-weaver, research, garden run on openai:{PROVIDERS['openai'].model}"
        in result.out
    )
    assert "clawpy propose" in result.out
    assert "hush" not in result.out + result.err
    assert not any("hush" in file.read_text(errors="replace") for file in home.root.rglob("*") if file.is_file())


def test_at_a_terminal_a_key_is_typed_unseen(clawpy: Clawpy, ring: MemoryKeyring, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(getpass, "getpass", lambda prompt: SECRET)
    assert clawpy("key", "set", "anthropic").code == 0
    assert ("clawpy-console", "anthropic") in ring.held


@pytest.mark.usefixtures("piped_key")
@pytest.mark.parametrize(
    "words, code, reason",
    [
        (["openai", SECRET], 2, "do not give the key as an argument"),
        (["openai", "--store", "keyring", SECRET], 2, "do not give the key as an argument"),
        ([SECRET], 1, "that is not a valid provider name"),
    ],
    ids=["behind the name", "behind options", "as the name"],
)
def test_a_key_as_an_argument_is_refused_and_not_repeated(
    clawpy: Clawpy, ring: MemoryKeyring, words: list[str], code: int, reason: str
):
    result = clawpy("key", "set", *words)
    assert result.code == code, result.err
    assert reason in result.err, result.err
    assert "hush" not in result.out + result.err
    assert ring.held == {}


@pytest.mark.usefixtures("piped_key")
def test_without_a_keyring_a_key_goes_to_a_file_only_with_consent(clawpy: Clawpy, home: Home):
    result = clawpy("key", "set", "openai")
    assert result.code == 1
    assert "CLAWPY_OPENAI_API_KEY" in result.err
    assert "clawpy key set openai --store file" in result.err
    file = home.config / "keys.json"
    assert not file.exists()
    sys.stdin.seek(0)
    result = clawpy("key", "set", "openai", "--store", "file")
    assert result.code == 0
    assert "plain file" in result.out
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "plain file" in clawpy("key").out
    assert any("plain file" in check["message"] for check in clawpy("doctor", "--json").document["checks"])


def test_keys_are_listed_and_deleted_and_never_shown(
    clawpy: Clawpy, ring: MemoryKeyring, monkeypatch: pytest.MonkeyPatch
):
    ring.set_password("clawpy-console", "openai", SECRET)
    monkeypatch.setenv("CLAWPY_TOGETHER_API_KEY", SECRET)
    result = clawpy("key", "list", "--json")
    rows = {key["name"]: (key["source"], key["usable"]) for key in result.document["keys"]}
    assert rows["openai"] == ("keyring", True)
    assert rows["together"] == ("environment", True)
    assert rows["twin"] == ("", False)
    assert "hush" not in result.out + clawpy("key").out
    assert clawpy("key", "delete", "openai").code == 0
    assert ring.held == {}
    assert "CLAWPY_TOGETHER_API_KEY" in clawpy("key", "delete", "together").err


@pytest.mark.usefixtures("piped_key")
def test_keys_need_neither_the_engine_nor_valid_settings(
    clawpy: Clawpy, ring: MemoryKeyring, home: Home, clock: FakeClock
):
    lock = HomeLock(home, clock=clock)
    lock.acquire()
    write_settings(home, "[broken\n")
    try:
        assert clawpy("key", "set", "openai").code == 0
        assert Keys(home).find_source("openai") == "keyring"
        assert clawpy("key", "list").code == 0
    finally:
        lock.release()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_provider_is_asked_whether_it_accepts_its_key(
    clawpy: Clawpy, ring: MemoryKeyring, home: Home, provider: str, kind: str
):
    write_settings(home, f'[providers.mine]\nkind = "{kind}"\nbaseUrl = "{provider}"\nmodel = "m"\n')
    assert clawpy("key", "test", "mine").code == 1
    ring.set_password("clawpy-console", "mine", SECRET)
    assert clawpy("key", "test", "mine", "--json").document["reached"] is True
    ring.set_password("clawpy-console", "mine", "sk-other")
    result = clawpy("key", "test", "mine")
    assert result.code == 1
    assert "does not accept the key (401)" in result.out
    assert "does not accept" in clawpy("doctor", "--online").out
    write_settings(home, f'[providers.mine]\nkind = "{kind}"\nbaseUrl = "{provider}/moved"\nmodel = "m"\n')
    assert "302" in clawpy("key", "test", "mine").out, "a key does not follow where it is sent"


# Addresses of notifications, which may hold a secret


def test_an_address_is_stored_with_the_keys_and_never_shown(
    clawpy: Clawpy, home: Home, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.stdin", io.StringIO("discord://4242424242/hunter2hunter2\n"))
    result = clawpy("notify", "set", "discord", "--store", "file", "--json")
    assert result.code == 0, result.err
    assert result.document["source"] == "file"
    assert "hunter2" not in result.out
    assert Keys(home).get("notify-discord") is not None
    assert home.config_file.read_text() == '[notify.discord]\nurl = "key"\n'


@pytest.mark.parametrize("options", [(), ("--store", "file")], ids=["alone", "behind options"])
def test_an_address_as_an_argument_is_refused_and_not_repeated(clawpy: Clawpy, home: Home, options: tuple[str, ...]):
    result = clawpy("notify", "set", "phone", *options, "ntfys://hunter2@ntfy.sh/topic")
    assert result.code == 2
    assert "Run `clawpy notify set phone`" in result.err
    assert "hunter2" not in result.out + result.err
    assert not home.config_file.exists()


@pytest.mark.parametrize(
    "typed, message",
    [
        ("\n", "no address was given, so the one for phone was not changed"),
        ("hunter2\n", "that is not an address"),
        ("nope://hunter2\n", "not the address of a known service"),
    ],
)
def test_a_text_that_is_no_address_is_refused(
    clawpy: Clawpy, home: Home, monkeypatch: pytest.MonkeyPatch, typed: str, message: str
):
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    result = clawpy("notify", "set", "phone", "--store", "file")
    assert result.code == 1
    assert message in result.err
    assert "appriseit.com/services" in result.err
    assert "hunter2" not in result.err
    assert not home.config_file.exists()


# The token of the gateway


def test_without_a_keyring_a_token_goes_to_a_file_only_with_consent(clawpy: Clawpy):
    assert "no token is stored" in clawpy("token", "show").err
    refused = clawpy("token", "new")
    assert refused.code == 1
    assert "--store file" in refused.err
    created = clawpy("token", "new", "--store", "file")
    assert created.out.strip().startswith("clawpy_")
    assert clawpy("token").out == created.out
    assert clawpy("--json", "token").document["source"] == "file"
    assert clawpy("token", "new", "--store", "file").out != created.out
