"""The host gate: real sockets, a real sandbox, a real server (SPEC 3.8)."""

from __future__ import annotations

import contextlib
import ipaddress
import select
import socket
import ssl
import sys
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
from engine.execution.sandbox import gate
from engine.execution.sandbox.gate import (
    HTTPS,
    HostGate,
    host_rules,
    local_hosts,
    normal_host,
    server_name,
    split_address,
)
from engine.execution.sandbox.ladder import best_sandbox
from engine.model import Refusal, SessionState
from tests.execution.session_world import MakeWorld, World, until
from tests.support.helpers import read_table

ROWS = read_table(__file__)

needs_a_gate = pytest.mark.skipif(
    not best_sandbox().can_filter_hosts, reason="no sandbox that filters hosts works here"
)


class Echo(BaseHTTPRequestHandler):
    """Says what it was asked."""

    def do_GET(self) -> None:
        hosts = ",".join(self.headers.get_all("Host", []))
        body = f"{self.path} {hosts} {self.headers['Proxy-Authorization']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Quiet."""


@pytest.fixture
def server() -> Iterator[int]:
    """The port of a server on the operator's loopback, such as a local model."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


class Gated:
    """A gate and what it said."""

    def __init__(self, *hosts: str, addresses: dict[str, str] | None = None) -> None:
        self.said: list[str] = []
        self.resolved: list[str] = []

        def resolve(host: str, port: int) -> list[str]:
            self.resolved.append(host)
            return (addresses or {}).get(host, host).split(",")

        self.gate = HostGate(hosts, self.said.append, resolve)

    def connect(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(5)
        client.connect(str(self.gate.path))
        return client

    def ask(self, request: str, then: bytes = b"") -> bytes:
        """What comes back for a request and what follows it, until the end."""
        with self.connect() as client:
            client.sendall(request.encode().replace(b"\n", b"\r\n") + then)
            answer = b""
            while chunk := client.recv(65_536):
                answer += chunk
            return answer


@pytest.fixture
def gated() -> Iterator[Callable[..., Gated]]:
    gates: list[Gated] = []

    def make(*hosts: str, **more: dict[str, str]) -> Gated:
        gates.append(Gated(*hosts, **more))
        return gates[-1]

    yield make
    for gate_made in gates:
        gate_made.gate.close()


@pytest.mark.long
def test_a_tunnel_to_a_listed_host(gated: Callable[..., Gated], server: int) -> None:
    client = gated(f"127.0.0.1:{server}")
    request = f"CONNECT 127.0.0.1:{server} HTTP/1.1\n\nGET /x HTTP/1.0\nHost: y\n\n"
    assert client.ask(request).endswith(b"/x y None")
    assert client.said == []


@pytest.mark.long
def test_it_goes_on_when_the_machine_had_nothing_left_for_a_connection(
    gated: Callable[..., Gated], server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Poor(socket.socket):
        """Has no file for the first connections."""

        left = 2

        def accept(self) -> tuple[socket.socket, object]:
            if Poor.left:
                Poor.left -= 1
                raise OSError(24, "Too many open files")
            return super().accept()

    monkeypatch.setattr(gate, "RETRY_SECONDS", 0.01)
    with monkeypatch.context() as poor:
        poor.setattr(gate, "socket", SimpleNamespace(**{**vars(socket), "socket": Poor}))
        client = gated(f"127.0.0.1:{server}")
    request = f"CONNECT 127.0.0.1:{server} HTTP/1.1\n\nGET /x HTTP/1.0\nHost: y\n\n"
    assert client.ask(request).endswith(b"/x y None")
    assert client.said == ["network: a connection could not be taken: Too many open files"]


@pytest.mark.long
def test_plain_http_to_a_listed_port(gated: Callable[..., Gated], server: int) -> None:
    """One request, for the host that was looked at, without what is meant for a proxy."""
    client = gated(f"localhost:{server}", addresses={"localhost": "127.0.0.1"})
    head = "Host: elsewhere\nProxy-Authorization: Basic x\nConnection: keep-alive\n\n"
    answer = client.ask(f"GET http://localhost:{server}/a?b=c HTTP/1.1\n{head}")
    assert answer.endswith(f"/a?b=c localhost:{server} None".encode())


@pytest.mark.parametrize("target", ROWS["everything_else_is_refused_and_not_looked_up"])
def test_everything_else_is_refused_and_not_looked_up(gated: Callable[..., Gated], target: str) -> None:
    client = gated("api.example.com", "api.example.com:81", addresses={})
    assert client.ask(f"{target} HTTP/1.1\n\n").startswith(b"HTTP/1.1 403")
    assert client.resolved == []
    assert len(client.said) == 1
    assert client.said[0].startswith("network: ")


def test_a_refusal_is_told_once_and_without_control_characters(gated: Callable[..., Gated]) -> None:
    client = gated("api.example.com")
    for _ in range(3):
        client.ask("CONNECT evil.org:443 HTTP/1.1\n\n")
    client.ask("CONNECT a\x1b[31m\x07b:443 HTTP/1.1\n\n")
    assert client.said[0] == "network: evil.org:443 is not one of the allowed hosts of this session: api.example.com"
    assert len(client.said) == 2
    assert client.said[1].isprintable()


@pytest.mark.long
def test_a_name_that_leads_home(gated: Callable[..., Gated], server: int) -> None:
    for address in ("127.0.0.1", "::1", "169.254.169.254", "::ffff:127.0.0.1"):
        client = gated(f"api.example.com:{server}", addresses={"api.example.com": address})
        assert client.ask(f"CONNECT api.example.com:{server} HTTP/1.1\n\n").startswith(b"HTTP/1.1 403")
        assert "which no session may reach" in client.said[0]


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What a host would have got; every connection leads to it."""
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


