"""Which hosts and addresses commands and web tools may reach (SPEC 3.8)."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.execution.sandbox.host_rules import (
    PUBLIC,
    find_local_hosts,
    is_public,
    normalise_host,
    parse_address,
    parse_rules,
    split_host_and_port,
)
from tests.support import read_table
from tests.support.checks import refused

TABLE = read_table(__file__)


@pytest.mark.parametrize("entry, host, port, through", TABLE["an_entry_lets_these_hosts_through"])
def test_an_entry_lets_these_hosts_through(entry: str, host: str, port: int, through: bool):
    assert parse_rules([entry])[0].matches(normalise_host(host), port) is through


@pytest.mark.parametrize("entry, address, admitted", TABLE["an_entry_admits_these_addresses"])
def test_an_entry_admits_these_addresses(entry: str, address: str, admitted: bool):
    assert parse_rules([entry])[0].admits(ipaddress.ip_address(address)) is admitted


@pytest.mark.parametrize("entry", TABLE["an_entry_that_is_no_host_is_refused"])
def test_an_entry_that_is_no_host_is_refused(entry: str):
    refused("bad_host", lambda: parse_rules([entry]))


@pytest.mark.parametrize("spelled", TABLE["an_address_in_another_spelling_is_no_name"])
def test_an_address_in_another_spelling_is_no_name(spelled: str):
    """A resolver would take them for addresses; here they match nothing."""
    with pytest.raises(ValueError, match=spelled):
        normalise_host(spelled)


@pytest.mark.parametrize("address", TABLE["private_addresses"])
def test_private_addresses_are_not_public(address: str):
    parsed = parse_address(address)
    assert parsed is None or not is_public(parsed)


@pytest.mark.parametrize("text, is_for_pages", TABLE["public_ipv4_addresses_in_ipv6"])
def test_a_public_ipv4_address_in_ipv6_is_for_commands_and_only_as_nat64_for_pages(text: str, is_for_pages: bool):
    address = ipaddress.ip_address(text)
    assert is_public(address) is is_for_pages
    assert PUBLIC.admits(address)


def test_local_hosts_are_those_on_the_loopback():
    entries = ["api.example.com", "localhost:11434", "127.0.0.1:8080", "[::1]:9", "*.example.com", "10.0.0.1:80"]
    assert find_local_hosts(entries) == ["localhost:11434", "127.0.0.1:8080", "[::1]:9"]


@given(st.text(max_size=40))
def test_any_text_is_split_or_refused(text: str):
    try:
        host, port = split_host_and_port(text)
    except ValueError:
        return
    assert host == normalise_host(host)
    assert 0 < port < 65_536
