"""Broken agent folders, and invalid data on the control socket: one fault never affects the rest (SPEC 4.1, 11.2)."""

import json
import shutil
import socket
from collections.abc import Callable, Iterator

import pytest

from engine import Engine
from engine.home import Home
from engine.lock import read_holder
from tests.bad_input.results import assert_refused, list_cards, read_doctor_check
from tests.cli.calls import Clawpy, get_document
from tests.support.engines import open_idle_engine
from tests.support.repository import Repository


@pytest.fixture
def listening(home: Home, shop: Repository) -> Iterator[Engine]:
    """An engine that listens for verbs."""
    engine = open_idle_engine(home, shop.path)
    yield engine
    engine.close()


@pytest.fixture
def send(home: Home, listening: Engine) -> Callable[[bytes], bytes]:
    """Sends bytes to the control socket, closes it for writing, and returns the whole answer."""

    def send(data: bytes) -> bytes:
        holder = read_holder(home)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(5)
            client.connect(holder.address)
            try:
                client.sendall(data)
                client.shutdown(socket.SHUT_WR)
                with client.makefile("rb") as answers:
                    return answers.read()
            except (BrokenPipeError, ConnectionResetError):
                return b""

    return send


@pytest.mark.long
def test_broken_agents_are_named_and_the_others_work(clawpy: Clawpy, home: Home, shop: Repository):
    get_document(clawpy("agents", "list", "--json"))
    (home.agents / "ceo" / "tools.json").write_text("{not json")
    (home.agents / "cto" / "comms.json").unlink()
    (home.agents / "coo" / "comms.json").write_text("[]")
    (home.agents / "cmo" / "comms.json").write_text('{"reports_to": "../../etc"}')
    (home.agents / "cfo" / "comms.json").write_bytes(b"\xff\xfe")
    shutil.rmtree(home.agents / "gardener")
    (home.agents / "gardener").write_text("a file")
    (home.agents / "bad name\x1b[31m").mkdir()
    (home.agents / "loose").symlink_to("/nowhere")
    problems = {agent["id"]: agent["broken"] for agent in get_document(clawpy("agents", "list", "--json"))["agents"]}
    broken = {name: problem for name, problem in problems.items() if problem}
    assert {"ceo", "cto", "coo", "cmo", "cfo", "gardener", "loose", "bad name"} == set(broken)
    assert "tools.json" in broken["ceo"]
    assert broken["cto"] == "comms.json: is missing"
    assert "reports_to" in broken["cmo"]
    assert problems["backend_builder"] == ""
    assert "ceo: tools.json" in read_doctor_check(clawpy, "agents")["message"]
    assert list_cards(clawpy), "cards are made all the same"
    assert_refused(clawpy("agents", "move", "ceo", "--to", "alfred", "--json"), "broken_agent", "tools.json")
    assert (home.agents / "ceo" / "tools.json").read_text() == "{not json"


def test_malformed_requests_on_the_control_socket_are_refused(send: Callable[[bytes], bytes], clawpy: Clawpy):
    code_of_request = {
        b"GET / HTTP/1.1\n": "bad_request",
        b"\x00\xff\xfe\x80\n": "bad_request",
        b"{}\n": "bad_request",
        b"[]\n": "bad_request",
        b"null\n": "bad_request",
        b"[" * 100_000 + b"\n": "bad_request",
        b'{"verb": "cards"': "bad_request",
        b'{"verb": ["cards"]}\n': "unknown_verb",
        b'{"verb": null}\n': "unknown_verb",
        b'{"verb": "__init__", "arguments": {}}\n': "unknown_verb",
        b'{"verb": "cards", "arguments": [1]}\n': "bad_arguments",
        b'{"verb": "cards", "arguments": {"no such": 1}}\n': "bad_arguments",
        b'{"verb": "approve", "arguments": {"id": {"$ne": 1}}}\n': "bad_arguments",
        b'{"verb": "propose", "arguments": {"text": "\\ud800", "workspace": "/"}}\n': "bad_arguments",
        b'{"verb": "snooze", "arguments": {"id": "x", "seconds": NaN}}\n': "bad_arguments",
        b'{"verb": "snooze", "arguments": {"id": "x", "seconds": 1e400}}\n': "bad_arguments",
    }
    for request, code in code_of_request.items():
        answer = json.loads(send(request))
        assert set(answer) == {"error"}, request
        assert answer["error"]["code"] == code, answer
        assert answer["error"]["message"]
    assert send(b"") == b""
    too_large = send(b"x" * (4 * 1024 * 1024 + 10))
    assert b"too_large" in too_large or too_large == b"", "or the connection was closed meanwhile"
    assert get_document(clawpy("cards", "--json")) == {"predictions": []}
