"""Small helpers of many tests: skips, tables of cases, checks of texts and refusals, waiting, programs, stand-ins, a
view of a session and the event of its end."""

import shutil
import socket
import subprocess
import threading
import time
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest
from keyring.backend import KeyringBackend

from engine.events.work import SessionEnded
from engine.home import Home
from engine.model import Question, Refusal, SessionState, SessionView
from tests.support import MONDAY_MORNING

GITHUB_TOKEN = "ghp_" + "a1B2c3D4" * 5  # put together here so that no scanner takes this file for a leak


@cache
def _is_reachable(host: str) -> bool:
    try:
        with socket.create_connection((host, 443), timeout=3):
            return True
    except OSError:
        return False


@cache
def _does_run(program: str) -> bool:
    if shutil.which(program) is None:
        return False
    argument = {"go": "version", "openssl": "version", "tmux": "-V"}.get(program, "--version")
    return subprocess.run([program, argument], capture_output=True).returncode == 0


def needs(*programs: str, host: str = ""):
    """Skip the test if a program does not run here, or if `host` does not answer.

    The program of a version manager may be installed, and have no version to run.
    """
    for program in programs:
        if not _does_run(program):
            pytest.skip(f"{program} does not run here")
    if host and not _is_reachable(host):
        pytest.skip(f"{host} does not answer here")


def read_table(module_file: str) -> dict[str, Any]:
    """The table of cases beside a test module, in the TOML file of the same name: `read_table(__file__)`."""
    return tomllib.loads(Path(module_file).with_suffix(".toml").read_text(encoding="utf-8"))


def assert_contains(text: str, *parts: str):
    """Check that `text` contains each of the `parts`."""
    missing = [part for part in parts if part not in text]
    assert missing == [], text


def refused(code: str, action: Callable[[], object]) -> Refusal:
    """Check that an action is refused with this code and an advice, and return the refusal."""
    with pytest.raises(Refusal) as refusal:
        action()
    assert refusal.value.code == code
    assert refusal.value.fix
    return refusal.value


def wait_until(condition: Callable[[], object], seconds: float = 15.0, describe: Callable[[], str] = str):
    """Wait for a process, thread or server until `condition` is true.

    After `seconds` the test fails, with what `describe` returns.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"did not happen in {seconds} s: {describe()}"
        time.sleep(0.01)


def wait_for_threads(beginning: str):
    """Wait until no thread is alive whose name begins like this."""
    wait_until(lambda: not any(thread.name.startswith(beginning) for thread in threading.enumerate()))


def write_settings(home: Home, text: str):
    """Write the configuration file of a home."""
    home.config.mkdir(parents=True, exist_ok=True)
    home.config_file.write_text(text)


def make_program(file: Path, body: str = "exit 1") -> Path:
    """Write a shell script that can be executed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)
    return file


def is_alive(pid: int) -> bool:
    """Whether a process runs: it neither ended nor waits to be reaped."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def make_session_view(**fields: Any) -> SessionView:
    """A session of a text prompt that runs; `fields` replace its values."""
    values = {
        "id": "sess_1",
        "prediction_id": "pred_1",
        "prompt": "fix it",
        "workspace": "/w/shop",
        "channel": "koji-core",
        "agent": "builder",
        "runner": "model",
        "flow": None,
        "state": SessionState.RUNNING,
        "mode": "approved",
        "sandbox": "",
        "cwd": "/w/shop",
        "created_at": MONDAY_MORNING,
        "started_at": MONDAY_MORNING,
        "ended_at": None,
        "tokens": 0,
        "cost": 0,
        "summary": "",
    }
    return SessionView(**values | fields)


def make_session_ended(session_id: str = "sess_1", state: str = "succeeded", **fields: Any) -> SessionEnded:
    """A session has ended in this state; `fields` are the others."""
    values = {"prediction_id": "", "summary": "", "cost": 0} | fields
    return SessionEnded(subject=session_id, state=state, **values)


class MemoryKeyring(KeyringBackend):
    """A keyring in memory, which counts how often it is asked."""

    priority = 1

    def __init__(self):
        super().__init__()
        self.held: dict[tuple[str, str], str] = {}
        self.asked = 0

    def get_password(self, service: str, username: str) -> str | None:
        self.asked += 1
        return self.held.get((service, username))

    def set_password(self, service: str, username: str, password: str):
        self.held[service, username] = password

    def delete_password(self, service: str, username: str):
        del self.held[service, username]


class NobodyAsks:
    """Stands in for a model where none is configured."""

    def ask(self, question: Question, /):
        return None
