"""The server of the gateway: its thread with the event loop, its socket, its connections, the check of each request.

The engine is synchronous, so worker threads call it, never the event loop. The socket is bound before the thread
starts, so that a port in use raises a `Refusal`.

`Guard` checks each request in this order: it is well-formed (400), then the Host (421), the Origin (403), the token
(401), the rate (429) and the size (413).

`routes.build_server` builds a `Server` around the application with its `Guard`; `Gateway` starts and closes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import logging
import socket
import sys
import termios
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NoReturn

import h11
import uvicorn
from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from engine.api.gateway.access import Access, ListenAddress, check_certificate
from engine.frozen import frozen
from engine.model import Refusal
from engine.redaction import redact

log = logging.getLogger(__name__)

START_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 5.0
SEND_BUFFER_BYTES = 128 * 1024
"""Bytes in the system's send buffer for a client that does not read."""

SINGLE_HEADERS = ("host", "authorization", "origin", "content-length", "content-type", "transfer-encoding")
"""Headers that may appear only once, because two programs could each use a different value."""

BEARER_PREFIX = "bearer."
"""The prefix of a WebSocket subprotocol that has the token. A web page needs this, because it cannot set headers."""

RESPONSE_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


# -- limits of clients


@frozen
class GatewayLimits:
    """Limits of the gateway: sizes in bytes, times in seconds, rates per second. They are generous for a phone, and
    stop a flood of requests."""

    body: int = 256 * 1024
    head: int = 64 * 1024
    """Bytes of a request's line and headers."""
    head_seconds: float = 10.0
    """Time that a new connection has to send the head of a request."""
    body_seconds: float = 15.0
    connections: int = 512
    sockets: int = 256
    """Maximum number of WebSockets at a time."""
    requests: float = 100.0
    burst: int = 400
    """Maximum requests with the right token: a second, and at once."""
    failures: float = 0.5
    failure_burst: int = 30
    """Maximum requests with a wrong token: a second, and at once. Further ones get 429; requests with the right token
    are not affected."""
    slow_operations: int = 4
    """Maximum number of cycles and questions to the Twin in progress at once."""
    resume_events: int = 20_000
    """Maximum number of events that a client can resume after. A client that missed more is told to read the state
    again."""
    messages: float = 10.0
    message_burst: int = 20
    """Maximum messages from a WebSocket: a second, and at once."""
    subscribe_seconds: float = 10.0
    stall_seconds: float = 5.0
    """Time after which a WebSocket is closed if it does not read the messages that wait for it."""


@dataclass
class ClientCounts:
    """The number of WebSockets now, and of those that were closed because they did not read. Written by the gateway's
    event loop."""

    connected: int = 0
    dropped: int = 0


class RateLimit:
    """A limit of `rate` requests a second, and of `burst` at once. `now` is in seconds of one clock."""

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate, self._burst = rate, burst
        self._allowed, self._updated_at = burst, now

    def count_request(self, now: float) -> float:
        """Count a request and return 0 if it is allowed now, else return the seconds until one is."""
        self._allowed = min(self._burst, self._allowed + (now - self._updated_at) * self._rate)
        self._updated_at = now
        if self._allowed >= 1:
            self._allowed -= 1
            return 0.0
        return (1 - self._allowed) / self._rate


# -- the server


