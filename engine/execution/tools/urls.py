"""Parses and checks the URLs that a session gives to the web tools (SPEC 3.8)."""

from __future__ import annotations

import re
from urllib.parse import quote, urlsplit, urlunsplit

from engine.frozen import frozen
from engine.model import Refusal, sanitise

MAX_URL = 2_000
"""Maximum number of characters of a URL."""

DEFAULT_PORTS = {"http": 80, "https": 443}

_OUTSIDE_ASCII = re.compile(r"[^!-~]")


@frozen
class Target:
    """The parts of a URL."""

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


def parse_url(url: str) -> Target:
    """Split a URL into its parts. Raises `Refusal` `bad_url` for another scheme than http or https, for credentials,
    and for a port below 1024 other than 80 and 443."""
    text = url.strip()
    if not text or len(text) > MAX_URL or sanitise(text) != text:
        raise _bad_url(url, f"must be plain text of at most {MAX_URL} characters")
    try:
        parts = urlsplit(text)
        port = parts.port
        host = parts.hostname or ""
        host = host if ":" in host else host.encode("idna").decode().lower()
        host = host.rstrip(".")  # after IDNA, which turns other full stops into dots
    except (ValueError, UnicodeError):
        raise _bad_url(url, "is not a URL") from None
    if parts.scheme not in DEFAULT_PORTS:
        raise _bad_url(url, "must begin with https:// or http://")
    if not host or re.search(r"[^a-z0-9.:_-]", host):
        raise _bad_url(url, "names no host")
    if parts.username is not None or parts.password is not None:
        raise _bad_url(url, "has a user name or password in it")
    port = DEFAULT_PORTS[parts.scheme] if port is None else port
    if port not in DEFAULT_PORTS.values() and port < 1024:
        raise _bad_url(url, f"has port {port}, where no web server is")
    path = urlunsplit(("", "", parts.path or "/", parts.query, ""))
    path = path if path.startswith("/") and not path.startswith("//") else "/" + path.lstrip("/")
    return Target(parts.scheme, host, port, _OUTSIDE_ASCII.sub(lambda match: quote(match[0]), path))


def _bad_url(url: str, problem: str) -> Refusal:
    return Refusal(
        "bad_url", f"{sanitise(url)[:200]!r} {problem}", "give a full URL, for example https://docs.python.org/3/"
    )
