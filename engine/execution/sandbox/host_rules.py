"""The rules of which hosts a session may reach, and the forms of hosts, addresses and URLs (SPEC 3.8).

The commands of a session reach the hosts that a person listed. An entry is `name`, `*.domain`, `name:port`, an address,
or `[address]:port`. Without a port it is for 443. A listed name may have an address in a private network, because
somebody wrote it down. A name that only a `*` allows may not. Loopback, link-local addresses (where clouds keep
credentials) and multicast addresses are allowed only if the address itself is listed. For loopback, the entry
`localhost` is enough. An IPv4 address that an IPv6 address embeds is unwrapped before it is compared, whatever its
form: loopback stays loopback.

The web tools reach any host that a model names, but only on the public internet. `is_public` is therefore strict: an
IPv6 address that embeds an IPv4 address is refused, because no web server needs one. The exception is NAT64: in a
network without IPv4, a resolver returns such an address for each host that has IPv4 alone.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from fnmatch import fnmatchcase
from urllib.parse import SplitResult, quote, urlsplit, urlunsplit

from engine.frozen import frozen
from engine.model import Refusal, sanitise

HTTPS = 443

_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")


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
        shown = self.name if self.port == HTTPS else join_address(self.name, self.port)
        return f"*.{shown}" if self.wildcard else shown


PUBLIC = HostRule("", wildcard=True)
"""The rule for a workspace whose network is allowed: every public host at any port."""


def parse_rules(entries: Iterable[str]) -> tuple[HostRule, ...]:
    """The rules of configured entries. Raises `Refusal` `bad_host`."""
    return tuple(_parse_rule(entry) for entry in entries)


def find_local_hosts(entries: Iterable[str]) -> list[str]:
    """Those entries that are addresses on the operator's own loopback, as "host:port"."""
    return [
        join_address(rule.name, rule.port)
        for rule in parse_rules(entries)
        if not rule.wildcard and (rule.name == "localhost" or (rule.address is not None and rule.address.is_loopback))
    ]


def _parse_rule(entry: str) -> HostRule:
    wildcard = entry.startswith("*.")
    target = entry.removeprefix("*.")
    address = parse_address(target.strip("[]"))
    try:
        name, port = (str(address), HTTPS) if address is not None else split_address(target, HTTPS)
    except ValueError:
        raise Refusal(
            "bad_host", f"{entry!r} is not a host", "write name, *.domain, name:port or [address]:port"
        ) from None
    if wildcard and (parse_address(name) is not None or "." not in name):
        raise Refusal("bad_host", f"{entry!r} is too wide", "write a domain with at least two parts after the *")
    return HostRule(name, port, wildcard)


def split_address(target: str, default: int | None = None) -> tuple[str, int]:
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


# -- pages of the web

MAX_URL_CHARS = 2_000
"""Maximum number of characters of a URL."""

DEFAULT_PORTS = {"http": 80, "https": HTTPS}

_OUTSIDE_ASCII = re.compile(r"[^!-~]")


@frozen
class WebTarget:
    """The parts of the URL of a page."""

    scheme: str
    host: str
    """In lower case and ASCII, without brackets."""
    port: int
    path: str
    """The path with the query."""

    @property
    def netloc(self) -> str:
        """The host, with its port if that is not the default of the scheme."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL as it is requested."""
        return f"{self.scheme}://{self.netloc}{self.path}"


def parse_url(url: str) -> WebTarget:
    """Split a URL into its parts. Raises `Refusal` `bad_url` for another scheme than http or https, for credentials,
    and for a port below 1024 other than 80 and 443."""
    text = url.strip()
    if not text or len(text) > MAX_URL_CHARS or sanitise(text) != text:
        raise _make_bad_url_refusal(url, f"must be plain text of at most {MAX_URL_CHARS} characters")
    try:
        parts = urlsplit(text)
        port = parts.port
        host = parts.hostname or ""
        host = host if ":" in host else host.encode("idna").decode().lower()
        host = host.rstrip(".")  # after IDNA, which turns other full stops into dots
    except (ValueError, UnicodeError):
        raise _make_bad_url_refusal(url, "is not a URL") from None
    if problem := _find_url_problem(parts, host, port):
        raise _make_bad_url_refusal(url, problem)
    port = DEFAULT_PORTS[parts.scheme] if port is None else port
    path = urlunsplit(("", "", parts.path or "/", parts.query, ""))
    path = path if path.startswith("/") and not path.startswith("//") else "/" + path.lstrip("/")
    return WebTarget(parts.scheme, host, port, _OUTSIDE_ASCII.sub(lambda match: quote(match[0]), path))


def _find_url_problem(parts: SplitResult, host: str, port: int | None) -> str:
    """Why a URL is refused, as the end of a sentence; "" if it is not."""
    if parts.scheme not in DEFAULT_PORTS:
        return "must begin with https:// or http://"
    if not host or re.search(r"[^a-z0-9.:_-]", host):
        return "names no host"
    if parts.username is not None or parts.password is not None:
        return "has a user name or password in it"
    if port is not None and port < 1024 and port not in DEFAULT_PORTS.values():
        return f"has port {port}, where no web server is"
    return ""


def _make_bad_url_refusal(url: str, problem: str) -> Refusal:
    return Refusal(
        "bad_url", f"{sanitise(url)[:200]!r} {problem}", "give a full URL, for example https://docs.python.org/3/"
    )


def is_listed(target: WebTarget, allowed: Iterable[str]) -> bool:
    """Whether the host is in `allowed`, which has entries such as `docs.python.org`, `*.readthedocs.io` and
    `localhost:3000`. An entry without a port is for every port, unlike a `HostRule`."""
    entries = [entry.strip().lower() for entry in allowed]
    return any(fnmatchcase(name, entry) for entry in entries for name in (target.host, f"{target.host}:{target.port}"))


def resolve_by_system(host: str, port: int, flags: int = 0) -> list[str]:
    """The addresses of a host, from the resolver of the system."""
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=flags)
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


def find_known_addresses(host: str) -> list[str]:
    """The addresses of a host that is an address in any spelling, or a name of this machine; none for other names."""
    if host == "localhost" or host.endswith(".localhost"):
        return ["127.0.0.1"]
    try:
        return resolve_by_system(host, 0, socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return []


def check_public(target: WebTarget, addresses: Iterable[str], setting: str) -> None:
    """Raises `Refusal` `private_address` if one of the addresses is not on the public internet. `setting` is where the
    operator can list the host."""
    for text in addresses:
        address = parse_address(text)
        if address is None or not is_public(address):
            raise Refusal(
                "private_address",
                f"{text} is an address of this machine or its network; {setting} does not list {target.netloc}",
                "the operator can list it there",
            )