class Server(uvicorn.Server):
    """Listens at `address` from `start` until `close`. Meanwhile `background` runs on its event loop."""

    def __init__(
        self,
        guard: Guard,
        address: ListenAddress,
        limits: GatewayLimits,
        counts: ClientCounts,
        background: Callable[[], Awaitable[None]],
    ) -> None:
        """Bind the socket. Raises `Refusal`: `port_taken`, `bad_address`, `bad_certificate`."""
        if address.certificate:
            check_certificate(address.certificate, address.certificate_key)
        self._listening = _bind(address)
        self.address = replace(address, port=self._listening.getsockname()[1])
        self.guard = guard
        self.counts = counts
        self._background = background
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="clawpy-gateway", daemon=True)
        super().__init__(
            uvicorn.Config(
                guard,
                http=type("Connection", (_Connection,), {"limits": limits, "arrived": {}}),
                ws=type("WebSocket", (_WebSocket,), {"limits": limits, "counts": counts}),
                loop="asyncio",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                log_level="error",  # lower levels would log addresses
                access_log=False,
                server_header=False,
                proxy_headers=False,
                ws_max_size=limits.body,
                ws_per_message_deflate=False,
                h11_max_incomplete_event_size=limits.head,
                timeout_keep_alive=15,
                timeout_graceful_shutdown=2,
                ssl_certfile=address.certificate or None,
                ssl_keyfile=address.certificate_key or None,
            )
        )

    def start(self) -> None:
        """Begin to listen. Raises `Refusal` `not_listening`."""
        self._thread.start()
        if not self._ready.wait(START_TIMEOUT_S) or not self.started:
            self.close()
            raise Refusal("not_listening", "the gateway did not start", "see the log")

    @property
    def is_alive(self) -> bool:
        """Whether it still listens."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Close all connections and end the thread. Safe to call twice."""
        self.should_exit = True
        self._thread.join(STOP_TIMEOUT_S)

    def _run(self) -> None:
        try:
            with self._listening:
                asyncio.run(self.serve(sockets=[self._listening]))
        except BaseException:
            log.exception("the gateway ended")
        finally:
            self._ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do not handle signals: the console or the headless engine does that."""
        yield

    async def main_loop(self) -> None:
        """Serve until `close`, or until the background work fails."""
        asyncio.get_running_loop().set_exception_handler(_log_loop_error)
        self._ready.set()
        background = asyncio.ensure_future(self._background())
        serving = asyncio.ensure_future(super().main_loop())
        try:
            finished, _ = await asyncio.wait({serving, background}, return_when=asyncio.FIRST_COMPLETED)
            if background in finished:
                log.error("the gateway's feed ended", exc_info=background.exception())
        finally:
            background.cancel()
            serving.cancel()


# -- its connections


class _Connection(H11Protocol):
    """An HTTP connection, which is closed if no request comes. If there are too many connections, the oldest one that
    waits for a request or for the rest of one is closed, so that idle clients do not keep others out."""

    limits: ClassVar[GatewayLimits]
    arrived: ClassVar[dict[_Connection, None]]
    """The HTTP connections of the server, the oldest first."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.arrived[self] = None
        if len(self.connections) > self.limits.connections:
            waiting = (h11.IDLE, h11.SEND_BODY)
            idle = (connection for connection in self.arrived if connection.conn.their_state in waiting)
            oldest = next(idle)  # there is always one: this connection has no request yet
            self.arrived.pop(oldest)
            oldest.transport.abort()
        self.loop.call_later(self.limits.head_seconds, self._close_if_silent)

    def connection_lost(self, exc: Exception | None) -> None:
        self.arrived.pop(self, None)
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self.arrived.pop(self, None)
        super().handle_websocket_upgrade(event)

    def _close_if_silent(self) -> None:
        request: Any = self.cycle
        if request is None and self in self.connections:
            self.transport.abort()


class _WebSocket(WebSocketsSansIOProtocol):
    """A WebSocket that is closed if its client does not read, so that messages do not pile up."""

    limits: ClassVar[GatewayLimits]
    counts: ClassVar[ClientCounts]
    _cut_off_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.set_write_buffer_limits(high=0)  # the buffer of the operating system is enough

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_timer()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def handle_ping(self) -> None:
        """Answer a ping, unless the client does not read: it could send any number of pings."""
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()

    def _stop_timer(self) -> None:
        if self._cut_off_timer is not None:
            self._cut_off_timer.cancel()

    def _start_timer(self) -> None:
        waiting = self._count_waiting_bytes()
        self._cut_off_timer = self.loop.call_later(self.limits.stall_seconds, self._cut_off_unless_read, waiting)

    def _count_waiting_bytes(self) -> int:
        """The bytes that the client has not received, in the buffers of this process and of the system."""
        in_system = b""
        with contextlib.suppress(OSError):  # a system that does not tell, such as macOS
            in_system = fcntl.ioctl(self.transport.get_extra_info("socket"), termios.TIOCOUTQ, bytes(4))
        return self.transport.get_write_buffer_size() + int.from_bytes(in_system, sys.byteorder)

    def _cut_off_unless_read(self, waiting_before: int) -> None:
        if self._count_waiting_bytes() < waiting_before:  # the client reads slowly
            self._start_timer()
            return
        self.counts.dropped += 1
        self.transport.abort()


