"""Who gets into the gateway: by a token, which can be replaced, or by a pass, which works once (SPEC 10.1, 11.1)."""

from pathlib import Path

import pytest

from engine.api.gateway.access import THIS_RUN, TOKEN_NAME, Access, rotate_token
from engine.api_keys import Keyring, Keys
from engine.home import Home
from engine.storage.database import Database
from tests.support.checks import refused
from tests.support.keys import MemoryKeyring


def spend_pass(access: Access, credential: str, *, path: str, now: float) -> bool:
    """Whether a pass lets a POST to a path in; this uses it up."""
    return access.is_pass(credential, method="POST", path=path, now=now) and access.spend(credential, now=now)


def make_keys(tmp_path: Path, keyring: MemoryKeyring | None = None, **environment: str) -> Keys:
    backend = keyring or MemoryKeyring()
    return Keys(Home.locate(tmp_path), environment=environment, keyring=Keyring(lambda: backend))


def test_the_first_start_makes_a_token_and_the_second_finds_it(tmp_path: Path, database: Database):
    keyring = MemoryKeyring()
    first = Access(make_keys(tmp_path, keyring), database)
    token = first.load_or_make()
    assert len(token) >= 50
    assert first.source == "keyring"
    second = Access(make_keys(tmp_path, keyring), database)
    assert second.load_or_make() == "", "it is shown once"
    assert second.accepts(token)
    assert not second.accepts(token[:-1])
    assert not second.accepts("")


def test_without_a_keyring_and_without_consent_a_token_lasts_as_long_as_the_run(tmp_path: Path, database: Database):
    keys = Keys(Home.locate(tmp_path), environment={})
    access = Access(keys, database)
    token = access.load_or_make()
    assert access.source == THIS_RUN
    assert access.accepts(token)
    assert not list(tmp_path.rglob("keys.json"))


def test_a_used_pass_stays_used_after_a_restart(tmp_path: Path, database: Database):
    keyring = MemoryKeyring()
    access = Access(make_keys(tmp_path, keyring), database)
    access.load_or_make()
    used, other = (access.issue_pass("POST", path, until=100) for path in ("/a", "/b"))
    assert not spend_pass(access, used, path="/b", now=50), "another request does not use it up"
    assert spend_pass(access, used, path="/a", now=50)
    assert not spend_pass(access, used, path="/a", now=50)
    restarted = Access(make_keys(tmp_path, keyring), database)
    assert restarted.load_or_make() == ""
    assert restarted.is_pass(used, method="POST", path="/a", now=51)
    assert not spend_pass(restarted, used, path="/a", now=51)
    assert spend_pass(restarted, other, path="/b", now=51), "a button that was not pressed still works"


@pytest.mark.parametrize("what", ["replaced", "replaced by one that is too short", "deleted"])
def test_a_deleted_or_replaced_token_and_its_passes_let_nobody_in(tmp_path: Path, database: Database, what: str):
    keys = make_keys(tmp_path)
    access = Access(keys, database)
    token = access.load_or_make()
    credential, generation = access.issue_pass("POST", "/a", until=100), access.generation
    if what == "replaced":
        another, _ = rotate_token(keys)
        access.refresh()
        assert access.accepts(another)
    elif what == "deleted":
        keys.delete(TOKEN_NAME)
        access.refresh()
    else:
        keys.set(TOKEN_NAME, "short", in_file=True)
        access.refresh()
        assert not access.accepts("short")
    assert not access.accepts(token)
    assert not spend_pass(access, credential, path="/a", now=99), "a pass ends with the token of its time"
    assert access.generation == generation + 1, "connections are closed"


def test_a_short_token_of_the_environment_is_refused(tmp_path: Path, database: Database):
    keys = make_keys(tmp_path, CLAWPY_GATEWAY_API_KEY="let me in")
    assert "let me in" not in str(refused("weak_token", Access(keys, database).load_or_make))
    refused("in_environment", lambda: rotate_token(keys))
