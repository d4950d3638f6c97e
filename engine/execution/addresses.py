"""IP addresses, as text and as values. Two policies decide which of them a session may reach (SPEC 3.8).

- The web tools reach any host that a model names, but only on the public internet. `is_public` is therefore strict: an
  IPv6 address that embeds an IPv4 address is refused, because no web server needs one. The exception is NAT64: in a
  network without IPv4, a resolver returns such an address for each host that has IPv4 alone.
- The commands of a session reach the hosts that a person listed, which may be in a private network
  (`sandbox.host_rules`). An address is compared with the list there, so an embedded IPv4 address is unwrapped first,
  whatever its form: loopback stays loopback.
"""

from __future__ import annotations

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")


def parse_address(host: str) -> Address | None:
    """The address, if `host` is written as an address; else None."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def join_address(host: str, port: int) -> str:
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
