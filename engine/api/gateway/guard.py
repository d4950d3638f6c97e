"""Who gets in: one ASGI guard before everything, HTTP and WebSocket alike (SPEC 10.1).

In this order: a request that is one (400), to a Host that is ours (421), from no foreign page (403), with the token
(401), not too often (429), and small enough (413). Only then is anything of the program asked.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import traceback
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from engine.api.gateway.access import Access
from engine.api.gateway.addresses import Place
from engine.api.gateway.limits import Limits
from engine.model import Refusal
from engine.model.secrets import redact

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

ONCE = (b"host", b"authorization", b"origin", b"content-length", b"content-type", b"transfer-encoding")
"""Headers that may stand once: where two readers could each believe another one, neither is believed."""

BEARER = "bearer."
"""How a WebSocket of an allowed page, which can set no header, names the token among its subprotocols."""

ADDRESSES = 1024
"""So many addresses with wrong tokens are remembered."""

PLAIN = [
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
]


class Fault(Exception):
    """Why a request does not get in."""

    def __init__(self, status: int, code: str, message: str, fix: str = "", headers: dict[str, str] | None = None):
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.fix = fix
        self.headers = headers or {}

    def body(self) -> bytes:
        """The document of every refusal."""
        return json.dumps({"error": {"code": self.code, "message": self.message, "fix": self.fix}}).encode()


class Bucket:
    """So many a second, and so many at once."""

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate, self._burst = rate, burst
        self._left, self._at = burst, now

    def take(self, now: float) -> float:
        """0 when one is left, which is then taken; else the seconds until the next."""
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left >= 1:
            self._left -= 1
            return 0.0
        return (1 - self._left) / self._rate


class Guard:
    """The guard. One event loop."""

    def __init__(
        self, app: App, access: Access, place: Place, limits: Limits, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._app = app
        self._access = access
        self.place = place
        self._limits = limits
        self._clock = clock
        self._requests = Bucket(limits.requests, limits.burst, clock())
        self._failures: OrderedDict[str, Bucket] = OrderedDict()
        self.refused = 0
        """Requests that did not get in."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] not in ("http", "websocket"):
            return
        origin = ""
        try:
            headers = _headers(scope, self._limits)
            origin = self._of_this_house(scope, headers)
            if origin and scope["type"] == "http" and _is_preflight(scope, headers):
                await _answer(send, 204, _cross_origin(origin, preflight=True), b"")
                return
            by_pass = await self._known(scope, headers)
            if scope["type"] == "http":
                receive = await self._body(headers, receive, empty=by_pass)
        except Fault as fault:
            self.refused += 1
            await _refuse(scope, send, fault, _cross_origin(origin))
            return
        await self._inside(scope, receive, send, _cross_origin(origin))

    async def _inside(self, scope: Scope, receive: Receive, send: Send, more: list[tuple[bytes, bytes]]) -> None:
        began = False

        async def tell(message: Message) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began = True
                message["headers"] = [*message.get("headers", ()), *PLAIN[1:], *more]
            await send(message)

        try:
            await self._app(scope, receive, tell)
        except Exception as error:
            # What went wrong is for the log; it may hold anything, so the caller learns its kind.
            log.error("a request to the gateway failed\n%s", redact(traceback.format_exc()))
            if scope["type"] == "http" and not began:
                said = f"{type(error).__name__}: this is a bug; see the log"
                await _refuse(scope, send, Fault(500, "internal", said), more)

    def _of_this_house(self, scope: Scope, headers: dict[bytes, bytes]) -> str:
        """The Origin, when the settings allow that page; "" without one. Raises `Fault` for foreign hosts and pages."""
        host = headers.get(b"host", b"").decode("latin-1")
        if not self.place.answers_to(host):
            raise Fault(
                421,
                "foreign_host",
                "this gateway does not serve that host name",
                "if it should, add the name to gateway.hosts",
            )
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin in self.place.origins:
            return origin
        if b"origin" in headers:
            raise Fault(
                403,
                "foreign_origin",
                "requests from web pages are refused",
                "to allow this page, add its origin to gateway.origins",
            )
        if headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
            raise Fault(
                403,
                "cross_site",
                "requests from web pages are refused",
                "to allow this page, add its origin to gateway.origins",
            )
        return ""

    async def _known(self, scope: Scope, headers: dict[bytes, bytes]) -> bool:
        """Who it is is known; returns whether by a pass. Raises `Fault`."""
        method = scope.get("method", "GET")
        path = scope.get("raw_path", scope["path"].encode()).decode("latin-1")
        credential = _credential(scope, headers)
        by_pass = scope["type"] == "http" and await self._opens(credential, method, path)
        if self._access.admits(credential) or by_pass:
            if wait := self._requests.take(self._clock()):
                raise _too_many(wait)
            if by_pass and scope["query_string"]:
                raise _more_than_a_pass()
            return by_pass
        if wait := self._failure(str((scope.get("client") or ("",))[0])).take(self._clock()):
            raise _too_many(wait)
        raise Fault(
            401,
            "no_token",
            "the gateway's token is missing or wrong",
            "send `Authorization: Bearer TOKEN`; `clawpy token` shows it",
            {"www-authenticate": 'Bearer realm="clawpy"'},
        )

    async def _opens(self, credential: str, method: str, path: str) -> bool:
        """Whether it is a pass, which is spent with this. Raises `Fault`."""
        now = time.time()
        if not self._access.is_pass(credential, method=method, path=path, now=now):
            return False
        try:
            return await asyncio.to_thread(self._access.spend, credential, now=now)
        except Refusal as refusal:  # a pass that could open twice opens nothing
            raise Fault(503, refusal.code, refusal.message, refusal.fix) from refusal

    def _failure(self, address: str) -> Bucket:
        found = self._failures.pop(address, None)
        if found is None:
            found = Bucket(self._limits.failures, self._limits.failure_burst, self._clock())
        self._failures[address] = found
        while len(self._failures) > ADDRESSES:
            self._failures.popitem(last=False)
        return found

    async def _body(self, headers: dict[bytes, bytes], receive: Receive, *, empty: bool) -> Receive:
        """Read the body whole, so that what follows never waits for a slow sender. It may have to be `empty`."""
        stated = headers.get(b"content-length", b"0")
        if not stated.isdigit():
            raise Fault(400, "bad_request", "Content-Length is not a number")
        if len(stated) > 12 or int(stated) > self._limits.body:
            raise self._too_large()
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise Fault(415, "bad_request", "a compressed body is not accepted", "send it uncompressed")
        body = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                raise Fault(400, "bad_request", "the request ended early")
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self._limits.body:
                raise self._too_large()
        if empty and body:
            raise _more_than_a_pass()
        given: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def again() -> Message:
            return given.pop() if given else await receive()

        return again

    def _too_large(self) -> Fault:
        return Fault(413, "too_large", f"a request may have at most {self._limits.body} bytes", "send less at a time")


