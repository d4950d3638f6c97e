"""Sessions in the best sandbox, host gates, and servers that a gate may lead to."""

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from engine.execution.sandbox.ladder import find_best_sandbox
from tests.execution.sandbox.gate_world import GateOpener, GateWorld
from tests.execution.session_world import MakeWorld, ScriptWorld
from tests.support.web_server import LoopbackServer, send_reply


@pytest.fixture
def world(make_world: MakeWorld) -> ScriptWorld:
    """Sessions in the best sandbox of this machine."""
    return make_world(sandbox=find_best_sandbox())


class EchoServer(LoopbackServer):
    """Answers with the path and the headers of each request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            hosts = ",".join(self.headers.get_all("Host", []))
            send_reply(self, f"{self.path} {hosts} {self.headers['Proxy-Authorization']}".encode())


@pytest.fixture
def server() -> Iterator[int]:
    """The port of a server on the operator's loopback, such as a local model."""
    with EchoServer() as server:
        yield server.port


@pytest.fixture
def open_gate() -> Iterator[GateOpener]:
    """Opens gates, and closes them after the test."""
    gates = []

    def open_new(*hosts: str, **addresses: dict[str, list[str]]) -> GateWorld:
        gates.append(GateWorld(*hosts, **addresses))
        return gates[-1]

    yield open_new
    for gate in gates:
        gate.host_gate.close()


@pytest.fixture
def received_by_host(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What a host receives to which every connection leads."""
    received = []

    def connect(address: tuple[str, int], timeout: float) -> socket.socket:
        near, far = socket.socketpair()

        def listen():
            with far:
                while chunk := far.recv(65_536):
                    received.append(chunk)

        threading.Thread(target=listen, daemon=True).start()
        return near

    monkeypatch.setattr(socket, "create_connection", connect)
    return received