def client_hello(name: str) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("name", ["api.example.com", "evil.example.org"])
def test_tls_has_to_ask_for_the_host_that_was_named(
    gated: Callable[..., Gated], reached: list[bytes], name: str
) -> None:
    """Hosts that share an address with a listed one stay out of reach."""
    proxy = gated("api.example.com", addresses={"api.example.com": "93.184.216.34"})
    hello = client_hello(name)
    with proxy.connect() as client:
        client.sendall(b"CONNECT api.example.com:443 HTTP/1.1\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 200")
        client.sendall(hello[:50])
        client.sendall(hello[50:])
        if name == "api.example.com":
            until(lambda: b"".join(reached) == hello, 5)
        else:
            assert client.recv(100) == b""
            assert reached == []
            assert proxy.said == ["network: the connection to api.example.com asked for evil.example.org"]


def test_what_is_not_tls_does_not_pass_443(gated: Callable[..., Gated], reached: list[bytes]) -> None:
    client = gated("api.example.com", addresses={"api.example.com": "93.184.216.34"})
    client.ask("CONNECT api.example.com:443 HTTP/1.1\n\n", b"GET / HTTP/1.1\r\nHost: evil.org\r\n\r\n")
    assert b"".join(reached) == b""
    assert client.said == ["network: api.example.com received a request that is not TLS"]


def test_an_address_has_no_name_to_ask_for(gated: Callable[..., Gated], reached: list[bytes]) -> None:
    with gated("93.184.216.34").connect() as client:
        client.sendall(b"CONNECT 93.184.216.34:443 HTTP/1.1\r\n\r\nhello")
        until(lambda: b"".join(reached) == b"hello", 5)


