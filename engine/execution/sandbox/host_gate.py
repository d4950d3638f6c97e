"""The filtering proxy through which a session reaches hosts (SPEC 3.8).

The proxy listens on a unix socket that is mounted into the session's sandbox, which has no network otherwise. It speaks
CONNECT, and plain HTTP for ports that are listed. It resolves names itself, and refuses everything that no `HostRule`
lets through. TLS goes through unread, but it has to ask for the host that was named: many hosts share an address, and
the address alone would lead to all of them.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import urlsplit

from engine.execution.sandbox.host_rules import (
    HTTPS,
    PUBLIC,
    HostRule,
    join_host_and_port,
    parse_address,
    parse_rules,
    resolve_by_system,
    split_host_and_port,
)
from engine.frozen import frozen
from engine.git.environment import get_temporary_folder
from engine.text import sanitise

MAX_CONNECTIONS = 64
"""Maximum number of connections at a time. More are refused."""

IDLE_TIMEOUT_S = 600.0
"""Seconds without data after which a connection is closed. A model may think for minutes."""

OPENING_TIMEOUT_S = 10.0
"""Seconds for each of these: a request line, the resolution of a name, a connection, the beginning of TLS."""

ACCEPT_RETRY_S = 0.2
"""Seconds until the next try to accept a connection after the machine had no descriptor left."""

MAX_HEAD_BYTES = 65_536
"""Maximum size of what a client sends before its request or its TLS greeting is complete."""

_CHUNK_BYTES = 65_536
"""Maximum number of bytes of one read."""

_MAX_REPORTED_REFUSALS = 50
"""Maximum number of different refusals in the transcript."""

Resolve = Callable[[str, int], list[str]]


# -- requests


def read_server_name(hello: bytes) -> str | None:
    """Read the host that a TLS client asks for in its first bytes: "" if it names none, None while bytes are missing.
    Raises ValueError if the bytes are not the beginning of TLS."""
    import ssl  # only tunnels need it

    names = []

    def note_name(connection: object, name: str | None, context: object) -> int:
        names.append((name or "").lower())
        return ssl.AlertDescription.ALERT_DESCRIPTION_HANDSHAKE_FAILURE  # it was all that we wanted to know

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = note_name
    incoming = ssl.MemoryBIO()
    incoming.write(hello)
    try:
        context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True).do_handshake()
    except ssl.SSLWantReadError:
        return None
    except ssl.SSLError:
        pass  # `note_name` ended it, or it is no TLS
    if not names:
        raise ValueError("not TLS")
    return names[0]


class _RequestRefused(Exception):
    """The request is refused; the text says what and why."""


@frozen
class _Request:
    """A request to the proxy."""

    host: str
    port: int
    tunnel: bool
    """Whether it asks for a connection (CONNECT), and not for one page."""
    forwarded: bytes = b""
    """The head as the host gets it, when it is no tunnel."""


def _parse_request(head: bytes) -> _Request:
    """The request with this head. Raises ValueError for what is no request to a proxy, and `_RequestRefused` for one
    that names no host."""
    first, *lines = head.split(b"\r\n")
    if any(b"\n" in line or b"\r" in line for line in (first, *lines)):
        raise ValueError("a line break within a header")
    words = first.decode("ascii", "replace").split(" ")
    if len(words) != 3:
        raise ValueError("the first line must have a method, an address and a version")
    method, target, version = words
    try:
        if method == "CONNECT":
            host, port = split_host_and_port(target)
            return _Request(host, port, tunnel=True)
        parts = urlsplit(target)
        if parts.scheme != "http":
            raise ValueError(target)
        host, port = split_host_and_port(parts.netloc, 80)
    except ValueError:
        raise _RequestRefused(f"{target[:200]} is not a host name") from None
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    # One request a connection, and for the host that was looked at.
    headers = [line for line in lines if not re.match(rb"(?:host|connection|proxy-[\w-]*)\s*:", line, re.IGNORECASE)]
    own_headers = [f"Host: {join_host_and_port(host, port)}".encode(), b"Connection: close"]
    forwarded = b"\r\n".join([f"{method} {path} {version}".encode(), *own_headers, *headers]) + b"\r\n\r\n"
    return _Request(host, port, tunnel=False, forwarded=forwarded)


class HostGate:
    """The proxy of one session; `close` ends it.

    `public`: every public host is allowed as well. `report` is called with one line for each host that was refused,
    once each, from any thread. Raises `Refusal` `bad_host`.
    """

    def __init__(
        self,
        hosts: Iterable[str],
        report: Callable[[str], None],
        resolve: Resolve = resolve_by_system,
        *,
        public: bool = False,
    ) -> None:
        self.rules: tuple[HostRule, ...] = (*parse_rules(hosts), *((PUBLIC,) if public else ()))
        self._report = report
        self._resolve = resolve
        self._reported_refusals: set[str] = set()
        self._open_connections: set[socket.socket] = set()
        self._slots = threading.Semaphore(MAX_CONNECTIONS)
        self._is_closed = False
        self._lock = threading.Lock()
        # In /tmp, which no session sees; and the path of a socket has room for a hundred characters. Only this user may
        # enter the folder.
        private = Path("/tmp").resolve()
        parent = get_temporary_folder().resolve()
        self._folder = Path(
            tempfile.mkdtemp(prefix="clawpy-gate-", dir=parent if parent.parent == private else private)
        )
        self.path = self._folder / "s"
        """The socket, for `Confinement.gate`."""
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(MAX_CONNECTIONS)
        threading.Thread(target=self._accept_connections, name="clawpy-gate", daemon=True).start()

    def close(self) -> None:
        """End it and every connection through it. Safe to call again."""
        with self._lock:
            self._is_closed = True
            connections = [*self._open_connections, self._listener]
        for connection in connections:
            with contextlib.suppress(OSError):  # not connected any more
                connection.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _accept_connections(self) -> None:
        """Serve each connection in a thread, until the gate is closed."""
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError as error:
                if self._is_closed:
                    return
                # For example, the machine has no file left. The gate goes on, or the session would have no network.
                self._report_once(f"a connection could not be taken: {error.strerror}")
                time.sleep(ACCEPT_RETRY_S)
                continue
            if self._slots.acquire(blocking=False):
                try:
                    serving = threading.Thread(target=self._serve_connection, args=(client,), name="clawpy-gate")
                    serving.daemon = True
                    serving.start()
                    continue
                except RuntimeError as error:  # the machine has no thread left
                    self._report_once(f"a connection could not be taken: {error}")
                    self._slots.release()
            client.close()

    def _serve_connection(self, client: socket.socket) -> None:
        """Connect a client to the host that it asks for, or refuse it."""
        with contextlib.ExitStack() as ending:
            ending.callback(self._slots.release)
            status, is_connected = "400 Bad Request", False
            try:
                self._track_connection(client, ending)
                client.settimeout(OPENING_TIMEOUT_S)
                request, unread = self._read_request(client)
                status = "502 Bad Gateway"
                rule = self._find_rule(request)
                server = self._connect_to_host(rule, request)
                self._track_connection(server, ending)
                is_connected = True  # from here on what the client gets is the host's
                if request.tunnel:
                    client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    unread = self._read_client_hello(client, request, unread)
                server.sendall(request.forwarded + unread)
                self._relay(client, server)
            except _RequestRefused as refused:
                self._report_once(str(refused))
                if not is_connected:
                    _send_answer(client, "403 Forbidden", str(refused))
            except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: the machine has no thread left
                if not is_connected:
                    _send_answer(client, status, str(error))

    def _track_connection(self, connection: socket.socket, ending: contextlib.ExitStack) -> None:
        """Keep a connection until its end, or until `close`."""
        ending.callback(connection.close)
        with self._lock:
            if self._is_closed:
                raise OSError("the session is over")
            self._open_connections.add(connection)
        ending.callback(self._open_connections.discard, connection)

    def _read_request(self, client: socket.socket) -> tuple[_Request, bytes]:
        """The request, and the bytes that came after its head. Raises as `_parse_request`."""
        head = b""
        until = time.monotonic() + OPENING_TIMEOUT_S
        while b"\r\n\r\n" not in head:
            chunk = client.recv(_CHUNK_BYTES)
            if not chunk or len(head) > MAX_HEAD_BYTES or time.monotonic() > until:
                raise ValueError("incomplete request")
            head += chunk
        head, _, unread = head.partition(b"\r\n\r\n")
        return _parse_request(head), unread

    def _find_rule(self, request: _Request) -> HostRule:
        """The entry that lets the request through. Raises `_RequestRefused` if there is none."""
        # A request without a tunnel is plain HTTP. The port of HTTPS is for tunnels only.
        if request.tunnel or request.port != HTTPS:
            for rule in self.rules:
                if rule.matches(request.host, request.port):
                    return rule
        rules = ", ".join(map(str, self.rules)) or "none"
        raise _RequestRefused(
            f"{join_host_and_port(request.host, request.port)} is not one of the allowed hosts of this session: {rules}"
        )

    def _connect_to_host(self, rule: HostRule, request: _Request) -> socket.socket:
        """Connect to an address of the host, if the rule admits all of them. Raises `_RequestRefused`, OSError."""
        where = join_host_and_port(request.host, request.port)
        problem = OSError("it has no address")
        try:
            texts = self._resolve(request.host, request.port)
            addresses = dict.fromkeys(ipaddress.ip_address(text.partition("%")[0]) for text in texts)
            for address in addresses:
                if not rule.admits(address):
                    raise _RequestRefused(f"{where} resolves to {address}, which no session may reach")
            for address in addresses:
                try:
                    return socket.create_connection((str(address), request.port), timeout=OPENING_TIMEOUT_S)
                except OSError as error:
                    problem = error
            raise problem
        except OSError as error:
            self._report_once(f"{where} cannot be reached: {error.strerror or error}")
            raise

    def _read_client_hello(self, client: socket.socket, request: _Request, received: bytes) -> bytes:
        """The beginning of what goes through a tunnel to 443, once it is TLS to the host that was named."""
        if request.port != HTTPS or parse_address(request.host) is not None:
            return received
        until = time.monotonic() + OPENING_TIMEOUT_S
        while not _asks_for_host(received, request.host):
            if len(received) > MAX_HEAD_BYTES or time.monotonic() > until:
                raise ValueError("incomplete TLS handshake")
            chunk = client.recv(_CHUNK_BYTES)
            if not chunk:
                raise ValueError("closed before TLS began")
            received += chunk
        return received

    def _relay(self, client: socket.socket, server: socket.socket) -> None:
        """Copy bytes both ways until both sides have ended, or nothing moves. Each way has a thread, because a side may
        not read before the other has read its answer."""
        last_moved = time.monotonic()

        def is_idle() -> bool:
            return time.monotonic() - last_moved >= IDLE_TIMEOUT_S

        def copy(source: socket.socket, sink: socket.socket) -> None:
            nonlocal last_moved
            try:
                while chunk := _receive(source, is_idle):
                    sink.sendall(chunk)
                    last_moved = time.monotonic()
                sink.shutdown(socket.SHUT_WR)
            except OSError:
                for side in (client, server):
                    with contextlib.suppress(OSError):  # not connected any more
                        side.shutdown(socket.SHUT_RDWR)

        for side in (client, server):
            side.settimeout(IDLE_TIMEOUT_S)
        answers = threading.Thread(target=copy, args=(server, client), name="clawpy-gate", daemon=True)
        answers.start()
        copy(client, server)
        answers.join()

    def _report_once(self, refusal: str) -> None:
        """Report a refusal, unless it was reported already."""
        with self._lock:
            if (
                self._is_closed
                or refusal in self._reported_refusals
                or len(self._reported_refusals) >= _MAX_REPORTED_REFUSALS
            ):
                return
            self._reported_refusals.add(refusal)
        self._report(f"network: {sanitise(refusal)}")


def _receive(source: socket.socket, is_idle: Callable[[], bool]) -> bytes:
    """The next bytes, b"" at the end. Raises TimeoutError if nothing came and the connection `is_idle`."""
    while True:
        try:
            return source.recv(_CHUNK_BYTES)
        except TimeoutError:
            if is_idle():
                raise


def _asks_for_host(received: bytes, host: str) -> bool:
    """Whether a TLS client asks for this host; False while bytes are missing. Raises `_RequestRefused` if it asks for
    another host, or if it is not TLS."""
    try:
        named_host = read_server_name(received) if received else None
    except ValueError:
        raise _RequestRefused(f"{host} received a request that is not TLS") from None
    if named_host is not None and named_host != host:
        raise _RequestRefused(f"the connection to {host} asked for {sanitise(named_host) or 'no host at all'}")
    return named_host is not None


def _send_answer(client: socket.socket, status: str, text: str) -> None:
    body = f"clawpy: {sanitise(text)}\n".encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    with contextlib.suppress(OSError):  # the client did not wait for the answer
        client.sendall(head.encode() + body)
