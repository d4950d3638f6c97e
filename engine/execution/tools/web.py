"""Reads the web for sessions: pages as text, and results of the search that the operator configured (SPEC 3.8).

An address of a page is http or https, without credentials (`parse_url`). A host that the operator did not list must be
on the public internet. A name is resolved once. Its addresses are checked, and the connection goes to one of these. So
it does not help an attacker if the name resolves to another address a moment later. Each redirect is checked in the
same way. No proxies, cookies or credentials are used. Size and time are limited, even if the server sends one byte a
minute.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import wait
from email.message import Message
from fnmatch import fnmatchcase
from html import unescape
from typing import Any
from urllib.parse import SplitResult, quote, urlencode, urljoin, urlsplit, urlunsplit

from engine.background import run_in_thread
from engine.config.settings import SettingsSource
from engine.execution.sandbox.host_rules import HTTPS, is_public, parse_address, resolve_by_system
from engine.files import read_table
from engine.frozen import frozen
from engine.model import Refusal
from engine.text import one_line, sanitise

FETCH_S = 20.0
"""Maximum seconds for a fetch, with its redirects."""

MAX_PAGE_BYTES = 2 * 1024 * 1024
"""Maximum number of bytes of a page that are read."""

MAX_REDIRECTS = 5
"""Maximum number of redirects that a fetch follows."""

MAX_HITS = 10
"""Maximum number of results of a search."""

_HEADERS = {
    "User-Agent": "clawpy-console",
    "Accept": "text/html,application/xhtml+xml,text/*,application/json;q=0.9,*/*;q=0.1",
    "Accept-Encoding": "gzip, identity",
    "Connection": "close",
}
_TEXT_KINDS = ("text/", "application/json", "application/xml", "application/javascript", "application/xhtml+xml")

OnStop = Callable[[Callable[[], None]], None]
"""A function that registers another function, which is called when the session ends."""

Resolve = Callable[[str, int], Sequence[str]]
"""A function that returns the IP addresses of a host and port. Raises OSError."""


# -- addresses of pages

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


# -- pages and hits


@frozen
class WebPage:
    """A page that was fetched."""

    url: str
    status: int
    kind: str
    """Its content type, text/plain if the server names none."""
    text: str
    moved_to: str = ""
    """The URL of another host to which the page redirects, and which was not fetched; "" for none."""


@frozen
class _Answer:
    """The answer of a server."""

    status: int
    headers: Message
    data: bytes

    @property
    def text(self) -> str:
        """The data, decoded by the character set that the server names."""
        try:
            return self.data.decode(self.headers.get_content_charset("utf-8"), errors="replace")
        except (LookupError, ValueError):
            return self.data.decode(errors="replace")


# -- requests


class RequestDeadline:
    """Ends one request when its time is over, even in the middle of a read. `end` ends it at once. Thread-safe."""

    def __init__(self, seconds: float, on_stop: OnStop) -> None:
        self._until = time.monotonic() + seconds
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._is_cut = False
        self._timer = threading.Timer(seconds, self.end)
        on_stop(self.end)

    def __enter__(self) -> RequestDeadline:
        self._timer.daemon = True
        self._timer.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._timer.cancel()

    @property
    def is_over(self) -> bool:
        """Whether the time is over, or the request was cut."""
        return self._is_cut or time.monotonic() >= self._until

    @property
    def seconds_left(self) -> float:
        """The seconds that are left. Raises TimeoutError if the time is over."""
        if self.is_over:
            raise TimeoutError
        return self._until - time.monotonic()

    def hold_socket(self, connection: socket.socket) -> None:
        """Remember the socket of the request, so that `end` can shut it down."""
        with self._lock:
            self._socket = connection
        if self._is_cut:
            self.end()

    def end(self) -> None:
        """End the request now."""
        self._is_cut = True
        with self._lock, contextlib.suppress(OSError):
            if self._socket is not None:
                # The method of a TLS socket would continue the connection without TLS.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


@frozen
class Web:
    """Fetches pages and searches.

    Every method raises `Refusal`: `bad_url`, `private_address`, `unreachable`, `no_text`.
    """

    settings: SettingsSource
    resolve: Resolve = resolve_by_system
    seconds: float = FETCH_S

    @property
    def has_search(self) -> bool:
        """Whether a search is configured."""
        return bool(self.settings.current.web.search_url)

    def refuse_private(self, target: WebTarget) -> None:
        """Raise `Refusal` `private_address` if the host is known to be private without asking a name server. `fetch`
        would refuse it, too, but only after the operator was asked."""
        if not self._may_be_private(target):
            check_public(target, find_known_addresses(target.host), "web.allow")

    def _may_be_private(self, target: WebTarget) -> bool:
        """Whether the host may be of this machine or its network: only if it is listed without a pattern."""
        return is_listed(target, [entry for entry in self.settings.current.web.allow if "*" not in entry])

    def fetch(self, url: str, *, is_allowed: Callable[[WebTarget], bool], on_stop: OnStop) -> WebPage:
        """Fetch the page at `url` as text.

        A redirect to a host that `is_allowed` refuses is not followed; the page then has only the URL of that host.
        `on_stop` receives the function that ends the request at once.
        """
        target = parse_url(url)
        with RequestDeadline(self.seconds, on_stop) as deadline:
            for _ in range(MAX_REDIRECTS + 1):
                answer = self._request_page(target, deadline, may_be_private=self._may_be_private(target))
                location = answer.headers.get("location", "")
                if answer.status not in (301, 302, 303, 307, 308) or not location:
                    return _make_page(target, answer)
                following = parse_url(urljoin(target.url, location))
                if following.host != target.host and not is_allowed(following):
                    return WebPage(target.url, answer.status, "", "", moved_to=following.url)
                target = following
        raise Refusal("unreachable", f"{target.host} redirects without end", "use another address")

    def search(self, query: str, *, on_stop: OnStop) -> list[str]:
        """The results of the search, which must be configured, each with its title, its URL and its text."""
        parts = urlsplit(self.settings.current.web.search_url)
        query = "&".join(filter(None, [parts.query, urlencode({"q": query, "format": "json"})]))
        # The operator configured this address, so it may be one of this machine.
        target = parse_url(urlunsplit((parts.scheme, parts.netloc, parts.path, query, "")))
        with RequestDeadline(self.seconds, on_stop) as deadline:
            answer = self._request_page(target, deadline, may_be_private=True)
        if answer.status != 200:
            message = f"the search answered {answer.status}"
            raise Refusal("unreachable", message, "try again later, or without searching")
        return _parse_hits(answer.text)

    def _request_page(self, target: WebTarget, deadline: RequestDeadline, *, may_be_private: bool) -> _Answer:
        """Request a page. Addresses of this machine and its network are refused unless `may_be_private`."""
        connection = http.client.HTTPConnection(target.host, target.port)
        try:
            addresses = self._resolve_host(target, deadline)
            if not may_be_private:
                check_public(target, addresses, "web.allow")
            connection.sock = _connect(target, addresses, deadline)
            connection.request("GET", target.path, headers=_HEADERS)
            response = connection.getresponse()
            return _Answer(response.status, response.headers, _read_body(response, deadline))
        except (OSError, UnicodeError, http.client.HTTPException, zlib.error) as error:
            reason = "it took too long" if deadline.is_over else sanitise(str(error) or type(error).__name__)[:200]
            problem = f"{target.netloc} cannot be read: {reason}"
            raise Refusal("unreachable", problem, "try another address, or go on without it") from error
        finally:
            connection.close()

    def _resolve_host(self, target: WebTarget, deadline: RequestDeadline) -> list[str]:
        """The addresses of the host. They are asked for in a thread, because the resolver cannot be interrupted."""
        resolving = run_in_thread("clawpy-resolve", lambda: list(self.resolve(target.host, target.port)))
        while not resolving.done():
            wait([resolving], min(0.1, deadline.seconds_left))
        return resolving.result()


def _connect(target: WebTarget, addresses: Sequence[str], deadline: RequestDeadline) -> socket.socket:
    """Connect to the first of `addresses` that accepts a connection. The name is not resolved again."""
    problem = OSError("no address")
    for address in addresses:
        try:
            plain = socket.create_connection((address, target.port), timeout=min(10.0, deadline.seconds_left))
        except OSError as error:
            problem = error
            continue
        deadline.hold_socket(plain)
        plain.settimeout(deadline.seconds_left)
        if target.scheme == "http":
            return plain
        context = ssl.create_default_context()
        wrapped = context.wrap_socket(plain, server_hostname=target.host, do_handshake_on_connect=False)
        deadline.hold_socket(wrapped)
        wrapped.do_handshake()
        return wrapped
    raise problem


def _read_body(response: http.client.HTTPResponse, deadline: RequestDeadline) -> bytes:
    """Read at most `MAX_PAGE_BYTES` bytes of decompressed data. Some servers compress although nobody asked."""
    encoding = response.headers.get("content-encoding", "").strip().lower()
    unpack = zlib.decompressobj(wbits=47) if encoding in ("gzip", "x-gzip", "deflate") else None
    data = bytearray()
    while len(data) < MAX_PAGE_BYTES:
        if deadline.is_over:
            raise TimeoutError
        piece = response.read1(65_536)
        if not piece:
            break
        data += piece if unpack is None else unpack.decompress(piece, MAX_PAGE_BYTES - len(data))
    if deadline.is_over:
        raise TimeoutError  # a connection that was cut looks like one that ended
    return bytes(data[:MAX_PAGE_BYTES])


def _make_page(target: WebTarget, answer: _Answer) -> WebPage:
    """The page of an answer as text. Raises `Refusal` `no_text`."""
    kind, size = sanitise(answer.headers.get_content_type())[:60], len(answer.data)
    if not kind.startswith(_TEXT_KINDS) or b"\0" in answer.data[:2_000]:
        raise Refusal("no_text", f"{target.url} is {kind}, {size:,} bytes, no text", "fetch a page of text")
    text = answer.text
    is_untyped = "content-type" not in answer.headers
    if "html" in kind or (is_untyped and text.lstrip()[:100].lower().startswith(("<!doctype html", "<html"))):
        text = convert_html_to_text(text)
    cut = f"\n[only the first {MAX_PAGE_BYTES:,} bytes were read]" if size >= MAX_PAGE_BYTES else ""
    return WebPage(target.url, answer.status, kind, sanitise(text) + cut)


def _parse_hits(text: str) -> list[str]:
    try:
        answer: Any = json.loads(text)
    except (ValueError, RecursionError):
        answer = None
    results = answer.get("results") if isinstance(answer, dict) else None
    if not isinstance(results, list):
        raise Refusal("unreachable", "the search answered no results", "the operator can look at web.searchUrl")
    hits = [result for result in results if isinstance(result, dict)]
    return [_read_hit(result) for result in hits[:MAX_HITS]]


def _read_hit(result: dict[Any, Any]) -> str:
    values = map(result.get, ("title", "url", "content"))
    return "\n".join(one_line(value)[:1_000] for value in values if value and isinstance(value, str))


# -- pages as text
#
# A page may be hostile, and `html.parser` can take minutes for a few megabytes of broken HTML. So no pattern here
# searches beyond the next tag or the end of a comment, and the time is proportional to the length of the page.

_ELEMENTS = {name: frozenset(words.split()) for name, words in read_table(__file__, "html.toml").items()}

_HEADINGS = {f"h{level}": "\n\n" + "#" * level + " " for level in range(1, 7)}

_TEXT_AT_START = {
    **dict.fromkeys(_ELEMENTS["blocks"], "\n\n"), **_HEADINGS,
    "li": "\n- ", "br": "\n", "td": " | ", "th": " | ", "pre": "\n```\n",
}  # fmt: skip
"""The text that stands for the beginning of an element."""

_TEXT_AT_END = dict.fromkeys([*_ELEMENTS["blocks"], *_HEADINGS], "\n\n") | {"pre": "\n```\n"}
"""The text that stands for the end of an element."""

_TAG = re.compile(r"<!--.*?(?:-->|\Z)|<(?P<end>/?)(?P<tag>[a-zA-Z][\w:-]{0,40})(?P<rest>[^<>]*)>?|<[!?/][^<>]*>?", re.S)
_HIDDEN = re.compile(r"\shidden(?=[\s=/]|$)|\saria-hidden\s{0,9}=\s{0,9}[\"']?true", re.I)
"""Matches an attribute that hides its element."""

_TITLE = re.compile(r"<title[^<>]*>([^<]*)", re.I)
_ATTRIBUTES = {
    name: re.compile(rf"\s{name}\s{{0,9}}=\s{{0,9}}(?:\"([^\"]*)|'([^']*)|([^\s>]*))", re.I) for name in ("href", "alt")
}
"""Match an attribute with its value, by its name."""


def convert_html_to_text(html: str) -> str:
    """The text of a page: its title, then words, headings, lists and links. Scripts, styles and hidden elements are
    left out: nobody who looks at the page sees an instruction there. Broken HTML is no error."""
    page = _PageText()
    place = 0
    hidden_element = ""
    depth = 0  # of elements with the name of the hidden one, which may be nested
    for match in _TAG.finditer(f"{html}</html>"):  # the tag at the end has the rest of the text before it
        name, is_end = (match["tag"] or "").lower(), bool(match["end"])
        if depth:
            if name == hidden_element and (is_end or name not in _ELEMENTS["not_shown"]):
                depth += -1 if is_end else 1
        else:
            page.add_text(html[place : match.start()])
            if not is_end and _is_hidden(name, match["rest"] or ""):
                hidden_element, depth = name, 1
            else:
                page.add_tag(name, match["rest"] or "", is_end=is_end)
        place = match.end()
    title = _TITLE.search(html)
    return "\n\n".join(filter(None, [" ".join(unescape(title[1]).split()) if title else "", page.text()]))


def _is_hidden(name: str, attributes: str) -> bool:
    """Whether the element that a tag begins is not shown."""
    is_marked = name not in _ELEMENTS["open_ended"] and _HIDDEN.search(attributes) is not None
    return is_marked or name in _ELEMENTS["not_shown"]


class _PageText:
    """The text of a page, which grows tag by tag."""

    def __init__(self) -> None:
        self._pieces = ["\n"]
        self._link_targets: list[str] = []
        """The targets of the links that are open, "" for one that is not shown."""
        self._is_preformatted = False

    def add_text(self, text: str) -> None:
        """Add the text between two tags, which may have character references."""
        text = unescape(text)
        if not self._is_preformatted:
            text = re.sub(r"\s+", " ", text)
            text = text.lstrip() if self._pieces[-1][-1] in " \n" else text
        self._pieces += filter(None, [text])

    def add_tag(self, name: str, attributes: str, *, is_end: bool) -> None:
        """Add what stands for a tag. A comment has no name."""
        if name == "pre":
            self._is_preformatted = not is_end
        text = (_TEXT_AT_END if is_end else _TEXT_AT_START).get(name, "")
        if name == "a" and is_end:
            target = self._link_targets.pop() if self._link_targets else ""
            text = f" ({target})" if target else ""
        elif name == "a":
            target = _read_attribute("href", attributes)
            self._link_targets.append(target if target.startswith(("http://", "https://", "/")) else "")
        elif name == "img" and (alternative := _read_attribute("alt", attributes)):
            text = f"[{alternative}]"
        self._pieces += filter(None, [text])

    def text(self) -> str:
        """The text so far, without blank lines in a row."""
        lines = "".join(self._pieces).split("\n")
        return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in lines)).strip()


def _read_attribute(name: str, attributes: str) -> str:
    """The value of an attribute of a tag; "" without it."""
    match = _ATTRIBUTES[name].search(attributes)
    return unescape(match[match.lastindex or 0]).strip() if match else ""
