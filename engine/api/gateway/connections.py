"""What one connection may take of time and room: uvicorn's protocols with deadlines.

Uvicorn waits for ever for a request that never ends, and for a reader who never reads. Here each phase has a deadline,
there are only so many connections, and a WebSocket that stalls can be cut off at once.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from engine.api.gateway.limits import Limits

DROP = "clawpy.drop"
"""Under this name a WebSocket's scope holds the function that drops it: `drop(code, reason)`."""

PARTING_SECONDS = 1.0
"""So long a dropped client may take to read why."""


class Connection(H11Protocol):
    """An HTTP connection. `waiting` are those of one server that are not being answered, the longest waiting first."""

    limits: ClassVar[Limits] = Limits()
    waiting: ClassVar[dict[Connection, None]] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there. When that is one too many, the one that has kept the server waiting longest is sent away
        without a word, this one itself where all others are being answered."""
        super().connection_made(transport)
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._phase: Any = None
        self._handed_on = False
        if len(self.connections) > self.limits.connections:
            longest = next(iter(self.waiting), None)
            if longest is None:
                transport.abort()
                return
            self.waiting.pop(longest)
            longest.transport.abort()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self.waiting.pop(self, None)
        self._rest()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Some of a request."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """An answer was given; what came meanwhile is looked at."""
        super().on_response_complete()
        self._watch()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """From here on it is a WebSocket's connection."""
        self._rest()
        self.waiting.pop(self, None)
        self._handed_on = True
        super().handle_websocket_upgrade(event)

    def pause_writing(self) -> None:
        """The client does not read what it asked for."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(self.limits.unread_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """It does now."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def send_400_response(self, msg: str) -> None:
        """Answers what is not HTTP with an ordinary refusal, and hangs up."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        body = json.dumps(
            {"error": {"code": "bad_request", "message": "this is not an HTTP request", "fix": ""}}
        ).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _watch(self) -> None:
        """Set the deadline of the phase that the request is in: its head, its body, or none while it is answered."""
        if self._handed_on:
            return
        phase: Any = self.conn.their_state
        if phase not in (h11.IDLE, h11.SEND_BODY):
            self.waiting.pop(self, None)
        elif not self.transport.is_closing():
            self.waiting.setdefault(self)
        if phase is h11.IDLE and self.cycle is not None and not self.conn.trailing_data[0]:
            phase = None  # between two requests; uvicorn hangs up after a while
        if phase is self._phase:
            return
        self._phase = phase
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        seconds = {h11.IDLE: self.limits.head_seconds, h11.SEND_BODY: self.limits.body_seconds}.get(phase)
        if seconds is not None:
            self._deadline = self.loop.call_later(seconds, self._late)

    def _late(self) -> None:
        self.transport.abort()

    def _rest(self) -> None:
        for timer in (self._deadline, self._unread):
            if timer is not None:
                timer.cancel()
        self._deadline = self._unread = None


class PulseConnection(WebSocketsSansIOProtocol):
    """A WebSocket's connection."""

    def handle_connect(self, event: Any) -> None:
        """The handshake was read: hand on how to drop this client."""
        super().handle_connect(event)
        if hasattr(self, "scope"):
            extensions: dict[str, Any] = self.scope["extensions"]
            extensions[DROP] = self.drop

    def drop(self, code: int, reason: str) -> None:
        """Say why behind what it has not read yet, and cut it off soon after, whether it read that or not."""
        if self.transport.is_closing():
            self.transport.abort()
            return
        if not self.close_sent:
            self.conn.send_close(code, reason)
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
        self.loop.call_later(PARTING_SECONDS, self.transport.abort)
