"""Which hosts and addresses a session may reach: the decisions alone (SPEC 3.8)."""

from __future__ import annotations

import ipaddress
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.execution.sandbox.hosts import HTTPS, host_rules, local_hosts, normal_host, server_name, split_address
from engine.model import Refusal


def lets(entry: str, host: str, port: int = HTTPS) -> bool:
    return host_rules([entry])[0].matches(normal_host(host), port)


def admits(entry: str, address: str) -> bool:
    return host_rules([entry])[0].admits(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    ("entry", "host", "port", "through"),
    [
        ("api.example.com", "api.example.com", 443, True),
        ("api.example.com", "API.Example.com.", 443, True),
        ("api.example.com", "api.example.com", 80, False),
        ("api.example.com", "x.api.example.com", 443, False),
        ("api.example.com", "api.example.com.evil.org", 443, False),
        ("api.example.com", "apixexample.com", 443, False),
        ("*.example.com", "a.b.example.com", 443, True),
        ("*.example.com", "example.com", 443, False),
        ("*.example.com", "evilexample.com", 443, False),
        ("api.example.com:8443", "api.example.com", 8443, True),
        ("api.example.com:8443", "api.example.com", 443, False),
        ("127.0.0.1:11434", "127.0.0.1", 11434, True),
        ("127.0.0.1:11434", "127.0.0.2", 11434, False),
        ("[::1]:8080", "[0:0:0:0:0:0:0:1]", 8080, True),
        ("::1", "::1", 443, True),
    ],
)
def test_which_hosts_an_entry_lets_through(entry: str, host: str, port: int, through: bool) -> None:
    assert lets(entry, host, port) is through


@pytest.mark.parametrize(
    ("entry", "address", "reached"),
    [
        ("api.example.com", "93.184.216.34", True),
        ("api.example.com", "2606:4700::1", True),
        ("models.corp.example", "10.1.2.3", True),  # someone wrote that name down
        ("models.corp.example", "fd00::1", True),
        ("*.corp.example", "10.1.2.3", False),
        ("*.corp.example", "100.64.0.1", False),
        ("*.corp.example", "fd00::1", False),
        ("api.example.com", "127.0.0.1", False),
        ("api.example.com", "127.8.8.8", False),
        ("api.example.com", "0.0.0.0", False),
        ("api.example.com", "169.254.169.254", False),
        ("api.example.com", "::1", False),
        ("api.example.com", "fe80::1", False),
        ("api.example.com", "224.0.0.1", False),
        ("api.example.com", "255.255.255.255", False),
        ("api.example.com", "::ffff:127.0.0.1", False),
        ("api.example.com", "::ffff:169.254.169.254", False),
        ("api.example.com", "64:ff9b::a9fe:a9fe", False),
        ("api.example.com", "2002:7f00:1::1", False),
        ("localhost:11434", "127.0.0.1", True),
        ("localhost:11434", "10.0.0.1", False),
        ("127.0.0.1:11434", "127.0.0.1", True),
        ("127.0.0.1:11434", "127.0.0.2", False),
        ("169.254.169.254:80", "169.254.169.254", True),
    ],
)
def test_which_addresses_a_host_may_have(entry: str, address: str, reached: bool) -> None:
    assert admits(entry, address) is reached


@pytest.mark.parametrize(
    "entry",
    ["", "*", "*.com", "*.1.2.3.4", "a b", "http://x.org", "user@x.org", "x.org:0", "x.org:99999", "0x7f.1", "1"],
)
def test_entries_that_are_no_hosts(entry: str) -> None:
    with pytest.raises(Refusal) as refused:
        host_rules([entry])
    assert refused.value.code == "bad_host"


@pytest.mark.parametrize("spelled", ["0x7f000001", "0x7f.1", "2130706433", "127.1", "0177.0.0.1", "1.2.3"])
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
    "begun", [b"GET / HTTP/1.1\r\n", b"\x17\x03\x03", b"SSH-2.0-x", b"\x16\x03\x01\x00\x04\x02\0\0\0"]
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
