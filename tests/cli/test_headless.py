"""`clawpy run` and `serve`, with real processes (SPEC 7.5, 10.1)."""

import io
import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

import httpx
import pytest

from clawpy_console.cli.printing.system import print_new_token
from engine import read_holder
from engine.home import Home
from tests.cli.calls import Clawpy
from tests.support.checks import assert_contains, wait_until
from tests.support.programs import make_clawpy_command, run_beside
from tests.support.repository import Repository

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(home: Home, project: Path) -> Iterator[Start]:
    """Starts `clawpy run` in a process of its own and waits until it holds the home."""
    processes = ExitStack()

    def run(*options: str) -> subprocess.Popen[str]:
        process = processes.enter_context(run_beside(make_clawpy_command(home.root, "run", *options), project))
        wait_until(lambda: (holder := read_holder(home)) and holder.pid == process.pid and holder.address, 60)
        return process

    with processes:
        yield run


class TerminalOutput(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_run_prints_events_and_ends_cleanly(start: Start, home: Home, clawpy: Clawpy, number: int):
    process = start()
    holder = read_holder(home)
    assert holder.kind == "headless"
    assert clawpy("tasks", "add", "look at the cart").code == 0
    process.send_signal(number)
    lines = process.communicate()[0].splitlines()
    assert process.returncode == 0
    assert any("watching my shop ü" in line for line in lines)
    assert any("look at the cart" in line for line in lines)
    assert any(line.endswith(f"stopping: {signal.Signals(number).name}") for line in lines)
    assert lines[-1].endswith("ended")
    assert all(datetime.fromisoformat(line[:19]) for line in lines)
    assert read_holder(home) is None


@pytest.mark.long
def test_run_prints_a_json_document_a_line(start: Start):
    process = start("--json", "--for", "2s")
    documents = [json.loads(line) for line in process.communicate()[0].splitlines()]
    assert process.returncode == 0
    assert any(document.get("text", "").startswith("stopping: the time set by --for is over") for document in documents)
    assert all("at" in document and "event" in document for document in documents)


@pytest.mark.long
def test_under_nohup_a_closed_terminal_does_not_end_run(home: Home, project: Path):
    """From cold, and ended by SIGTERM."""
    command = ["nohup", *make_clawpy_command(home.root, "run")]
    process = subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    wait_until(lambda: (holder := read_holder(home)) and holder.address, 30)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    result, _ = process.communicate(timeout=60)
    assert "stopping: SIGTERM" in result
    assert process.returncode == 0


@pytest.mark.long
def test_a_held_home_is_refused_with_its_process(start: Start, clawpy: Clawpy):
    process = start()
    refused = clawpy("run")
    assert refused.code == 1
    assert f"the headless engine with process id {process.pid}" in refused.err


def test_serve_refuses_a_bad_port_before_an_engine_starts(home: Home, clawpy: Clawpy):
    refused = clawpy("serve", "--port", "99999")
    assert refused.code == 1
    assert "port: Input should be less than or equal to 65535" in refused.err
    assert not home.data.exists()


@pytest.mark.long
def test_serve_accepts_its_token_and_writes_it_to_no_file(
    home: Home, shop: Repository, clawpy: Clawpy, monkeypatch: pytest.MonkeyPatch
):
    command = make_clawpy_command(home.root, "serve", "--port", "0", "--store", "file")
    with run_beside(command, shop.path) as process:
        wait_until(lambda: (holder := read_holder(home)) and holder.gateway, 60, lambda: "it does not listen")
        holder = read_holder(home)
        token = clawpy("token").out.strip()
        reply = httpx.get(
            f"{holder.gateway}/api/v1/health", headers={"Authorization": f"Bearer {token}"}, trust_env=False
        )
        assert reply.json()["status"] == "ok"
        assert_contains(clawpy("status").out, holder.gateway, "● WATCHING since")
        second = clawpy("serve", "--port", "0")
        assert second.code == 1
        assert f"at {holder.gateway}; to change that, stop it first: kill {process.pid}" in second.err
        process.send_signal(signal.SIGTERM)
        lines = "".join(process.communicate())
        assert process.returncode == 0
    assert f"listening at {holder.gateway} (this machine only; token in the file)" in lines
    logs = "".join(file.read_text() for file in home.logs.iterdir())
    for text in (lines, logs, home.database.read_bytes().decode("latin-1")):
        assert token not in text


@pytest.mark.parametrize("output, shown", [(TerminalOutput(), True), (io.StringIO(), False)], ids=["tty", "pipe"])
def test_a_new_token_is_shown_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], output: io.StringIO, shown: bool
):
    monkeypatch.setattr("sys.stdout", output)
    print_new_token("clawpy_secret", "keyring")
    printed = output.getvalue() + capsys.readouterr().err
    assert ("clawpy_secret" in printed) is shown
    assert "it is stored in the keyring" in printed
