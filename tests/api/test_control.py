"""The socket by which verbs reach the engine that holds a home (SPEC 7.5)."""

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from engine import open_engine
from engine.api import control
from engine.api.control import MAX_REQUEST_BYTES, ControlServer, Unreachable, ask, call
from engine.clock import FakeClock
from engine.home import Home
from engine.lock import HomeLock
from engine.model import Refusal
from engine.safety import get_stop_file, is_stop_requested
from tests.support.checks import refused

Serve = Callable[[Callable[[str, Any], Any]], ControlServer]


@pytest.fixture
def serve(home: Home) -> Iterator[Serve]:
    servers = []

    def start(work: Callable[[str, Any], Any]) -> ControlServer:
        home.data.mkdir(parents=True, exist_ok=True)
        servers.append(ControlServer(home, work))
        servers[-1].start()
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def echo(verb: str, arguments: Any) -> dict[str, Any]:
    return {"verb": verb, "arguments": arguments}


OTHER_VERSION = "0.0.9"


@contextmanager
def held(home: Home, clock: FakeClock, address: str, **version: str) -> Iterator[None]:
    """An engine of this version, by default of ours, holds the home and is reached at this address."""
    lock = HomeLock(home, clock=clock, **version)
    lock.acquire()
    lock.announce(address)
    yield
    lock.release()


def test_the_socket_is_private(serve: Serve):
    path = Path(serve(echo).address)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_home_whose_path_is_too_long_has_its_socket_in_a_private_folder_elsewhere(tmp_path: Path):
    home = Home.locate(tmp_path / ("deep" * 25))
    home.data.mkdir(parents=True)
    server = ControlServer(home, echo)
    server.start()
    assert Path(server.address).parent.stat().st_mode & 0o777 == 0o700
    assert ask(server.address, "x", {})["verb"] == "x"
    server.close()
    assert not Path(server.address).parent.exists()


def test_a_bug_is_reported_and_the_next_request_served(serve: Serve, caplog: pytest.LogCaptureFixture):
    server = serve(Mock(side_effect=[ZeroDivisionError("by zero"), {}]))
    with pytest.raises(Refusal, match="ZeroDivisionError: by zero"):
        ask(server.address, "bad", {})
    assert ask(server.address, "good", {}) == {}
    assert "a verb failed" in caplog.text


def test_an_engine_that_hangs_is_given_up(serve: Serve):
    release = threading.Event()
    server = serve(lambda verb, arguments: {"released": release.wait(10)})
    refused("no_answer", lambda: ask(server.address, "x", {}, timeout=0.05))
    refused("too_large", lambda: ask(server.address, "x", "x" * MAX_REQUEST_BYTES))
    release.set()


# Finding the engine to ask


@pytest.fixture
def _engine_that_hangs_up(home: Home, monkeypatch: pytest.MonkeyPatch):
    """An engine holds the home, and hangs up after each request."""
    home.data.mkdir(parents=True)
    note = {"pid": 1, "since": "2026-01-05", "address": "/x.sock", "data": str(home.data)}
    home.engine_note.write_text(json.dumps(note))
    monkeypatch.setattr(control, "ask", Mock(side_effect=Unreachable("hung up", was_sent=True)))


@pytest.mark.usefixtures("_engine_that_hangs_up")
def test_only_a_question_whose_answer_was_lost_is_asked_again(home: Home):
    refused("no_answer", lambda: call(home, "approve", {}, opener=open_engine))
    assert call(home, "status", {}, opener=open_engine)["state"] == "WATCHING"


def test_an_engine_of_another_version_is_only_asked_to_stop(home: Home, clock: FakeClock, serve: Serve):
    """As after an upgrade of the package while the engine runs."""
    requested = []
    server = serve(lambda verb, arguments: requested.append(verb) or {})
    with held(home, clock, server.address, version=OTHER_VERSION):
        refusal = refused("other_version", lambda: call(home, "approve", {"id": "pred_1"}, opener=open_engine))
        assert refusal.message.startswith(f"the running engine is clawpy {OTHER_VERSION}, this is ")
        assert str(os.getpid()) in refusal.fix
        checks = call(home, "doctor", {}, opener=None)["checks"]
        [check] = [check for check in checks if check["name"] == "engine"]
        assert (check["state"], check["fix"]) == ("warn", refusal.fix)
        control.stop(home, "")
    assert requested == ["stop"]


def test_a_copied_home_has_no_engine_and_a_stop_of_its_own(home: Home, clock: FakeClock, serve: Serve, tmp_path: Path):
    server = serve(lambda verb, arguments: pytest.fail(f"the engine of the original was asked to {verb}"))
    copy = Home.locate(tmp_path / "copy")
    copy.data.mkdir(parents=True)
    with held(home, clock, server.address):
        shutil.copyfile(home.data / "engine.json", copy.data / "engine.json")
        assert call(copy, "status", {}, opener=open_engine)["state"] == "WATCHING"
        assert not control.stop(copy, "it is a copy")["reached"]
    assert is_stop_requested(get_stop_file(copy.data))
    assert not is_stop_requested(get_stop_file(home.data))