def _log_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log errors outside of requests. By default, asyncio writes them to the terminal."""
    error = context.get("exception")
    log.warning("%s%s", context.get("message", "a fault"), "" if error is None else f": {type(error).__name__}")


def _bind(address: ListenAddress) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # The protocol is given, because uvicorn sets TCP_NODELAY only on sockets that have one.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        listening.bind((address.host, address.port))
        listening.listen(1024)
    except OSError as error:
        listening.close()
        where = f"{address.host} port {address.port}"
        if error.errno == errno.EADDRINUSE:
            fix = "choose another; --port 0 finds a free one"
            raise Refusal("port_taken", f"{where} is used by another program", fix) from error
        fix = "name an address of this machine, and a port of 1024 or higher"
        raise Refusal("bad_address", f"{where} cannot be opened: {error.strerror or error}", fix) from error
    return listening


# -- the check of each request


class HttpRefusal(Refusal):
    """The refusal of a request, with its status and headers."""

    def __init__(self, status: int, code: str, message: str, fix: str = "", headers: dict[str, str] | None = None):
        super().__init__(code, message, fix)
        self.status = status
        self.headers = headers or {}

    async def answer(self, scope: Scope, receive: Receive, send: Send, headers: dict[str, str]) -> None:
        """Send the refusal."""
        if scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 1008, "reason": self.code})
            return
        # The sender was refused, so nothing more is read from this connection.
        connection = {"connection": "close"} if scope["type"] == "http" else {}
        response = JSONResponse(self.document(), self.status, self.headers | RESPONSE_HEADERS | headers | connection)
        await response(scope, receive, send)


class Guard:
    """The ASGI middleware that checks requests. For one event loop."""

    def __init__(self, app: ASGIApp, access: Access, address: ListenAddress, limits: GatewayLimits) -> None:
        self._app = app
        self._access = access
        self.address = address
        self._limits = limits
        self._request_limit = RateLimit(limits.requests, limits.burst, time.monotonic())
        self._failure_limit = RateLimit(limits.failures, limits.failure_burst, time.monotonic())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request (ASGI)."""
        cors_headers: dict[str, str] = {}
        try:
            headers = _read_headers(scope)
            if origin := self._check_origin(headers):
                cors_headers = {"access-control-allow-origin": origin, "vary": "Origin"}
            is_preflight = scope["type"] == "http" and scope["method"] == "OPTIONS"
            if origin and is_preflight and "access-control-request-method" in headers:
                allowed = {
                    "access-control-allow-methods": "GET, POST, PATCH",
                    "access-control-allow-headers": "authorization, content-type",
                    "access-control-max-age": "600",
                }
                await Response(status_code=204, headers=cors_headers | allowed)(scope, receive, send)
                return
            with_pass = await self._authenticate(scope, headers)
            if scope["type"] == "http":
                receive = await self._read_body(headers, receive, empty=with_pass)
        except HttpRefusal as refusal:
            await refusal.answer(scope, receive, send, cors_headers)
            return
        await self._run_app(scope, receive, send, cors_headers)

    async def _run_app(self, scope: Scope, receive: Receive, send: Send, cors_headers: dict[str, str]) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(RESPONSE_HEADERS | cors_headers)
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except Exception:
            # The application has answered already. The error goes only to the log, because it may contain secrets.
            log.error("a request to the gateway failed\n%s", redact(traceback.format_exc()))

    def _check_origin(self, headers: dict[str, str]) -> str:
        """The Origin of a request, if the settings allow it; "" for no Origin. Raises `HttpRefusal` for a foreign host
        or page."""
        if not self.address.answers_to(headers.get("host", "")):
            message = "this gateway does not serve that host name"
            raise HttpRefusal(421, "foreign_host", message, "if it should, add the name to gateway.hosts")
        origin = headers.get("origin")
        if origin in self.address.origins:
            return origin
        foreign = origin is not None
        if foreign or headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            message = "requests from web pages are refused"
            fix = "to allow this page, add its origin to gateway.origins"
            raise HttpRefusal(403, "foreign_origin" if foreign else "cross_site", message, fix)
        return ""

    async def _authenticate(self, scope: Scope, headers: dict[str, str]) -> bool:
        """Check the credential. Returns whether it was a pass. Raises `HttpRefusal`."""
        method = scope.get("method", "GET")
        path = scope.get("raw_path", scope["path"].encode()).decode("latin-1")
        credential = _find_credential(scope, headers)
        with_pass = scope["type"] == "http" and await self._redeem_pass(credential, method, path)
        if self._access.accepts(credential) or with_pass:
            self._count_request(self._request_limit)
            if with_pass and scope["query_string"]:
                _refuse_content_with_pass()
            return with_pass
        self._count_request(self._failure_limit)
        raise HttpRefusal(
            401,
            "no_token",
            "the gateway's token is missing or wrong",
            "send `Authorization: Bearer TOKEN`; `clawpy token` shows it",
            {"www-authenticate": 'Bearer realm="clawpy"'},
        )

    async def _redeem_pass(self, credential: str, method: str, path: str) -> bool:
        """Use the credential up if it is a pass for this request. Returns whether it is. Raises `HttpRefusal`."""
        now = time.time()
        if not self._access.is_pass(credential, method=method, path=path, now=now):
            return False
        try:
            return await asyncio.to_thread(self._access.spend, credential, now=now)
        except Refusal as refusal:  # its use cannot be stored, so it could be used twice
            raise HttpRefusal(503, refusal.code, refusal.message, refusal.fix) from refusal

    def _count_request(self, limit: RateLimit) -> None:
        """Count a request. Raises `HttpRefusal` if it is beyond the limit."""
        if wait := limit.count_request(time.monotonic()):
            seconds = max(1, round(wait + 0.5))
            fix = f"wait {seconds} s and send fewer requests"
            raise HttpRefusal(429, "too_many", "too many requests", fix, {"retry-after": str(seconds)})

    async def _read_body(self, headers: dict[str, str], receive: Receive, *, empty: bool) -> Receive:
        """Read the whole body, so that the application never waits for a slow sender. If `empty`, any content is
        refused."""
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise HttpRefusal(415, "bad_request", "a compressed body is not accepted", "send it uncompressed")
        too_large = HttpRefusal(413, "too_large", f"a request may have at most {self._limits.body} bytes")
        if int(headers.get("content-length", 0)) > self._limits.body:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while (message := await receive())["type"] == "http.request":
                    body += message.get("body", b"")
                    if len(body) > self._limits.body:
                        raise too_large
                    if not message.get("more_body", False):
                        break
                else:
                    raise HttpRefusal(400, "bad_request", "the request ended early")
        except TimeoutError as error:
            raise HttpRefusal(400, "bad_request", "the body did not come in time") from error
        if empty and body:
            _refuse_content_with_pass()
        pending: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def replay() -> Message:
            return pending.pop() if pending else await receive()

        return replay


