"""`clawpy run` and `dnd`, with real processes (SPEC 7.3, 7.5)."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from clawpy_console.cli.headless import show_new_token
from engine import read_holder
from engine.home import Home
from tests.cli.conftest import Clawpy
from tests.conftest import Repository
from tests.support.forked import Forked, Nursery


@pytest.fixture
def project(demo_project: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = demo_project(tmp_path / "shop")
    monkeypatch.chdir(folder)
    return folder


def until(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.02)
    return found


Start = Callable[..., Forked]


@pytest.fixture
def start(home: Home, project: Path, nursery: Nursery) -> Iterator[Start]:
    """Starts `clawpy run` in a process of its own and waits until it holds the home."""
    processes = ExitStack()

    def run(*options: str) -> Forked:
        process = processes.enter_context(nursery.clawpy("--home", str(home.root), "run", *options, folder=project))
        until(lambda: (holder := read_holder(home)) and holder.pid == process.pid and holder.address)
        return process

    with processes:
        yield run


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_it_says_what_it_does_and_ends_cleanly(start: Start, home: Home, clawpy: Clawpy, number: int) -> None:
    process = start()
    holder = read_holder(home)
    assert holder is not None
    assert holder.kind == "headless"
    assert clawpy("tasks", "add", "look at the cart").code == 0
    process.send_signal(number)
    lines = process.communicate()[0].splitlines()
    assert process.returncode == 0
    assert any("watching shop" in line for line in lines)
    assert any("look at the cart" in line for line in lines)
    assert any(line.endswith(f"stopping: {signal.Signals(number).name}") for line in lines)
    assert lines[-1].endswith("ended")
    assert all(datetime.fromisoformat(line[:19]) for line in lines)
    assert read_holder(home) is None


@pytest.mark.long
def test_json_is_one_document_a_line(start: Start, clawpy: Clawpy) -> None:
    process = start("--json", "--for", "2s")
    documents = [json.loads(line) for line in process.communicate()[0].splitlines()]
    assert process.returncode == 0
    assert any(document.get("text", "").startswith("stopping: the time set by --for is over") for document in documents)
    assert all("at" in document and "event" in document for document in documents)


@pytest.mark.long
def test_under_nohup_a_closed_terminal_does_not_end_it(home: Home, project: Path) -> None:
    """From cold, and ended by SIGTERM."""
    command = ["nohup", sys.executable, "-m", "clawpy_console", "--home", str(home.root), "run"]
    process = subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    until(lambda: (holder := read_holder(home)) and holder.address)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    result, _ = process.communicate(timeout=60)
    assert "stopping: SIGTERM" in result
    assert process.returncode == 0


def test_a_home_that_is_held_is_refused_and_says_by_whom(start: Start, clawpy: Clawpy) -> None:
    process = start()
    refused = clawpy("run")
    assert refused.code == 1
    assert f"the headless engine with process id {process.pid}" in refused.err


@pytest.mark.long
def test_dnd(clawpy: Clawpy, project: Path) -> None:
    until_when = clawpy("dnd", "--for", "90m", "--json").document["dndUntil"]
    left = datetime.fromisoformat(until_when) - datetime.now(UTC)
    assert timedelta(minutes=89) < left <= timedelta(minutes=90)
    status = clawpy("status", "--json").document
    assert (status["dndUntil"], status["quiet"]) == (until_when, True)
    assert "do not disturb until" in clawpy("dnd").out
    assert clawpy("dnd", "--off", "--json").document["dndUntil"] is None
    assert clawpy("status", "--json").document["dndUntil"] is None
    assert clawpy("dnd", "--for", "1h", "--off").code == 2
    assert clawpy("dnd", "--for", "never").code == 2


# `clawpy serve` and `clawpy token`, with a real process (SPEC 9.8, 10.1).


@pytest.mark.long
def test_it_listens_lets_the_token_in_and_shows_it_to_no_file(
    home: Home, shop: Repository, clawpy: Clawpy, nursery: Nursery
) -> None:
    command = ["--home", str(home.root), "serve", "--port", "0", "--store", "file"]
    with nursery.clawpy(*command, folder=shop.path) as process:
        end = time.monotonic() + 40
        while not (holder := read_holder(home)) or not holder.gateway:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end, "it does not listen"
            time.sleep(0.05)
        token = clawpy("token").out.strip()
        reply = httpx.get(
            f"{holder.gateway}/api/v1/health", headers={"Authorization": f"Bearer {token}"}, trust_env=False
        )
        assert reply.json()["status"] == "ok"
        assert holder.gateway in clawpy("status").out
        assert clawpy("status", "--json").document["gateway"]["url"] == holder.gateway
        assert holder.gateway in clawpy("doctor").out
        second = clawpy("serve", "--port", "0")
        assert second.code == 1
        assert f"at {holder.gateway}; to change that, stop it first: kill {process.pid}" in second.err
        process.send_signal(signal.SIGTERM)
        lines = "".join(process.communicate())
        assert process.returncode == 0
    assert f"listening at {holder.gateway} (this machine only; token in the file)" in lines
    for kept in (lines, (home.logs / "clawpy.log").read_text(), home.database.read_bytes().decode("latin-1")):
        assert token not in kept


def test_a_token_on_a_machine_without_a_keyring(clawpy: Clawpy) -> None:
    assert clawpy("token", "show").code == 1
    refused = clawpy("token", "new")
    assert refused.code == 1
    assert "--store file" in refused.err
    made = clawpy("token", "new", "--store", "file")
    assert made.out.strip().startswith("clawpy_")
    assert clawpy("token").out == made.out
    assert clawpy("--json", "token").document["source"] == "file"


# What `clawpy serve` says of a token that it made, with a terminal and without, kept and not (SPEC 10.1, 11.1).


TOKEN = "clawpy_secret"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_of_no_token_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    show_new_token("", "keyring")
    assert capsys.readouterr() == ("", "")
