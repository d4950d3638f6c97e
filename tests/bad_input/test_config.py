"""A settings file with faults: file, line and key are named, and the file is never touched."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.home import Home
from tests.bad_input.conftest import (
    Clawpy,
    FailedStart,
    assert_ok,
    assert_refused,
    doctor_check,
    file_contents,
    predicted,
)
from tests.conftest import Repository

BROKEN_CONFIGS = {
    "a key with a slip": (b"crossPolEnabled = true\n", ("config.toml:1", "did you mean crossPollEnabled?")),
    "a value out of range": (b"\n\nquietHoursEnd = 24\n", ("config.toml:3", "quietHoursEnd", "24")),
    "the wrong kind of value": (b'maxPendingCards = "five"\n', ("config.toml:1", "maxPendingCards", "five")),
    "no TOML": (b"quietHoursEnd = = 8\n", ("config.toml:1", "not TOML")),
    "no text": (b"\xff\xfe\x00binary", ("config.toml:1", "not UTF-8")),
    "a key that belongs in the keyring": (b'twinApiKey = "sk-secret-value"\n', ("config.toml:1", "twinApiKey")),
}


@pytest.mark.parametrize(("text", "words"), BROKEN_CONFIGS.values(), ids=BROKEN_CONFIGS)
def test_a_broken_config(clawpy: Clawpy, home: Home, shop: Repository, text: bytes, words: tuple[str, ...]) -> None:
    home.config.mkdir(parents=True)
    home.config_file.write_bytes(text)
    error = assert_refused(clawpy("cards", "--json"), "bad_config", *words)
    assert "sk-secret-value" not in error["message"]
    plain = clawpy("config", "set", "quietHoursStart", "22")
    assert (plain.code, plain.out) == (1, "")
    assert words[0] in plain.err
    assert home.config_file.read_bytes() == text
    assert not home.database.exists()
    assert clawpy("doctor", "--json").code == 1
    check = doctor_check(clawpy, "config")
    assert check["state"] == "fail"
    assert words[0] in check["message"]


def link_to_a_pipe(file: Path) -> None:
    os.mkfifo(file.with_name("pipe"))
    file.symlink_to("pipe")


def link_to_a_device(file: Path) -> None:
    file.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, link_to_a_pipe, link_to_a_device])
def test_a_config_that_is_no_file_is_refused_at_once(
    clawpy: Clawpy, home: Home, shop: Repository, make: Callable[[Path], None]
) -> None:
    home.config.mkdir(parents=True, exist_ok=True)
    make(home.config_file)
    assert_refused(clawpy("cards", "--json"), "bad_config", "config.toml", "is not a regular file")


def test_a_bad_value_is_not_written(clawpy: Clawpy, home: Home, shop: Repository) -> None:
    assert_ok(clawpy("config", "set", "quietHoursStart", "22", "--json"))
    before = file_contents(home.config)
    for key, value in (("quietHoursStart", "25"), ("noSuchKey", "1"), ("quietHoursStart", "\x1b[31m")):
        result = clawpy("config", "set", key, value, "--json")
        assert result.code in (1, 2), result.out
        assert key in result.document["error"]["message"]
    assert file_contents(home.config) == before


@pytest.mark.long
async def test_the_console_names_a_broken_setting(home: Home, shop: Repository, failed_start: FailedStart) -> None:
    home.config.mkdir(parents=True)
    home.config_file.write_text("quietHoursEnd = 24\n")
    screen = await failed_start([str(shop.path)])
    for text in ("The engine could not start", "quietHoursEnd: 24 is not accepted", "try again"):
        assert text in screen


def test_a_workspace_of_the_settings_that_is_gone_hinders_no_other(
    clawpy: Clawpy, home: Home, shop: Repository, tmp_path: Path
) -> None:
    home.config.mkdir(parents=True)
    home.config_file.write_text(f'[workspaces."{tmp_path / "gone"}"]\nautonomy = "cards"\n')
    assert predicted(clawpy)
