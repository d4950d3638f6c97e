"""Attempts to reach programs of the operator by sockets and pipes (SPEC 3.8). An attempt succeeds if the program that
listens outside receives anything."""

import contextlib
import os
import select
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine.execution.sandbox.host_gate import HostGate
from tests.attacks.marks import make_canary
from tests.attacks.victim import Victim
from tests.support import read_table

TABLE = read_table(__file__)

pytestmark = pytest.mark.attack("sockets")

CONNECT = """
import os, socket, sys, time
kind = socket.SOCK_DGRAM if sys.argv[1] == "datagram" else socket.SOCK_STREAM
print("ready", flush=True)
until = time.monotonic() + float(sys.argv[2])
while True:
    try:
        with socket.socket(socket.AF_UNIX, kind) as client:
            client.settimeout(1)
            client.connect(sys.argv[3].replace("@", "\\0", 1) if sys.argv[3].startswith("@") else sys.argv[3])
            client.send(b"run this")
            print("reached", flush=True)
    except OSError as error:
        print(error, flush=True)
    if time.monotonic() > until:
        break
    time.sleep(0.05)
"""


@contextlib.contextmanager
def listening(path: str, kind: int = socket.SOCK_STREAM) -> Iterator[socket.socket]:
    """A program of the operator's at `path`, or at an abstract name after "@"."""
    with socket.socket(socket.AF_UNIX, kind) as server, contextlib.ExitStack() as stack:
        if path.startswith("@"):
            server.bind("\0" + path[1:])
        else:
            stack.callback(Path(path).unlink, missing_ok=True)
            with contextlib.chdir(Path(path).parent):  # the room for a socket's path is short
                server.bind(Path(path).name)
        if kind == socket.SOCK_STREAM:
            server.listen()
        yield server


def has_heard(server: socket.socket) -> bool:
    """Whether a client connected, or sent a datagram."""
    return bool(select.select([server], [], [], 0)[0])


def find_place(victim: Victim, place: str) -> str:
    """The address of a socket of the operator's."""
    user, project, data = victim.user, victim.project, victim.home.data
    return TABLE["places"][place].format(user=user, project=project, data=data, pid=os.getpid())


@pytest.mark.parametrize("kind", ["stream", "datagram"])
@pytest.mark.parametrize("place", TABLE["places"])
def test_a_socket_of_the_operator_is_not_reached(victim: Victim, place: str, kind: str):
    path = find_place(victim, place)
    with listening(path, socket.SOCK_STREAM if kind == "stream" else socket.SOCK_DGRAM) as server:
        assert "ready" in victim.run_python(CONNECT, kind, "0", path)
        assert not has_heard(server)


@pytest.mark.parametrize(
    "way", ["direct", "any address", "gate", "gate by name", "gate by another spelling", "abstract"]
)
def test_an_allowed_network_does_not_reach_this_machine(victim: Victim, way: str):
    """An allowed network is the world's, not this machine's."""
    if not victim.rung.can_filter_hosts:
        pytest.skip(f"{victim.rung.name} has no gate")
    name = f"@clawpy-net-{os.getpid()}-{id(victim)}"
    with (
        socket.socket() as service,
        listening(name) as abstract,
        contextlib.closing(HostGate((), report=lambda message: None, public=True)) as gate,
    ):
        service.bind(("127.0.0.1", 0))
        service.listen()
        port = service.getsockname()[1]
        confinement = replace(victim.confinement, network=True, gate=gate.path)
        target = {
            "gate": f"127.0.0.1:{port}",
            "gate by name": f"localhost:{port}",
            "gate by another spelling": f"[::ffff:127.0.0.1]:{port}",
        }.get(way, "")
        code = f"""
import os, socket
print("begun", flush=True)
def proxy():
    client = socket.create_connection(("127.0.0.1", int(os.environ["HTTP_PROXY"].rpartition(":")[2])), timeout=5)
    client.sendall(b"CONNECT {target} HTTP/1.1\\r\\n\\r\\n")
    print(client.recv(1000))
    client.sendall(b"hello")
def direct(host):
    socket.create_connection((host, {port}), timeout=5).sendall(b"hello")
def abstract():
    socket.socket(socket.AF_UNIX).connect("\\0" + {name[1:]!r})
print({{"direct": lambda: direct("127.0.0.1"), "any address": lambda: direct("0.0.0.0"),
  "abstract": abstract}}.get({way!r}, proxy)())
"""
        assert "begun" in victim.run_python(code, confinement=confinement)
        assert not has_heard(service)
        assert not has_heard(abstract)


@pytest.mark.parametrize("path", TABLE["system_services"])
def test_sockets_of_system_services_are_not_seen(victim: Victim, path: str):
    """Nothing is there, whether this machine has it or not."""
    word, path = make_canary(), path.format(uid=os.getuid())
    output = victim.run(["sh", "-c", f"test -S {path} && echo {word[:6]}{word[6:]}; echo the end"])
    assert "the end" in output
    assert word not in output
