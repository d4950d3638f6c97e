"""Through port 443 of the host gate passes only TLS to the host that was named (SPEC 3.8)."""

import socket
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.execution.sandbox.host_gate import read_server_name
from tests.execution.sandbox.gate_world import LISTED, PUBLIC_ADDRESS, GateOpener
from tests.support.checks import wait_until


def make_client_hello(name: str | None) -> bytes:
    """The first bytes of a real TLS client that asks for a host."""
    context = ssl.create_default_context()
    context.check_hostname = False
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


def test_tls_that_asks_for_the_host_that_was_named_passes_in_any_pieces(
    open_gate: GateOpener, received_by_host: list[bytes]
):
    hello = make_client_hello(LISTED)
    with open_gate(LISTED, addresses=PUBLIC_ADDRESS).tunnel() as client:
        client.sendall(hello[:50])
        client.sendall(hello[50:])
        wait_until(lambda: b"".join(received_by_host) == hello)


def test_tls_that_asks_for_another_host_of_the_same_address_is_cut(
    open_gate: GateOpener, received_by_host: list[bytes]
):
    gate = open_gate(LISTED, addresses=PUBLIC_ADDRESS)
    with gate.tunnel() as client:
        client.sendall(make_client_hello("evil.example.org"))
        assert client.recv(100) == b""
    with gate.tunnel() as client:
        client.shutdown(socket.SHUT_WR)
        assert client.recv(100) == b""
    assert received_by_host == []
    assert gate.reports == ["network: the connection to api.example.com asked for evil.example.org"]


def test_only_tls_passes_through_port_443(open_gate: GateOpener, received_by_host: list[bytes]):
    gate = open_gate(LISTED, addresses=PUBLIC_ADDRESS)
    gate.send("CONNECT api.example.com:443 HTTP/1.1\n\n", b"GET / HTTP/1.1\r\nHost: evil.org\r\n\r\n")
    assert b"".join(received_by_host) == b""
    assert gate.reports == ["network: api.example.com received a request that is not TLS"]


def test_a_tunnel_to_an_address_needs_no_tls_name(open_gate: GateOpener, received_by_host: list[bytes]):
    with open_gate("93.184.216.34").connect() as client:
        client.sendall(b"CONNECT 93.184.216.34:443 HTTP/1.1\r\n\r\nhello")
        wait_until(lambda: b"".join(received_by_host) == b"hello")


def test_the_name_is_unknown_until_all_its_bytes_are_there():
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
def test_bytes_that_are_not_tls_are_refused(beginning: bytes):
    with pytest.raises(ValueError, match="not"):
        read_server_name(beginning)


@given(st.binary(max_size=300))
def test_any_bytes_have_a_name_or_are_refused(tail: bytes):
    beginning = b"\x16\x03\x01" + (len(tail) + 4).to_bytes(2) + b"\x01" + len(tail).to_bytes(3) + tail
    try:
        assert isinstance(read_server_name(beginning), str)
    except ValueError:
        return
