"""Through port 443 only TLS passes, and only to the host that was named when the tunnel was opened (SPEC 3.8)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.execution.sandbox.host_gate import read_server_name
from tests.execution.sandbox.open_gate import LISTED, PUBLIC_ADDRESS, GateOpener, make_client_hello
from tests.support.helpers import wait_until


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
