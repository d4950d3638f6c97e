"""URLs and addresses that sessions may reach: http and https, public addresses, nothing of this machine. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import quote, urlsplit, urlunsplit

from engine.model import Refusal, sanitise

LONGEST_URL = 2_000
DEFAULT_PORTS = {"http": 80, "https": 443}

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_SHARED = ipaddress.ip_network("100.64.0.0/10")
_OUTSIDE_ASCII = re.compile(r"[^!-~]")


@dataclass(frozen=True, slots=True)
class Target:
    """A URL taken apart. `host` is lower case and ASCII, without brackets; `path` has the query."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def address(self) -> str:
        """`host`, with the port where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL as it is asked for."""
        return f"{self.scheme}://{self.address}{self.path}"


def target_of(url: str) -> Target:
    """Raises `Refusal` `bad_url` with what is wrong: only http and https, no credentials, no odd ports."""
    text = url.strip()
    if not text or len(text) > LONGEST_URL or sanitise(text) != text:
        raise _bad(url, f"must be plain text of at most {LONGEST_URL} characters")
    try:
        parts = urlsplit(text)
        port = parts.port
        host = (parts.hostname or "").rstrip(".")
        host = host if ":" in host else host.encode("idna").decode().lower()
    except (ValueError, UnicodeError):
        raise _bad(url, "is not a URL") from None
    if parts.scheme not in DEFAULT_PORTS:
        raise _bad(url, "must begin with https:// or http://")
    if not host or re.search(r"[^a-z0-9.:_-]", host):
        raise _bad(url, "names no host")
    if parts.username is not None or parts.password is not None:
        raise _bad(url, "has a user name or password in it")
    port = DEFAULT_PORTS[parts.scheme] if port is None else port
    if port not in DEFAULT_PORTS.values() and port < 1024:
        raise _bad(url, f"has port {port}, where no web server is")
    path = urlunsplit(("", "", parts.path or "/", parts.query, ""))
    path = path if path.startswith("/") and not path.startswith("//") else "/" + path.lstrip("/")
    return Target(parts.scheme, host, port, _OUTSIDE_ASCII.sub(lambda found: quote(found[0]), path))


def _bad(url: str, why: str) -> Refusal:
    return Refusal(
        "bad_url", f"{sanitise(url)[:200]!r} {why}", "give a full URL, for example https://docs.python.org/3/"
    )


def is_public(address: str) -> bool:
    """Whether an IP address is one of the internet's, whatever it is wrapped in: not this machine, its network, a
    link's, a carrier's, nor many at once."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo[1] if found.teredo else None)
        if inner is None and (found in _NAT64 or int(found) >> 32 == 0):
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
        if found.is_site_local:
            return False
    elif found in _SHARED:
        return False
    return found.is_global and not (
        found.is_multicast
        or found.is_private
        or found.is_loopback
        or found.is_link_local
        or found.is_unspecified
        or found.is_reserved
    )


def named(target: Target, allowed: Sequence[str]) -> bool:
    """Whether the operator's list has this host (`docs.python.org`, `*.readthedocs.io`, `localhost:3000`)."""
    return any(_is(target, entry) for entry in allowed)


def named_exactly(target: Target, allowed: Sequence[str]) -> bool:
    """The same without patterns: only such a host may be one of this machine or its network."""
    return any(_is(target, entry) for entry in allowed if "*" not in entry)


def _is(target: Target, entry: str) -> bool:
    entry = entry.strip().lower()
    if fnmatchcase(target.host, entry):
        return True
    return fnmatchcase(f"{target.host}:{target.port}", entry)
