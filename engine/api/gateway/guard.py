"""Checks each request to the gateway, and counts it within the limits of clients (SPEC 10.1).

`Guard` checks in this order: the request is well-formed (400), then the Host (421), the Origin (403), the token (401),
the rate (429) and the size (413). `Server` serves the application behind it.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from dataclasses import dataclass
from typing import NoReturn

from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.api.gateway.access import Access, ListenAddress
from engine.frozen import frozen
from engine.model import Refusal
from engine.redaction import redact

log = logging.getLogger(__name__)

SINGLE_HEADERS = ("host", "authorization", "origin", "content-length", "content-type", "transfer-encoding")
"""Headers that may appear only once, because two programs could each use a different value."""

BEARER_PREFIX = "bearer."
"""The prefix of a WebSocket subprotocol that has the token. A web page needs this, because it cannot set headers."""

RESPONSE_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


@frozen
class GatewayLimits:
    """Limits of the gateway. They are generous for a phone, and stop a flood of requests."""

    max_body_bytes: int = 256 * 1024
    max_head_bytes: int = 64 * 1024
    """Maximum size of a request's line and headers."""
    head_seconds: float = 10.0
    """Time that a new connection has to send the head of a request."""
    body_seconds: float = 15.0
    max_connections: int = 512
    max_sockets: int = 256
    """Maximum number of WebSockets at a time."""
    requests_per_second: float = 100.0
    request_burst: int = 400
    """Maximum number of requests with the right token at once."""
    failures_per_second: float = 0.5
    """Maximum number of requests with a wrong token. Further ones get 429; requests with the right token are not
    affected."""
    failure_burst: int = 30
    max_slow_operations: int = 4
    """Maximum number of cycles and questions to the Twin in progress at once."""
    max_missed_events: int = 20_000
    """Maximum number of events that a client can resume after. A client that missed more is told to read the state
    again."""
    messages_per_second: float = 10.0
    message_burst: int = 20
    """Maximum number of messages from a WebSocket at once."""
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
        self._request_limit = RateLimit(limits.requests_per_second, limits.request_burst, time.monotonic())
        self._failure_limit = RateLimit(limits.failures_per_second, limits.failure_burst, time.monotonic())

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
                receive = await self._read_body(headers, receive, must_be_empty=with_pass)
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
        is_foreign = origin is not None
        if is_foreign or headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            message = "requests from web pages are refused"
            fix = "to allow this page, add its origin to gateway.origins"
            raise HttpRefusal(403, "foreign_origin" if is_foreign else "cross_site", message, fix)
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

    async def _read_body(self, headers: dict[str, str], receive: Receive, *, must_be_empty: bool) -> Receive:
        """Read the whole body, so that the application never waits for a slow sender. Content that comes where it
        `must_be_empty` is refused."""
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise HttpRefusal(415, "bad_request", "a compressed body is not accepted", "send it uncompressed")
        too_large = HttpRefusal(413, "too_large", f"a request may have at most {self._limits.max_body_bytes} bytes")
        if int(headers.get("content-length", 0)) > self._limits.max_body_bytes:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while (message := await receive())["type"] == "http.request":
                    body += message.get("body", b"")
                    if len(body) > self._limits.max_body_bytes:
                        raise too_large
                    if not message.get("more_body", False):
                        break
                else:
                    raise HttpRefusal(400, "bad_request", "the request ended early")
        except TimeoutError as error:
            raise HttpRefusal(400, "bad_request", "the body did not come in time") from error
        if must_be_empty and body:
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
