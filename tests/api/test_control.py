"""The socket by which verbs reach the engine that holds a home (SPEC 7.5)."""

import json
import os
import queue
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine.api import control
from engine.api.control import ControlServer, Unreachable, ask
from engine.clock import FakeClock
from engine.home import Home
from engine.lock import HomeLock
from engine.model import Refusal
from engine.safety.stop_file import get_stop_file, is_requested
from tests.api.stand_in import StandIn
from tests.support.helpers import refused, wait_until

Serve = Callable[[Callable[[str, Any], Any]], ControlServer]
Call = Callable[..., Any]


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


def exchange(address: str, sent: bytes) -> Any:
    """Send bytes to the socket; the answer as a document."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(address)
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        return json.loads(client.makefile("rb").readline())


@pytest.fixture
def call(engine: StandIn) -> Call:
    """Carries out a verb in a home, by the stand-in where no engine holds the home."""
    return partial(control.call, opener=lambda home, **_: engine)


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


def test_a_path_that_is_too_long_is_replaced_by_a_temporary_folder(tmp_path: Path):
    home = Home.locate(tmp_path / ("deep" * 25))
    home.data.mkdir(parents=True)
    server = ControlServer(home, echo)
    server.start()
    assert len(os.fsencode(server.address)) <= control.MAX_PATH_BYTES
    assert Path(server.address).parent.stat().st_mode & 0o777 == 0o700
    assert ask(server.address, "x", {})["verb"] == "x"
    server.close()
    assert not Path(server.address).parent.exists()


def test_a_refusal_arrives_whole(serve: Serve):
    def refuse(verb: str, arguments: Any) -> Any:
        raise Refusal("blocked", "the hour's cap is reached", "wait until 14:30")

    with pytest.raises(Refusal) as caught:
        ask(serve(refuse).address, "approve", {})
    assert (caught.value.code, caught.value.message, caught.value.fix) == (
        "blocked", "the hour's cap is reached", "wait until 14:30",
    )  # fmt: skip


def test_a_bug_is_reported_and_the_next_request_served(serve: Serve, caplog: pytest.LogCaptureFixture):
    def fail(verb: str, arguments: Any) -> Any:
        if verb == "bad":
            raise ZeroDivisionError("by zero")
        return {"odd": object()} if verb == "odd" else {}

    server = serve(fail)
    with pytest.raises(Refusal, match="ZeroDivisionError: by zero"):
        ask(server.address, "bad", {})
    with pytest.raises(Refusal, match="not JSON serializable"):
        ask(server.address, "odd", {})
    assert ask(server.address, "good", {}) == {}
    assert "a verb failed" in caplog.text


def test_a_request_that_is_too_large_is_refused(serve: Serve):
    server = serve(echo)
    assert exchange(server.address, b"x" * (control.MAX_REQUEST_BYTES + 1))["error"]["code"] == "too_large"


def test_a_slow_verb_delays_no_other(serve: Serve):
    release, arrived = threading.Event(), threading.Event()

    def work(verb: str, arguments: Any) -> Any:
        if verb == "slow":
            arrived.set()
            assert release.wait(10)
        return {"verb": verb}

    server = serve(work)
    answers = []
    slow = threading.Thread(target=lambda: answers.append(ask(server.address, "slow", {}, timeout=None)))
    slow.start()
    assert arrived.wait(10)
    for _ in range(20):
        assert ask(server.address, "fast", {})["verb"] == "fast"
    release.set()
    slow.join(10)
    assert answers == [{"verb": "slow"}]


def test_an_address_without_an_engine_is_unreachable(tmp_path: Path, serve: Serve):
    with pytest.raises(Unreachable):
        ask(str(tmp_path / "none.sock"), "x", {})
    server = serve(echo)
    server.close()
    with pytest.raises(Unreachable):
        ask(server.address, "x", {})


# Finding the engine to ask


@pytest.fixture
def _engine_that_hangs_up(engine: StandIn, home: Home, monkeypatch: pytest.MonkeyPatch):
    """An engine holds the home, and hangs up after each request."""
    note = {"pid": 1, "since": "2026-01-05", "address": "/x.sock", "data": str(home.data)}
    (home.data / "engine.json").write_text(json.dumps(note))

    def hang_up(*_: Any, **__: Any) -> Any:
        raise Unreachable("hung up", sent=True)

    monkeypatch.setattr(control, "ask", hang_up)


@pytest.fixture
def copied_home(home: Home, clock: FakeClock, serve: Serve, tmp_path: Path) -> Iterator[Home]:
    """A copy of a home whose engine is running. That engine fails the test if it is asked."""
    server = serve(lambda verb, arguments: pytest.fail(f"the engine of the original was asked to {verb}"))
    copy = Home.locate(tmp_path / "copy")
    copy.data.mkdir(parents=True)
    with held(home, clock, server.address):
        shutil.copyfile(home.data / "engine.json", copy.data / "engine.json")
        yield copy


@pytest.mark.usefixtures("_engine_that_hangs_up")
def test_a_question_whose_answer_was_lost_is_asked_again(call: Call, home: Home):
    assert call(home, "status", {})["state"] == "WATCHING"


@pytest.mark.usefixtures("_engine_that_hangs_up")
@pytest.mark.parametrize("verb", ["propose", "approve"])
def test_a_change_whose_answer_was_lost_is_not_repeated(call: Call, home: Home, verb: str):
    refused("no_answer", lambda: call(home, verb, {}))


def test_an_engine_that_is_just_starting_is_waited_for(engine: StandIn, home: Home, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(control, "CONNECT_TIMEOUT_S", 30.0)
    attempts = []

    def opener(home: Home, **options: Any) -> StandIn:
        attempts.append(1)
        if len(attempts) < 3:
            raise Refusal("home_held", "held", "wait")
        return engine

    assert control.call(home, "status", {}, opener=opener)["state"] == "WATCHING"
    assert len(attempts) == 3


def test_an_engine_of_another_version_is_only_asked_to_stop(call: Call, home: Home, clock: FakeClock, serve: Serve):
    """As after an upgrade of the package while the engine runs."""
    requested = []
    server = serve(lambda verb, arguments: requested.append(verb) or {})
    with held(home, clock, server.address, version=OTHER_VERSION):
        refusal = refused("other_version", lambda: call(home, "approve", {"id": "pred_1"}))
        assert refusal.message.startswith(f"the running engine is clawpy {OTHER_VERSION}, this is ")
        assert str(os.getpid()) in refusal.fix
        checks = control.call(home, "doctor", {}, opener=None)["checks"]
        [check] = [check for check in checks if check["name"] == "engine"]
        assert (check["state"], check["fix"]) == ("warn", refusal.fix)
        control.stop(home, "")
    assert requested == ["stop"]


def test_the_note_of_a_dead_engine_of_another_version_keeps_no_verb_from_an_engine_of_its_own(
    call: Call, home: Home, clock: FakeClock
):
    with held(home, clock, str(home.data / "run" / "engine.sock"), version=OTHER_VERSION):
        note = (home.data / "engine.json").read_bytes()
    (home.data / "engine.json").write_bytes(note)
    assert call(home, "status", {})["state"] == "WATCHING"


def test_a_copied_home_does_not_ask_the_engine_of_the_original(call: Call, copied_home: Home):
    assert call(copied_home, "status", {})["state"] == "WATCHING"
    assert control.ask_running(copied_home, "status") == {}


def test_a_stop_in_a_copied_home_is_written_there_alone(home: Home, copied_home: Home):
    assert not control.stop(copied_home, "it is a copy")["reached"]
    assert is_requested(get_stop_file(copied_home.data))
    assert not is_requested(get_stop_file(home.data))


def test_the_engine_is_found_by_another_path_to_its_home(home: Home, clock: FakeClock, serve: Serve, tmp_path: Path):
    with held(home, clock, serve(echo).address):
        (tmp_path / "link").symlink_to(home.root)
        assert control.ask_running(Home.locate(tmp_path / "link"), "status")["verb"] == "status"


@pytest.mark.long
def test_stop_does_not_wait_for_an_engine_that_hangs(home: Home, clock: FakeClock, serve: Serve):
    release = threading.Event()
    with held(home, clock, serve(lambda verb, arguments: {"released": release.wait(20)}).address):
        answer = control.stop(home, "it hangs")
        release.set()
    assert not answer["reached"]
    assert is_requested(get_stop_file(home.data))


def test_a_stop_that_cannot_be_written_says_what_else_to_do(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Refusal, match="F12"):
        control.stop(Home.locate(tmp_path / "file"), "")


def test_a_console_keeps_its_connection_when_the_request_is_answered(tmp_path: Path):
    home = Home.locate(tmp_path / "home")
    home.data.mkdir(parents=True)
    connections = queue.SimpleQueue()
    threads_before = set(threading.enumerate())  # other servers of the tests may have such threads

    def new_threads() -> set[threading.Thread]:
        return set(threading.enumerate()) - threads_before

    server = ControlServer(home, lambda verb, arguments: {}, attach=lambda _: connections.put)
    server.start()
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(server.address)
            client.sendall(b'{"verb": "attach", "arguments": {}}\n')
            with connections.get(timeout=10) as console, client.makefile("rb") as answer:
                assert b"ok" in answer.readline()
                wait_until(
                    lambda: not any(thread.name.endswith("(process_request_thread)") for thread in new_threads())
                )
                console.sendall(b"a frame\n")
                assert answer.readline() == b"a frame\n"
    finally:
        server.close()
