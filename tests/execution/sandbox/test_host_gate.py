"""The host gate lets a session reach its listed hosts and nothing else: real sockets, sandboxes, servers (SPEC 3.8)."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.execution.live_session import LiveSession
from engine.execution.sandbox import host_gate
from engine.execution.sandbox.host_gate import HostGate, read_server_name
from engine.execution.sandbox.ladder import find_best_sandbox
from engine.model import SessionState
from tests.execution.session_world import MakeWorld, ScriptWorld
from tests.support.helpers import read_table, wait_for_threads, wait_until

ROWS = read_table(__file__)

needs_a_gate = pytest.mark.skipif(
    not find_best_sandbox().can_filter_hosts, reason="no sandbox that filters hosts works here"
)


class Echo(BaseHTTPRequestHandler):
    """Answers with the path and the headers of the request."""

    def do_GET(self) -> None:
        hosts = ",".join(self.headers.get_all("Host", []))
        body = f"{self.path} {hosts} {self.headers['Proxy-Authorization']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Print nothing."""


@pytest.fixture
def server() -> Iterator[int]:
    """The port of a server on the operator's loopback, such as a local model."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


LISTED = "api.example.com"
"""The host that the gates of most tests let through."""

PUBLIC_ADDRESS = {LISTED: "93.184.216.34"}
"""Its address."""


class OpenGate:
    """A gate, what it reported, and the hosts that it resolved. Its clients are on the other side of its socket."""

    def __init__(self, *hosts: str, addresses: dict[str, str] | None = None) -> None:
        self.reports: list[str] = []
        self.resolved: list[str] = []

        def resolve(host: str, port: int) -> list[str]:
            self.resolved.append(host)
            return (addresses or {}).get(host, host).split(",")

        self.host_gate = HostGate(hosts, self.reports.append, resolve)

    def connect(self) -> socket.socket:
        """A client that has sent nothing yet."""
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(5)
        client.connect(str(self.host_gate.path))
        return client

    @contextlib.contextmanager
    def tunnel(self, target: str = f"{LISTED}:443") -> Iterator[socket.socket]:
        """A client whose bytes go to this host from now on."""
        with self.connect() as client:
            client.sendall(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
            assert client.recv(100).startswith(b"HTTP/1.1 200")
            yield client

    def send(self, request: str, after: bytes = b"") -> bytes:
        """The answer to a request and to what is sent `after` it, until the end."""
        with self.connect() as client:
            client.sendall(request.encode().replace(b"\n", b"\r\n") + after)
            answer = b""
            while chunk := client.recv(65_536):
                answer += chunk
            return answer


GateOpener = Callable[..., OpenGate]
"""Opens a gate for these hosts."""


@pytest.fixture
def open_gate() -> Iterator[GateOpener]:
    """Opens gates, and closes them after the test."""
    gates: list[OpenGate] = []

    def open_new(*hosts: str, **addresses: dict[str, str]) -> OpenGate:
        gates.append(OpenGate(*hosts, **addresses))
        return gates[-1]

    yield open_new
    for gate in gates:
        gate.host_gate.close()


# Hosts and addresses


@pytest.mark.long
def test_the_gate_accepts_again_after_the_machine_had_no_file_left(
    open_gate: GateOpener, server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SocketWithoutFiles(socket.socket):
        """The machine has no file left for its first connections."""

        refusals = 2

        def accept(self) -> tuple[socket.socket, object]:
            if SocketWithoutFiles.refusals:
                SocketWithoutFiles.refusals -= 1
                raise OSError(24, "Too many open files")
            return super().accept()

    monkeypatch.setattr(host_gate, "RETRY_S", 0.01)
    with monkeypatch.context() as patched:
        patched.setattr(host_gate, "socket", SimpleNamespace(**{**vars(socket), "socket": SocketWithoutFiles}))
        gate = open_gate(f"127.0.0.1:{server}")
    request = f"CONNECT 127.0.0.1:{server} HTTP/1.1\n\nGET /x HTTP/1.0\nHost: y\n\n"
    assert gate.send(request).endswith(b"/x y None")
    assert gate.reports == ["network: a connection could not be taken: Too many open files"]


@pytest.mark.long
def test_plain_http_reaches_a_listed_port_without_headers_for_the_proxy(open_gate: GateOpener, server: int) -> None:
    gate = open_gate(f"localhost:{server}", addresses={"localhost": "127.0.0.1"})
    head = "Host: elsewhere\nProxy-Authorization: Basic x\nConnection: keep-alive\n\n"
    answer = gate.send(f"GET http://localhost:{server}/a?b=c HTTP/1.1\n{head}")
    assert answer.endswith(f"/a?b=c localhost:{server} None".encode())


@pytest.mark.parametrize("target", ROWS["a_host_that_is_not_listed_is_refused_and_not_resolved"])
def test_a_host_that_is_not_listed_is_refused_and_not_resolved(open_gate: GateOpener, target: str) -> None:
    gate = open_gate("api.example.com", "api.example.com:81", addresses={})
    assert gate.send(f"{target} HTTP/1.1\n\n").startswith(b"HTTP/1.1 403")
    assert gate.resolved == []
    assert len(gate.reports) == 1
    assert gate.reports[0].startswith("network: ")


def test_a_refusal_is_reported_once_and_without_control_characters(open_gate: GateOpener) -> None:
    gate = open_gate(LISTED)
    for _ in range(3):
        gate.send("CONNECT evil.org:443 HTTP/1.1\n\n")
    gate.send("CONNECT a\x1b[31m\x07b:443 HTTP/1.1\n\n")
    assert gate.reports[0] == "network: evil.org:443 is not one of the allowed hosts of this session: api.example.com"
    assert len(gate.reports) == 2
    assert gate.reports[1].isprintable()


@pytest.mark.long
def test_a_name_may_not_resolve_to_this_machine(open_gate: GateOpener, server: int) -> None:
    for address in ("127.0.0.1", "::1", "169.254.169.254", "::ffff:127.0.0.1"):
        gate = open_gate(f"api.example.com:{server}", addresses={"api.example.com": address})
        assert gate.send(f"CONNECT api.example.com:{server} HTTP/1.1\n\n").startswith(b"HTTP/1.1 403")
        assert "which no session may reach" in gate.reports[0]


# TLS


@pytest.fixture
def received_by_host(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What a host receives to which every connection leads."""
    received: list[bytes] = []

    def connect(address: tuple[str, int], timeout: float) -> socket.socket:
        near, far = socket.socketpair()

        def listen() -> None:
            with far:
                while chunk := far.recv(65_536):
                    received.append(chunk)

        threading.Thread(target=listen, daemon=True).start()
        return near

    monkeypatch.setattr(socket, "create_connection", connect)
    return received