def _headers(scope: Scope, limits: Limits) -> dict[bytes, bytes]:
    """The headers by name. Raises `Fault` for what no client of good will sends."""
    target = scope.get("raw_path") or scope["path"].encode()
    if not target.startswith(b"/"):
        raise Fault(400, "bad_request", "the target must be a path")
    if len(scope["headers"]) > limits.headers:
        raise Fault(431, "too_large", f"a request may have at most {limits.headers} headers")
    size = len(target) + len(scope["query_string"]) + sum(len(name) + len(value) for name, value in scope["headers"])
    if size > limits.head:
        raise Fault(431, "too_large", f"the address and headers may have at most {limits.head} bytes")
    found: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in found and name in ONCE:
            raise Fault(400, "bad_request", f"the header {name.decode('latin-1')} appears twice")
        found[name] = value
    if b"transfer-encoding" in found and b"content-length" in found:
        raise Fault(400, "bad_request", "the body has two lengths")
    return found


def _credential(scope: Scope, headers: dict[bytes, bytes]) -> str:
    """What follows `Bearer`; of a WebSocket also a subprotocol `bearer.…`. Never a part of the address: addresses are
    kept in histories and logs."""
    kind, _, value = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    if kind.lower() == "bearer":
        return value.strip()
    for one in scope.get("subprotocols", ()):
        if one.startswith(BEARER):
            return str(one[len(BEARER) :])
    return ""


def _is_preflight(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    return scope["method"] == "OPTIONS" and b"access-control-request-method" in headers


def _cross_origin(origin: str, *, preflight: bool = False) -> list[tuple[bytes, bytes]]:
    """What lets an allowed page read the answer."""
    if not origin:
        return []
    told = [(b"access-control-allow-origin", origin.encode("latin-1")), (b"vary", b"Origin")]
    if preflight:
        told += [
            (b"access-control-allow-methods", b"GET, POST, PATCH"),
            (b"access-control-allow-headers", b"authorization, content-type"),
            (b"access-control-max-age", b"600"),
        ]
    return told


def _more_than_a_pass() -> Fault:
    """A pass went through other people's hands: another prompt, say, does not come in with it."""
    return Fault(403, "pass_alone", "a pass is valid for exactly this path", "use the token instead")


def _too_many(wait: float) -> Fault:
    seconds = max(1, round(wait + 0.5))
    return Fault(
        429, "too_many", "too many requests", f"wait {seconds} s and send fewer requests", {"retry-after": str(seconds)}
    )


async def _refuse(scope: Scope, send: Send, fault: Fault, more: list[tuple[bytes, bytes]]) -> None:
    headers = [*((name.encode(), value.encode()) for name, value in fault.headers.items()), *PLAIN, *more]
    if scope["type"] == "websocket":
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 1008, "reason": fault.code})
            return
        body = fault.body()
        await send({"type": "websocket.http.response.start", "status": fault.status, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": body})
        return
    # Whatever else comes on this connection was sent by someone who did not get in.
    await _answer(send, fault.status, [*headers, (b"connection", b"close")], fault.body())


async def _answer(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    length = [(b"content-length", str(len(body)).encode())] if status != 204 else []
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *length]})
    await send({"type": "http.response.body", "body": body})
