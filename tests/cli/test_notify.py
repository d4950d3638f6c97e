"""`clawpy notify` on the command line."""

from __future__ import annotations

import io

import pytest

from engine.home import Home
from engine.keys import Keys
from tests.api.stand_in import StandIn
from tests.cli.conftest import Clawpy


def test_an_address_is_read_unseen_and_kept_where_it_belongs(
    clawpy: Clawpy, engines: list[StandIn], home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("discord://4242424242/hunter2hunter2\n"))
    said = clawpy("notify", "set", "discord", "--store", "file", "--json")
    assert said.code == 0, said.err
    assert said.document["source"] == "file"
    assert "hunter2" not in said.out
    assert engines[-1].settings.current.notify.discord.url == "key"
    assert Keys(home).get("notify-discord") is not None
    assert "hunter2" not in home.config_file.read_text()


def test_an_address_as_an_argument_is_refused_and_not_repeated(clawpy: Clawpy, home: Home) -> None:
    for options in ((), ("--store", "file")):
        said = clawpy("notify", "set", "phone", *options, "ntfys://hunter2@ntfy.sh/topic")
        assert said.code == 2
        assert "Run `clawpy notify set phone`" in said.err
        assert "hunter2" not in said.out + said.err
    assert not home.config_file.exists()


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("\n", "no address was given, so the one for phone was not changed"),
        ("hunter2\n", "that is not an address"),
        ("nope://hunter2\n", "not the address of a known service"),
    ],
)
def test_what_was_typed_that_is_no_address_is_told_apart(
    clawpy: Clawpy, engines: list[StandIn], home: Home, monkeypatch: pytest.MonkeyPatch, typed: str, told: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    said = clawpy("notify", "set", "phone", "--store", "file")
    assert said.code == 1
    assert told in said.err
    assert "appriseit.com/services" in said.err
    assert "hunter2" not in said.err
    assert not home.config_file.exists()