def _read_headers(scope: Scope) -> dict[str, str]:
    """The headers by name. Raises `HttpRefusal` for headers that two programs could read differently."""
    headers: dict[str, str] = {}
    for raw, value in scope["headers"]:
        name = raw.decode("latin-1")
        if name in headers and name in SINGLE_HEADERS:
            raise HttpRefusal(400, "bad_request", f"the header {name} appears twice")
        headers[name] = value.decode("latin-1")
    if "transfer-encoding" in headers and "content-length" in headers:
        raise HttpRefusal(400, "bad_request", "the body has two lengths")
    return headers


def _find_credential(scope: Scope, headers: dict[str, str]) -> str:
    """The bearer token in the headers, or in the subprotocols of a WebSocket. It is never read from the URL, which
    appears in logs."""
    kind, _, value = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return value.strip()
    tokens = (
        protocol.removeprefix(BEARER_PREFIX)
        for protocol in scope.get("subprotocols", ())
        if protocol.startswith(BEARER_PREFIX)
    )
    return next(tokens, "")


def _refuse_content_with_pass() -> NoReturn:
    """Refuse a request with a pass that has other content, such as another prompt. Passes go through foreign servers,
    so the content may come from someone else."""
    raise HttpRefusal(403, "pass_alone", "a pass is valid for exactly this path", "use the token instead")
