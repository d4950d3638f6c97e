"""Idle clients try to block the gateway or the control socket, and another user tries to reach it (SPEC 7.5, 10.1).

`tests/api/gateway/test_attacks.py` has requests that the gateway refuses.
"""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from engine.api.control import ControlServer, ask
from engine.api.gateway.guard import GatewayLimits
from engine.home import Home
from tests.api.gateway.served import Serve, Served
from tests.api.gateway.served import serve as serve

pytestmark = pytest.mark.attack("clients")

IDLE_CLIENTS = 200
WITHOUT_BODY = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n"


@pytest.fixture(scope="module")
def gateway(serve: Serve) -> Served:
    return serve(limits=replace(GatewayLimits(), max_connections=100))


@pytest.fixture
def control_server(home: Home) -> Iterator[ControlServer]:
    home.data.mkdir(parents=True)
    server = ControlServer(home, lambda verb, arguments: {"verb": verb})
    server.start()
    yield server
    server.close()


@pytest.mark.parametrize("sent", [b"", b"GET / HT", WITHOUT_BODY])
def test_idle_clients_do_not_keep_an_honest_one_waiting(gateway: Served, sent: bytes):
    with contextlib.ExitStack() as idle:
        for _ in range(IDLE_CLIENTS):
            connection = idle.enter_context(socket.create_connection(("127.0.0.1", gateway.port)))
            with contextlib.suppress(OSError):
                connection.sendall(sent)
        began = time.monotonic()
        assert gateway.ask("GET", "/api/v1/health").status_code == 200
        assert time.monotonic() - began < 5, "a second, and what a loaded machine takes"


@pytest.mark.parametrize("sent", [b"", b'{"verb": ', b'{"verb": "status"}\n'])
def test_idle_clients_do_not_keep_a_verb_waiting(control_server: ControlServer, sent: bytes):
    with contextlib.ExitStack() as idle:
        for _ in range(IDLE_CLIENTS):
            connection = idle.enter_context(socket.socket(socket.AF_UNIX))
            connection.settimeout(5)
            connection.connect(control_server.address)
            with contextlib.suppress(OSError):
                connection.sendall(sent)
        assert ask(control_server.address, "status", {}, timeout=5) == {"verb": "status"}


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_does_not_reach_the_control_socket(control_server: ControlServer):
    script = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.send(b'{}\\n'); s.recv(1)"
    completed = subprocess.run(
        ["/usr/bin/env", "python3", "-c", script, control_server.address], user=65534, capture_output=True
    )
    assert completed.returncode != 0
    assert b"PermissionError" in completed.stderr