def make_client_hello(name: str | None) -> bytes:
    """The first bytes of a real TLS client that asks for a host."""
    context = ssl.create_default_context()
    context.check_hostname = False
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("name", [LISTED, "evil.example.org"])
def test_tls_has_to_ask_for_the_host_that_was_named(
    open_gate: GateOpener, received_by_host: list[bytes], name: str
) -> None:
    """Hosts that share an address with a listed one stay out of reach."""
    gate = open_gate(LISTED, addresses=PUBLIC_ADDRESS)
    hello = make_client_hello(name)
    with gate.tunnel() as client:
        client.sendall(hello[:50])
        client.sendall(hello[50:])
        if name == LISTED:
            wait_until(lambda: b"".join(received_by_host) == hello)
        else:
            assert client.recv(100) == b""
            assert received_by_host == []
            assert gate.reports == ["network: the connection to api.example.com asked for evil.example.org"]


def test_only_tls_passes_through_port_443(open_gate: GateOpener, received_by_host: list[bytes]) -> None:
    gate = open_gate(LISTED, addresses=PUBLIC_ADDRESS)
    gate.send("CONNECT api.example.com:443 HTTP/1.1\n\n", b"GET / HTTP/1.1\r\nHost: evil.org\r\n\r\n")
    assert b"".join(received_by_host) == b""
    assert gate.reports == ["network: api.example.com received a request that is not TLS"]


def test_a_tunnel_to_an_address_needs_no_tls_name(open_gate: GateOpener, received_by_host: list[bytes]) -> None:
    with open_gate("93.184.216.34").connect() as client:
        client.sendall(b"CONNECT 93.184.216.34:443 HTTP/1.1\r\n\r\nhello")
        wait_until(lambda: b"".join(received_by_host) == b"hello")


