"""A settings file with faults: file, line and key are named, and the file is never touched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.home import Home
from tests.bad_input.conftest import Clawpy, ConsoleSays, contents, ok, refused
from tests.conftest import Repository

BROKEN = {
    "a key with a slip": (b"crossPolEnabled = true\n", ("config.toml:1", "did you mean crossPollEnabled?")),
    "a value out of range": (b"\n\nquietHoursEnd = 24\n", ("config.toml:3", "quietHoursEnd", "24")),
    "the wrong kind of value": (b'maxPendingCards = "five"\n', ("config.toml:1", "maxPendingCards", "five")),
    "no TOML": (b"quietHoursEnd = = 8\n", ("config.toml:1", "not TOML")),
    "no text": (b"\xff\xfe\x00binary", ("config.toml:1", "not UTF-8")),
    "a key that belongs in the keyring": (b'twinApiKey = "sk-secret-value"\n', ("config.toml:1", "twinApiKey")),
}


@pytest.mark.parametrize(("text", "words"), BROKEN.values(), ids=BROKEN)
def test_a_broken_config(clawpy: Clawpy, home: Home, shop: Repository, text: bytes, words: tuple[str, ...]) -> None:
    home.config.mkdir(parents=True)
    home.config_file.write_bytes(text)
    error = refused(clawpy("cards", "--json"), "bad_config", *words)
    assert "sk-secret-value" not in error["message"]
    plain = clawpy("config", "set", "quietHoursStart", "22")
    assert (plain.code, plain.out) == (1, "")
    assert words[0] in plain.err
    assert home.config_file.read_bytes() == text
    assert not home.database.exists()
    found = clawpy("doctor", "--json")
    assert found.code == 1
    [config] = [check for check in found.document["checks"] if check["name"] == "config"]
    assert config["state"] == "fail"
    assert words[0] in config["message"]


@pytest.mark.parametrize("what", ["folder", "pipe", "link to a pipe", "device"])
def test_a_config_that_is_no_file_is_refused_at_once(clawpy: Clawpy, home: Home, shop: Repository, what: str) -> None:
    home.config.mkdir(parents=True, exist_ok=True)
    if what == "folder":
        home.config_file.mkdir()
    elif what == "pipe":
        os.mkfifo(home.config_file)
    elif what == "link to a pipe":
        os.mkfifo(home.config / "pipe")
        home.config_file.symlink_to("pipe")
    else:
        home.config_file.symlink_to("/dev/zero")
    refused(clawpy("cards", "--json"), "bad_config", "config.toml", "is not a regular file")


def test_a_bad_value_is_not_written(clawpy: Clawpy, home: Home, shop: Repository) -> None:
    ok(clawpy("config", "set", "quietHoursStart", "22", "--json"))
    before = contents(home.config)
    for key, value in (("quietHoursStart", "25"), ("noSuchKey", "1"), ("quietHoursStart", "\x1b[31m")):
        said = clawpy("config", "set", key, value, "--json")
        assert said.code in (1, 2), said.out
        assert key in said.document["error"]["message"]
    assert contents(home.config) == before


@pytest.mark.long
async def test_the_console_says_it(home: Home, shop: Repository, console_says: ConsoleSays) -> None:
    home.config.mkdir(parents=True)
    home.config_file.write_text("quietHoursEnd = 24\n")
    said = await console_says([str(shop.path)])
    assert "The engine could not start" in said
    assert "quietHoursEnd: 24 is not accepted" in said
    assert "try again" in said


def test_a_workspace_of_the_settings_that_is_gone_hinders_no_other(
    clawpy: Clawpy, home: Home, shop: Repository, tmp_path: Path
) -> None:
    home.config.mkdir(parents=True)
    home.config_file.write_text(f'[workspaces."{tmp_path / "gone"}"]\nautonomy = "cards"\n')
    assert ok(clawpy("predict", "--json"))["predictions"]
