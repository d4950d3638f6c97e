"""Uvicorn's protocols with deadlines and a limit of connections.

Uvicorn waits without limit for a request that never ends, and for a client that never reads. Here each phase of a
request has a deadline, and a WebSocket that stalls can be closed at once.
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
"""The extension of a WebSocket's scope that closes it: `drop(code, reason)`."""

DROP_GRACE_S = 1.0
"""Seconds that a dropped client has to read the reason."""


class Connection(H11Protocol):
    """An HTTP connection. `waiting` has those connections of a server that are not being answered, the longest waiting
    first."""

    limits: ClassVar[Limits] = Limits()
    waiting: ClassVar[dict[Connection, None]] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a client. When it is one too many, the connection that has been waiting longest is closed, or this one
        if all others are being answered."""
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
        """Stop the timers."""
        self.waiting.pop(self, None)
        self._cancel_timers()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse a part of a request, and set the deadline of its next phase."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Finish a response, and set the deadline of the next request."""
        super().on_response_complete()
        self._watch()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand the connection over to the WebSocket protocol."""
        self._cancel_timers()
        self.waiting.pop(self, None)
        self._handed_on = True
        super().handle_websocket_upgrade(event)

    def pause_writing(self) -> None:
        """The client does not read: close the connection unless it does so in time."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(self.limits.unread_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP with the usual JSON error, and close the connection."""
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
        """Set the deadline for the phase of the request: head, body, or none while it is being answered."""
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
            self._deadline = self.loop.call_later(seconds, self._abort)

    def _abort(self) -> None:
        self.transport.abort()

    def _cancel_timers(self) -> None:
        for timer in (self._deadline, self._unread):
            if timer is not None:
                timer.cancel()
        self._deadline = self._unread = None


class PulseConnection(WebSocketsSansIOProtocol):
    """A WebSocket connection."""

    def handle_connect(self, event: Any) -> None:
        """Accept the handshake, and offer `drop` to the application."""
        super().handle_connect(event)
        if hasattr(self, "scope"):
            extensions: dict[str, Any] = self.scope["extensions"]
            extensions[DROP] = self.drop

    def drop(self, code: int, reason: str) -> None:
        """Send the close frame behind what the client has not read yet, and cut the connection soon after."""
        if self.transport.is_closing():
            self.transport.abort()
            return
        if not self.close_sent:
            self.conn.send_close(code, reason)
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
        self.loop.call_later(DROP_GRACE_S, self.transport.abort)