def test_the_next_address_of_a_host_is_tried(
    open_gate: GateOpener, received_by_host: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = socket.create_connection
    addresses: list[str] = []

    def fail_once(address: tuple[str, int], timeout: float) -> socket.socket:
        addresses.append(address[0])
        if len(addresses) == 1:
            raise OSError("no route")
        return connect(address, timeout)

    monkeypatch.setattr(socket, "create_connection", fail_once)
    with open_gate(LISTED, addresses={LISTED: "93.184.216.34,93.184.216.35"}).tunnel():
        pass
    assert addresses == ["93.184.216.34", "93.184.216.35"]


# Limits and ends


@pytest.mark.parametrize(
    "beginning", [b"", b"CONNECT api.example.com:443 HTTP/1.1\r\n\r\n\x16\x03\x01\xff\xff\1\xff\xff\xff"]
)
def test_a_client_that_sends_too_much_before_its_request_ends_is_cut_off(
    open_gate: GateOpener, received_by_host: list[bytes], monkeypatch: pytest.MonkeyPatch, beginning: bytes
) -> None:
    monkeypatch.setattr(host_gate, "MAX_HEAD_BYTES", 100)
    gate = open_gate(LISTED, addresses=PUBLIC_ADDRESS)
    with gate.connect() as client:
        client.sendall(beginning)
        assert not beginning or client.recv(100).startswith(b"HTTP/1.1 200")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # cut off while it speaks
            wait_until(lambda: client.send(b"x" * 10) and bool(select.select([client], [], [], 0)[0]))
    assert received_by_host == []


def test_connections_above_the_maximum_are_turned_away(open_gate: GateOpener, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_an_idle_connection_is_closed(open_gate: GateOpener, server: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_gate, "IDLE_S", 0.1)
    gate = open_gate(f"127.0.0.1:{server}")
    began = time.monotonic()
    assert gate.send(f"CONNECT 127.0.0.1:{server} HTTP/1.1\n\n").startswith(b"HTTP/1.1 200")
    assert time.monotonic() - began < 20


def test_an_incomplete_request_is_answered_with_an_error(
    open_gate: GateOpener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_gate, "OPENING_S", 0.1)
    gate = open_gate(LISTED)
    assert gate.send("CONNECT api.exam").startswith(b"HTTP/1.1 502")
    assert gate.send("X" * (host_gate.MAX_HEAD_BYTES + 10)).startswith(b"HTTP/1.1 502")


@pytest.mark.long
def test_closing_cuts_every_connection(open_gate: GateOpener, server: int) -> None:
    gate = open_gate(f"127.0.0.1:{server}")
    with gate.tunnel(f"127.0.0.1:{server}") as client:
        gate.host_gate.close()
        assert client.recv(100) == b""
    assert not gate.host_gate.path.parent.exists()
    with pytest.raises(OSError, match=r".+"):
        gate.connect()
    gate.host_gate.close()


# The gate of a session


@pytest.fixture
def world(make_world: MakeWorld) -> ScriptWorld:
    return make_world(sandbox=find_best_sandbox())


FETCH = """
import urllib.request
def fetch(url):
    try: print(urllib.request.build_opener().open(url, timeout=5).read().decode())
    except Exception as error: print(type(error).__name__, error)
"""


@pytest.mark.long
@needs_a_gate
def test_a_session_reaches_its_host_and_nothing_else(world: ScriptWorld, server: int) -> None:
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
        live.confinement = replace(live.confinement, hosts=(f"127.0.0.1:{server}",))
        return live.execute([sys.executable, "-c", script], cwd=live.folder).output

    view = world.run(work)
    assert view.state is SessionState.SUCCEEDED
    direct, proxied, refused, around = world.texts(view)
    assert direct.startswith("/direct")
    assert proxied.startswith("/proxied")
    assert "403" in refused
    assert around.startswith("no way round")
    listed = f"127.0.0.1:{server}"
    refusal = f"network: evil.example.org:443 is not one of the allowed hosts of this session: {listed}"
    assert refusal in world.texts(view, ("note",))


@pytest.mark.long
@needs_a_gate
def test_the_gate_ends_with_its_command_and_leaves_the_exit_code_alone(
    world: ScriptWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = []

    def work(live: LiveSession) -> str:
        live.confinement = replace(live.confinement, hosts=("api.example.com",))
        for script in ("exit 7", "kill -9 $$", "cat; test -t 0"):
            codes.append(live.execute(["sh", "-c", script], cwd=live.folder).exit_code)
        return "done"

    folders: list[Path] = []

    def make_folder(**options: str) -> str:
        folders.append(Path(tempfile.mkdtemp(**options)))
        return str(folders[-1])

    monkeypatch.setattr(host_gate, "tempfile", SimpleNamespace(mkdtemp=make_folder))
    world.run(work)
    assert codes == [7, 137, 1]
    assert len(folders) == 3
    assert not any(folder.exists() for folder in folders)
    wait_for_threads("clawpy-gate")


# The host that a TLS client asks for


def test_the_name_is_unknown_until_all_its_bytes_are_there() -> None:
    assert read_server_name(make_client_hello(None)) == "", "there is none"
    hello = make_client_hello(LISTED)
    assert read_server_name(hello) == LISTED
    assert all(read_server_name(hello[:size]) is None for size in range(1, len(hello)))
    body = hello[5:]
    records = b"".join(b"\x16\x03\x01" + len(part).to_bytes(2) + part for part in (body[:7], body[7:100], body[100:]))
    assert read_server_name(records) == LISTED


@pytest.mark.parametrize(
    "beginning", [b"GET / HTTP/1.1\r\n", b"\x17\x03\x03\0\1x", b"SSH-2.0-x", b"\x16\x03\x01\x00\x04\x02\0\0\0"]
)
def test_bytes_that_are_not_tls_are_refused(beginning: bytes) -> None:
    with pytest.raises(ValueError, match="not"):
        read_server_name(beginning)


@given(st.binary(max_size=300))
def test_any_bytes_have_a_name_or_are_refused(tail: bytes) -> None:
    beginning = b"\x16\x03\x01" + (len(tail) + 4).to_bytes(2) + b"\x01" + len(tail).to_bytes(3) + tail
    try:
        assert isinstance(read_server_name(beginning), str)
    except ValueError:
        return
