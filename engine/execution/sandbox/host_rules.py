"""The rules of which hosts a session may reach, and the forms of hosts and addresses (SPEC 3.8).

The commands of a session reach the hosts that a person listed. An entry is `name`, `*.domain`, `name:port`, an address,
or `[address]:port`. Without a port it is for 443. A listed name may have an address in a private network, because
somebody wrote it down. A name that only a `*` allows may not. Loopback, link-local addresses (where clouds keep
credentials) and multicast addresses are allowed only if the address itself is listed. For loopback, the entry
`localhost` is enough. An IPv4 address that an IPv6 address embeds is unwrapped before it is compared, whatever its
form: loopback stays loopback.

The web tools (`tools.web`) reach any host that a model names, but only on the public internet. `is_public` is therefore
strict: an IPv6 address that embeds an IPv4 address is refused, because no web server needs one. The exception is NAT64:
in a network without IPv4, a resolver returns such an address for each host that has IPv4 alone.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable

from engine.frozen import frozen
from engine.model import Refusal

HTTPS = 443
"""The port of an entry that names none."""

_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*")
"""A host name in lower case."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""The addresses by which networks without IPv4 reach it."""
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
"""The part of IPv6 that is the public internet."""


@frozen
class HostRule:
    """One entry of the list of hosts."""

    name: str
    """The name or address in lower case, without the `*.` of a `wildcard`; "" for every public host."""
    port: int = HTTPS
    wildcard: bool = False

    @property
    def address(self) -> Address | None:
        """The address, if the entry is an address; else None."""
        return parse_address(self.name)

    def matches(self, host: str, port: int) -> bool:
        """Whether this entry allows `host`, which has the form of `normalise_host`, at this port."""
        if not self.name:
            return True
        if port != self.port:
            return False
        return host.endswith(f".{self.name}") if self.wildcard else host == self.name

    def admits(self, address: Address) -> bool:
        """Whether a host that this entry allows may have this address."""
        address = unwrap_ipv4(address)
        if (listed := self.address) is not None:
            return address == unwrap_ipv4(listed)
        if self.name == "localhost" and not self.wildcard:
            return address.is_loopback
        if address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified:
            return False
        return address.is_global or not (self.wildcard or address.is_reserved)

    def __str__(self) -> str:
        if not self.name:
            return "every public host"
        shown = self.name if self.port == HTTPS else join_host_and_port(self.name, self.port)
        return f"*.{shown}" if self.wildcard else shown


PUBLIC = HostRule("", wildcard=True)
"""The rule for a workspace whose network is allowed: every public host at any port."""


def parse_rules(entries: Iterable[str]) -> tuple[HostRule, ...]:
    """The rules of configured entries. Raises `Refusal` `bad_host`."""
    return tuple(_parse_rule(entry) for entry in entries)


def find_local_hosts(entries: Iterable[str]) -> list[str]:
    """Those entries that are addresses on the operator's own loopback, as "host:port"."""
    return [
        join_host_and_port(rule.name, rule.port)
        for rule in parse_rules(entries)
        if not rule.wildcard and (rule.name == "localhost" or (rule.address is not None and rule.address.is_loopback))
    ]


def _parse_rule(entry: str) -> HostRule:
    """The rule of one configured entry. Raises `Refusal` `bad_host`."""
    wildcard = entry.startswith("*.")
    target = entry.removeprefix("*.")
    address = parse_address(target.strip("[]"))
    try:
        name, port = (str(address), HTTPS) if address is not None else split_host_and_port(target, HTTPS)
    except ValueError:
        raise Refusal(
            "bad_host", f"{entry!r} is not a host", "write name, *.domain, name:port or [address]:port"
        ) from None
    if wildcard and (parse_address(name) is not None or "." not in name):
        raise Refusal("bad_host", f"{entry!r} is too wide", "write a domain with at least two parts after the *")
    return HostRule(name, port, wildcard)


def split_host_and_port(target: str, default: int | None = None) -> tuple[str, int]:
    """Split `host:port`. The host gets the form of `normalise_host`. Raises ValueError for anything else."""
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\[\]:/@\s]+)(?::(\d{1,5}))?", target)
    if match is None or (match[2] is None and default is None):
        raise ValueError(target)
    port = int(match[2]) if match[2] is not None else default
    if port is None or not 0 < port < 65_536:
        raise ValueError(target)
    return normalise_host(match[1]), port


def normalise_host(host: str) -> str:
    """A host in a form for comparison: in lower case, without a dot at the end, and an address in its shortest form.

    Raises ValueError if it is neither a name nor an address, such as 0x7f.1, which a resolver may accept.
    """
    bare = host.strip("[]").rstrip(".").lower()
    if (address := parse_address(bare)) is not None:
        return str(address)
    last_label = bare.rpartition(".")[2]
    if not _NAME.fullmatch(bare) or last_label.isdigit() or re.fullmatch(r"0x[0-9a-f]*", last_label):
        raise ValueError(host)
    return bare


def parse_address(host: str) -> Address | None:
    """The address, if `host` is written as an address; else None."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def join_host_and_port(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_public(address: Address) -> bool:
    """Whether an address is on the public internet.

    Addresses of this machine, its network, a link or a carrier are not, nor are multicast addresses. Of IPv6, only
    global unicast addresses are, and public IPv4 addresses behind NAT64.
    """
    address = _unwrap_nat64(address)
    if isinstance(address, ipaddress.IPv6Address):
        return address.is_global and address in _GLOBAL_UNICAST and address.sixtofour is None
    return address.is_global and not address.is_multicast


def unwrap_ipv4(address: Address) -> Address:
    """The IPv4 address that is embedded in an IPv6 address, because a connection would go there; else the address
    itself."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address.sixtofour is not None:
            return address.sixtofour
    return _unwrap_nat64(address)


def _unwrap_nat64(address: Address) -> Address:
    if isinstance(address, ipaddress.IPv6Address) and address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def resolve_by_system(host: str, port: int, flags: int = 0) -> list[str]:
    """The addresses of a host, from the resolver of the system."""
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=flags)
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))
