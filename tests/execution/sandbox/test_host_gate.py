"""The host gate lets a session reach its listed hosts and nothing else, within limits of size and time (SPEC 3.8)."""

import contextlib
import select
import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.background import run_in_thread
from engine.config.settings import Settings, WorkspaceSettings
from engine.execution.live_session import LiveSession
from engine.execution.sandbox import host_gate
from engine.execution.sandbox.ladder import find_best_sandbox
from engine.model import SessionState
from tests.execution.sandbox.gate_world import LISTED, PUBLIC_ADDRESS, GateOpener
from tests.execution.session_world import MakeWorld, ScriptWorld, run_python
from tests.support import read_table
from tests.support.checks import wait_until

TABLE = read_table(__file__)


# Hosts and addresses


@pytest.mark.long
def test_the_gate_accepts_again_after_the_machine_had_no_file_left(
    open_gate: GateOpener, server: int, monkeypatch: pytest.MonkeyPatch
):
    class SocketWithoutFiles(socket.socket):
        """The machine has no file left for its first connections."""

        refusals = 2

        def accept(self) -> tuple[socket.socket, object]:
            if SocketWithoutFiles.refusals:
                SocketWithoutFiles.refusals -= 1
                raise OSError(24, "Too many open files")
            return super().accept()

    monkeypatch.setattr(host_gate, "ACCEPT_RETRY_S", 0.01)
    with monkeypatch.context() as patched:
        patched.setattr(host_gate, "socket", SimpleNamespace(**{**vars(socket), "socket": SocketWithoutFiles}))
        gate = open_gate(f"127.0.0.1:{server}")
    request = f"CONNECT 127.0.0.1:{server} HTTP/1.1\n\nGET /x HTTP/1.0\nHost: y\n\n"
    assert gate.send(request).endswith(b"/x y None")
    assert gate.reports == ["network: a connection could not be taken: Too many open files"]


@pytest.mark.long
def test_plain_http_reaches_a_listed_port_without_headers_for_the_proxy(open_gate: GateOpener, server: int):
    gate = open_gate(f"localhost:{server}", addresses={"localhost": ["127.0.0.1"]})
    head = "Host: elsewhere\nhost : elsewhere\nProxy-Authorization: Basic x\nConnection: keep-alive\n\n"
    for path, asked in (("/a?b=c", "/a?b=c"), ("?b=c", "/?b=c")):
        answer = gate.send(f"GET http://localhost:{server}{path} HTTP/1.1\n{head}")
        assert answer.endswith(f"{asked} localhost:{server} None".encode())


@pytest.mark.parametrize("target", TABLE["a_host_that_is_not_listed_is_refused_and_not_resolved"])
def test_a_host_that_is_not_listed_is_refused_and_not_resolved(open_gate: GateOpener, target: str):
    gate = open_gate("api.example.com", "api.example.com:81", addresses={})
    assert gate.send(f"{target} HTTP/1.1\n\n").startswith(b"HTTP/1.1 403")
    assert gate.resolved == []
    assert len(gate.reports) == 1
    assert gate.reports[0].startswith("network: ")


def test_a_refusal_is_reported_once_and_without_control_characters(open_gate: GateOpener):
    gate = open_gate(LISTED)
    for _ in range(3):
        gate.send("CONNECT evil.org:443 HTTP/1.1\n\n")
    gate.send("CONNECT a\x1b[31m\x07b:443 HTTP/1.1\n\n")
    assert gate.reports[0] == "network: evil.org:443 is not one of the allowed hosts of this session: api.example.com"
    assert len(gate.reports) == 2
    assert gate.reports[1].isprintable()


@pytest.mark.long
@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "169.254.169.254", "::ffff:127.0.0.1"])
def test_a_name_may_not_resolve_to_this_machine(open_gate: GateOpener, server: int, address: str):
    gate = open_gate(f"api.example.com:{server}", addresses={"api.example.com": [address]})
    assert gate.send(f"CONNECT api.example.com:{server} HTTP/1.1\n\n").startswith(b"HTTP/1.1 403")
    assert "which no session may reach" in gate.reports[0]


@pytest.mark.parametrize("request_line", ["GET", "GET http://a.test:81/ HTTP/1.1 more", "GET / HTTP/1.1\rX:"])
def test_what_is_no_request_is_answered_in_plain_words(open_gate: GateOpener, request_line: str):
    answer = open_gate("a.test:81").send(f"{request_line}\n\n")
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"unpack" not in answer


# Limits and ends


def test_a_host_that_reads_nothing_before_its_answer_is_read_does_not_stop_the_gate(open_gate: GateOpener):
    much = b"x" * 10_000_000
    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = f"127.0.0.1:{listener.getsockname()[1]}"
        with open_gate(target).tunnel(target) as client, listener.accept()[0] as host:
            answering = run_in_thread("host", lambda: (host.sendall(much), host.recv(len(much), socket.MSG_WAITALL)))
            asking = run_in_thread("client", lambda: client.sendall(much))
            assert client.makefile("rb").read(len(much)) == much
            assert answering.result(10) == (None, much)
            asking.result(10)