def test_the_next_address_is_tried(
    gated: Callable[..., Gated], reached: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, tried = socket.create_connection, list[str]()

    def fails_once(address: tuple[str, int], timeout: float) -> socket.socket:
        tried.append(address[0])
        if len(tried) == 1:
            raise OSError("no route")
        return connect(address, timeout)

    monkeypatch.setattr(socket, "create_connection", fails_once)
    proxy = gated("api.example.com", addresses={"api.example.com": "93.184.216.34,93.184.216.35"})
    with proxy.connect() as client:
        client.sendall(b"CONNECT api.example.com:443 HTTP/1.1\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 200")
    assert tried == ["93.184.216.34", "93.184.216.35"]


@pytest.mark.parametrize(
    "begins", [b"", b"CONNECT api.example.com:443 HTTP/1.1\r\n\r\n\x16\x03\x01\xff\xff\1\xff\xff\xff"]
)
def test_who_says_too_much_before_it_begins_is_cut_off(
    gated: Callable[..., Gated], reached: list[bytes], monkeypatch: pytest.MonkeyPatch, begins: bytes
) -> None:
    monkeypatch.setattr(gate, "MAX_HEAD_BYTES", 100)
    proxy = gated("api.example.com", addresses={"api.example.com": "93.184.216.34"})
    with proxy.connect() as client:
        client.sendall(begins)
        assert not begins or client.recv(100).startswith(b"HTTP/1.1 200")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # cut off while it speaks
            until(lambda: client.send(b"x" * 10) and bool(select.select([client], [], [], 0)[0]), 5)
    assert reached == []


def test_connections_are_counted(gated: Callable[..., Gated], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "MAX_CONNECTIONS", 2)
    client = gated("api.example.com")
    first, second = client.connect(), client.connect()
    until(lambda: client.gate._slots._value == 0, 5)
    with client.connect() as third:
        assert third.recv(10) == b""
    first.close()
    second.close()
    until(lambda: client.gate._slots._value == 2, 5)
    assert client.ask("CONNECT evil.org:443 HTTP/1.1\n\n").startswith(b"HTTP/1.1 403")


@pytest.mark.long
def test_an_idle_connection_is_closed(
    gated: Callable[..., Gated], server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "IDLE_SECONDS", 0.1)
    client = gated(f"127.0.0.1:{server}")
    began = time.monotonic()
    assert client.ask(f"CONNECT 127.0.0.1:{server} HTTP/1.1\n\n").startswith(b"HTTP/1.1 200")
    assert time.monotonic() - began < 3


def test_who_never_finishes_asking(gated: Callable[..., Gated], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "OPENING_SECONDS", 0.1)
    client = gated("api.example.com")
    assert client.ask("CONNECT api.exam").startswith(b"HTTP/1.1 502")
    assert client.ask("X" * (gate.MAX_HEAD_BYTES + 10)).startswith(b"HTTP/1.1 502")


@pytest.mark.long
def test_closing_cuts_every_connection(gated: Callable[..., Gated], server: int) -> None:
    proxy = gated(f"127.0.0.1:{server}")
    with proxy.connect() as client:
        client.sendall(f"CONNECT 127.0.0.1:{server} HTTP/1.1\r\n\r\n".encode())
        assert client.recv(100).startswith(b"HTTP/1.1 200")
        proxy.gate.close()
        assert client.recv(100) == b""
    assert not proxy.gate.path.parent.exists()
    with pytest.raises(OSError, match=r".+"):
        proxy.connect()
    proxy.gate.close()


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world(sandbox=best_sandbox())


FETCH = """
import urllib.request
def fetch(url, **more):
    try: print(urllib.request.build_opener(*more.values()).open(url, timeout=5).read().decode())
    except Exception as error: print(type(error).__name__, error)
"""


@pytest.mark.long
@needs_a_gate
def test_a_session_reaches_its_host_and_nothing_else(world: World, server: int) -> None:
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
        live.confine(replace(live.confinement, hosts=(f"127.0.0.1:{server}",)))
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
def test_the_gate_ends_with_its_command_and_leaves_the_exit_code_alone(world: World, server: int) -> None:
    codes = []

    def work(live: LiveSession) -> str:
        live.confine(replace(live.confinement, hosts=("api.example.com",)))
        for script in ("exit 7", "kill -9 $$", "cat; test -t 0"):
            codes.append(live.execute(["sh", "-c", script], cwd=live.folder).exit_code)
        return "done"

    began = set(Path("/tmp").glob("clawpy-gate-*"))
    world.run(work)
    assert codes == [7, 137, 1]
    assert set(Path("/tmp").glob("clawpy-gate-*")) <= began
    until(lambda: not [thread for thread in threading.enumerate() if thread.name == "clawpy-gate"], 5)


# Which hosts and addresses a session may reach: the decisions alone (SPEC 3.8).


def lets(entry: str, host: str, port: int = HTTPS) -> bool:
    return host_rules([entry])[0].matches(normal_host(host), port)


def admits(entry: str, address: str) -> bool:
    return host_rules([entry])[0].admits(ipaddress.ip_address(address))


@pytest.mark.parametrize(("entry", "host", "port", "through"), ROWS["which_hosts_an_entry_lets_through"])
def test_which_hosts_an_entry_lets_through(entry: str, host: str, port: int, through: bool) -> None:
    assert lets(entry, host, port) is through


@pytest.mark.parametrize(("entry", "address", "reached"), ROWS["which_addresses_a_host_may_have"])
def test_which_addresses_a_host_may_have(entry: str, address: str, reached: bool) -> None:
    assert admits(entry, address) is reached


@pytest.mark.parametrize("entry", ROWS["entries_that_are_no_hosts"])
def test_entries_that_are_no_hosts(entry: str) -> None:
    with pytest.raises(Refusal) as refused:
        host_rules([entry])
    assert refused.value.code == "bad_host"


@pytest.mark.parametrize("spelled", ROWS["addresses_in_other_spellings_are_no_names"])
def test_addresses_in_other_spellings_are_no_names(spelled: str) -> None:
    """A resolver would take them for addresses; here they match nothing."""
    with pytest.raises(ValueError, match=spelled):
        normal_host(spelled)


def test_hosts_on_the_operators_loopback() -> None:
    entries = ["api.example.com", "localhost:11434", "127.0.0.1:8080", "[::1]:9", "*.example.com", "10.0.0.1:80"]
    assert local_hosts(entries) == ["localhost:11434", "127.0.0.1:8080", "[::1]:9"]


@given(st.text(max_size=40))
def test_any_text_is_split_or_refused(text: str) -> None:
    try:
        host, port = split_address(text)
    except ValueError:
        return
    assert host == normal_host(host)
    assert 0 < port < 65_536


def hello(name: str | None) -> bytes:
    """How a real TLS client begins."""
    context = ssl.create_default_context()
    context.check_hostname = False
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


def test_the_name_a_tls_client_asks_for() -> None:
    assert server_name(hello("api.example.com")) == "api.example.com"
    assert server_name(hello(None)) == ""


def test_the_beginning_of_tls_in_pieces() -> None:
    client_hello = hello("api.example.com")
    assert all(server_name(client_hello[:size]) is None for size in range(1, len(client_hello)))
    body = client_hello[5:]
    records = b"".join(b"\x16\x03\x01" + len(part).to_bytes(2) + part for part in (body[:7], body[7:100], body[100:]))
    assert server_name(records) == "api.example.com"


@pytest.mark.parametrize(
    "begun", [b"GET / HTTP/1.1\r\n", b"\x17\x03\x03\0\1x", b"SSH-2.0-x", b"\x16\x03\x01\x00\x04\x02\0\0\0"]
)
def test_what_is_not_tls(begun: bytes) -> None:
    with pytest.raises(ValueError, match="not"):
        server_name(begun)


@given(st.binary(max_size=300))
def test_hostile_beginnings_do_no_harm(tail: bytes) -> None:
    begun = b"\x16\x03\x01" + (len(tail) + 4).to_bytes(2) + b"\x01" + len(tail).to_bytes(3) + tail
    try:
        assert isinstance(server_name(begun), str)
    except (ValueError, IndexError):
        return
