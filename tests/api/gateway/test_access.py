"""The gateway's token: made once, kept where keys are, turned over at a word; and passes (SPEC 10.1, 11.1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.api.gateway.access import THIS_RUN, TOKEN_NAME, USED_PASSES_KEY, Access, gateway_token, rotate_token
from engine.clock import SystemClock
from engine.home import Home
from engine.key_stores import Keyring
from engine.keys import Keys
from engine.lock import HomeLock
from engine.model import Refusal
from engine.storage import state
from engine.storage.database import Database
from tests.support.keyrings import MemoryKeyring


def passes(access: Access, credential: str, *, method: str, path: str, now: float) -> bool:
    return access.is_pass(credential, method=method, path=path, now=now) and access.spend(credential, now=now)


def keys_of(tmp_path: Path, keyring: MemoryKeyring | None = None, **environment: str) -> Keys:
    backend = keyring or MemoryKeyring()
    return Keys(Home.locate(tmp_path), environment=environment, keyring=Keyring(lambda: backend))


def test_the_first_start_makes_a_token_and_the_second_finds_it(tmp_path: Path) -> None:
    keyring = MemoryKeyring()
    first = Access(keys_of(tmp_path, keyring))
    token = first.load_or_make()
    assert len(token) >= 50
    assert first.source == "keyring"
    second = Access(keys_of(tmp_path, keyring))
    assert second.load_or_make() == "", "it is shown once"
    assert second.accepts(token)
    assert not second.accepts(token[:-1])
    assert not second.accepts("")


def test_without_a_keyring_and_without_consent_it_lasts_as_long_as_the_run(tmp_path: Path) -> None:
    keys = Keys(Home.locate(tmp_path), environment={})
    access = Access(keys)
    token = access.load_or_make()
    assert access.source == THIS_RUN
    assert access.accepts(token)
    assert not list(tmp_path.rglob("keys.json"))
    consenting = Access(Keys(Home.locate(tmp_path), environment={}))
    kept = consenting.load_or_make(in_file=True)
    assert consenting.source == "file"
    [file] = tmp_path.rglob("keys.json")
    assert file.stat().st_mode & 0o777 == 0o600
    assert kept in file.read_text()


def test_the_environments_token_is_the_one(tmp_path: Path) -> None:
    keys = keys_of(tmp_path, CLAWPY_GATEWAY_API_KEY="from-the-environment")
    access = Access(keys)
    assert access.load_or_make() == ""
    assert access.accepts("from-the-environment")
    with pytest.raises(Refusal) as refused:
        rotate_token(keys)
    assert refused.value.code == "in_environment"


def test_another_token_makes_tokens_and_passes_void(tmp_path: Path, database: Database) -> None:
    keys = keys_of(tmp_path)
    access = Access(keys, database)
    old = access.load_or_make()
    given = access.pass_for("POST", "/a", until=100)
    assert passes(access, given, method="POST", path="/a", now=99)
    token, source = rotate_token(keys)
    generation = access.generation
    access.refresh()
    assert access.generation == generation + 1
    assert source == "keyring"
    assert access.accepts(token)
    assert not access.accepts(old)
    assert not passes(access, given, method="POST", path="/a", now=99)


def test_a_pass_opens_once(tmp_path: Path, database: Database) -> None:
    access = Access(keys_of(tmp_path), database)
    access.load_or_make()
    given = access.pass_for("POST", "/a", until=100)
    assert not passes(access, given, method="POST", path="/b", now=50), "another door, which is no use of it"
    assert passes(access, given, method="POST", path="/a", now=50)
    assert not passes(access, given, method="POST", path="/a", now=50)
    another = access.pass_for("POST", "/a", until=200)
    assert passes(access, another, method="POST", path="/a", now=150)
    with database.read() as session:
        assert list(state.get(session, USED_PASSES_KEY).values()) == [200], (
            "it is remembered no longer than it is good for"
        )


def test_a_pass_that_was_used_is_none_after_a_restart(tmp_path: Path, database: Database) -> None:
    keyring = MemoryKeyring()
    access = Access(keys_of(tmp_path, keyring), database)
    access.load_or_make()
    used, other = (access.pass_for("POST", path, until=100) for path in ("/a", "/b"))
    assert passes(access, used, method="POST", path="/a", now=50)
    again = Access(keys_of(tmp_path, keyring), database)
    assert again.load_or_make() == ""
    assert again.is_pass(used, method="POST", path="/a", now=51)
    assert not passes(again, used, method="POST", path="/a", now=51)
    assert passes(again, other, method="POST", path="/b", now=51), "a button that was not pressed still works"


def test_a_pass_whose_use_cannot_be_kept_opens_nothing(tmp_path: Path, database: Database) -> None:
    access = Access(keys_of(tmp_path))
    access.load_or_make()
    given = access.pass_for("POST", "/a", until=100)
    assert not passes(access, given, method="POST", path="/a", now=50), "there is nowhere to keep it"
    keeping = Access(access._keys, database)
    keeping.load_or_make()
    database.close()
    with pytest.raises(Refusal):
        keeping.spend(given, now=50)


class LockedKeyring(MemoryKeyring):
    """One that its owner can lock."""

    locked = False

    def get_password(self, service: str, username: str) -> str | None:
        if self.locked:
            raise RuntimeError("it is locked")
        return super().get_password(service, username)


def test_a_keyring_that_fails_shows_nobody_out(tmp_path: Path) -> None:
    keyring = LockedKeyring()
    keys = keys_of(tmp_path, keyring)
    access = Access(keys)
    token = access.load_or_make()
    keys.forget()
    keyring.locked = True
    access.refresh()
    assert access.accepts(token)


@pytest.mark.parametrize("in_file", [False, True])
def test_a_token_that_was_taken_away_lets_nobody_in(tmp_path: Path, database: Database, in_file: bool) -> None:
    keyring = LockedKeyring()
    keyring.locked = in_file  # then there is nothing but the file
    keys = keys_of(tmp_path, keyring)
    access = Access(keys, database)
    token = access.load_or_make(in_file=in_file)
    given, generation = access.pass_for("POST", "/a", until=100), access.generation
    assert access.accepts(token)
    keys.delete(TOKEN_NAME)
    assert not access.refresh()
    assert not access.accepts(token)
    assert not passes(access, given, method="POST", path="/a", now=99)
    assert access.generation == generation + 1, "who is in already is shown out"
    access.refresh()
    assert access.generation == generation + 1
    another, _ = rotate_token(keys, in_file=in_file)
    access.refresh()
    assert access.accepts(another)


def test_the_verb_shows_it_and_makes_another(tmp_path: Path) -> None:
    home = Home.locate(tmp_path)
    with pytest.raises(Refusal) as refused:
        gateway_token(home)
    assert refused.value.code == "no_token"
    assert refused.value.message == "there is no token yet"
    assert "clawpy token new --store file" in refused.value.fix, "what this machine can do"
    with pytest.raises(Refusal) as refused:
        gateway_token(home, new=True)
    assert refused.value.code == "no_keyring"
    assert "clawpy token new --store file" in refused.value.fix
    made = gateway_token(home, new=True, in_file=True)
    assert gateway_token(home)["token"] == made["token"]
    assert gateway_token(home, new=True, in_file=True)["token"] != made["token"]


def test_a_token_that_is_kept_nowhere_is_told_so_while_its_engine_listens(tmp_path: Path) -> None:
    home = Home.locate(tmp_path)
    lock = HomeLock(home, clock=SystemClock())
    lock.acquire()
    try:
        lock.announce_gateway("http://127.0.0.1:8477")
        with pytest.raises(Refusal) as refused:
            gateway_token(home)
        assert "not stored" in refused.value.message
        assert "clawpy token new --store file" in refused.value.fix
        assert "15 s" in refused.value.fix
    finally:
        lock.release()


def test_a_token_of_a_persons_making_is_not_too_short(tmp_path: Path) -> None:
    with pytest.raises(Refusal) as refused:
        Access(keys_of(tmp_path, CLAWPY_GATEWAY_API_KEY="let me in")).load_or_make()
    assert refused.value.code == "weak_token"
    assert "unset CLAWPY_GATEWAY_API_KEY" in refused.value.fix, "while it is set, `clawpy token new` makes none"
    assert "let me in" not in str(refused.value)