@pytest.mark.parametrize(
    "beginning", [b"", b"CONNECT api.example.com:443 HTTP/1.1\r\n\r\n\x16\x03\x01\xff\xff\1\xff\xff\xff"]
)
def test_a_client_that_sends_too_much_before_its_request_ends_is_cut_off(
    open_gate: GateOpener, received_by_host: list[bytes], monkeypatch: pytest.MonkeyPatch, beginning: bytes
):
    monkeypatch.setattr(host_gate, "MAX_HEAD_BYTES", 100)
    gate = open_gate(LISTED, addresses=PUBLIC_ADDRESS)
    with gate.connect() as client:
        client.sendall(beginning)
        assert not beginning or client.recv(100).startswith(b"HTTP/1.1 200")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # cut off while it speaks
            wait_until(lambda: client.send(b"x" * 10) and bool(select.select([client], [], [], 0)[0]))
    assert received_by_host == []


def test_connections_above_the_maximum_are_turned_away(open_gate: GateOpener, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(host_gate, "MAX_CONNECTIONS", 2)
    gate = open_gate(LISTED)
    first, second = gate.connect(), gate.connect()
    wait_until(lambda: gate.host_gate._slots._value == 0)
    with gate.connect() as third:
        assert third.recv(10) == b""
    first.close()
    second.close()
    wait_until(lambda: gate.host_gate._slots._value == 2)
    assert gate.send("CONNECT evil.org:443 HTTP/1.1\n\n").startswith(b"HTTP/1.1 403")


@pytest.mark.long
def test_an_idle_connection_is_closed(open_gate: GateOpener, server: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(host_gate, "IDLE_TIMEOUT_S", 0.1)
    gate = open_gate(f"127.0.0.1:{server}")
    began = time.monotonic()
    assert gate.send(f"CONNECT 127.0.0.1:{server} HTTP/1.1\n\n").startswith(b"HTTP/1.1 200")
    assert time.monotonic() - began < 20


def test_an_incomplete_request_is_answered_with_an_error(open_gate: GateOpener, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(host_gate, "OPENING_TIMEOUT_S", 0.1)
    gate = open_gate(LISTED)
    assert gate.send("CONNECT api.exam").startswith(b"HTTP/1.1 400")
    assert gate.send("X" * (host_gate.MAX_HEAD_BYTES + 10)).startswith(b"HTTP/1.1 400")


def test_a_host_that_does_not_answer_is_reported(open_gate: GateOpener):
    gate = open_gate("127.0.0.1:9")
    assert gate.send("CONNECT 127.0.0.1:9 HTTP/1.1\n\n").startswith(b"HTTP/1.1 502")
    assert gate.reports == ["network: 127.0.0.1:9 cannot be reached: Connection refused"]


@pytest.mark.long
def test_closing_cuts_every_connection(open_gate: GateOpener, server: int):
    gate = open_gate(f"127.0.0.1:{server}")
    with gate.tunnel(f"127.0.0.1:{server}") as client:
        gate.host_gate.close()
        assert client.recv(100) == b""
    assert not gate.host_gate.path.parent.exists()
    with pytest.raises(OSError, match=r".+"):
        gate.connect()
    gate.host_gate.close()


# The gate of a session


needs_a_gate = pytest.mark.skipif(
    not find_best_sandbox().can_filter_hosts, reason="no sandbox that filters hosts works here"
)


FETCH = """
import urllib.request
def fetch(url):
    try: print(urllib.request.build_opener().open(url, timeout=5).read().decode())
    except Exception as error: print(type(error).__name__, error)
"""


@pytest.mark.long
@needs_a_gate
def test_a_session_reaches_its_host_and_nothing_else(world: ScriptWorld, server: int):
    """By its address as on the operator's machine, by the proxy, and no other way."""
    script = FETCH + (
        f"fetch('http://127.0.0.1:{server}/direct')\n"
        "import os; os.environ['NO_PROXY'] = os.environ['no_proxy'] = ''\n"
        f"fetch('http://127.0.0.1:{server}/proxied')\n"
        "fetch('https://evil.example.org/')\n"
        "import socket\n"
        "try: socket.create_connection(('192.0.2.1', 443), 2)\n"
        "except OSError as error: print('no way round', error)\n"
    )

    def work(live: LiveSession) -> str:
        live.commands.confine(hosts=(f"127.0.0.1:{server}",))
        return live.execute([sys.executable, "-c", script], cwd=live.folder).output

    view = world.run(work)
    assert view.state is SessionState.SUCCEEDED
    direct, proxied, refused, around = world.read_lines(view)
    assert direct.startswith("/direct")
    assert proxied.startswith("/proxied")
    assert "403" in refused
    assert around.startswith("no way round")
    listed = f"127.0.0.1:{server}"
    refusal = f"network: evil.example.org:443 is not one of the allowed hosts of this session: {listed}"
    assert refusal in world.read_lines(view, ("note",))


@needs_a_gate
def test_commands_with_network_reach_the_gate_and_nothing_of_this_machine(make_world: MakeWorld, tmp_path: Path):
    allowed = {str(tmp_path / "work space ü"): WorkspaceSettings(network=True)}
    world = make_world(sandbox=find_best_sandbox(), settings=Settings(workspaces=allowed))
    with socket.socket() as outside:
        outside.bind(("127.0.0.1", 0))
        outside.listen()
        port = outside.getsockname()[1]
        script = f"""
import os, socket, urllib.request
try:
    socket.create_connection(("127.0.0.1", {port}), timeout=2); print("reached")
except OSError: print("not reached")
try:
    socket.create_connection(("127.0.0.1", int(os.environ["HTTP_PROXY"].rpartition(":")[2]))).close(); print("gate")
except OSError: print("no gate")
"""
        view = world.run(lambda live: run_python(live, script))
    world.sessions.close()
    assert world.read_lines(view) == ["not reached", "gate"]
    assert find_best_sandbox().describe(network=True) == "bubblewrap, with network"
