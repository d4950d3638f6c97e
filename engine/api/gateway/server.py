"""The thread of the gateway with its event loop, its listening socket, and uvicorn.

The engine is synchronous: it is called from worker threads, never on the loop. The socket is bound first, so that a
port in use is a refusal.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, ClassVar

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from engine.api.gateway.addresses import Limits, ListenAddress, check_certificate
from engine.api.gateway.guard import Guard
from engine.config.sections import GatewaySettings
from engine.model import Refusal

# Uvicorn's protocols with deadlines and a limit of connections.
#
# Uvicorn waits without limit for a request that never ends, and for a client that never reads. Here each phase of a
# request has a deadline, and a WebSocket that stalls can be closed at once.


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


log = logging.getLogger(__name__)

START_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 5.0
SEND_BUFFER = 128 * 1024
"""Bytes in the system's send buffer for a client that does not read."""

BackgroundTask = Callable[[], Awaitable[None]]
"""Runs on the loop as long as the server listens."""


class _Uvicorn(uvicorn.Server):
    """Uvicorn without signal handlers: signals belong to the console or the headless engine."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Server:
    """Listens at `address` from `start` until `close`."""

    def __init__(self, app: Guard, address: ListenAddress, limits: Limits, background: BackgroundTask) -> None:
        self.address = address
        self._app = app
        self._limits = limits
        self._background = background
        self._uvicorn: _Uvicorn | None = None
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._fault: BaseException | None = None

    def start(self) -> None:
        """Start to listen. Raises `Refusal`: `port_taken`, `bad_address`, `bad_certificate`, `not_listening`."""
        if self.address.certificate:
            check_certificate(self.address.certificate, self.address.certificate_key)
        listening = _bind(self.address)
        try:
            self.address = self.address.with_port(listening.getsockname()[1])
            config = self._config()
        except BaseException:
            listening.close()
            raise
        self._uvicorn = _Uvicorn(config)
        self._thread = threading.Thread(target=self._run, args=(listening,), name="clawpy-gateway", daemon=True)
        self._thread.start()
        if not self._ready.wait(START_TIMEOUT_S) or self._fault is not None:
            self.close()
            raise Refusal("not_listening", f"the gateway did not start: {self._fault or 'it hangs'}", "see the log")

    @property
    def is_alive(self) -> bool:
        """Whether it still listens."""
        return self._thread is not None and self._thread.is_alive()

    def use_names_of(self, settings: GatewaySettings) -> None:
        """Take on the host names and origins of these settings."""
        self.address = self.address.with_names(settings)
        self._app.address = self.address

    def close(self) -> None:
        """Close all connections and end the thread. Safe to call twice."""
        if self._uvicorn is not None:
            self._uvicorn.should_exit = True
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(STOP_TIMEOUT_S)
            self._thread = None

    def _config(self) -> uvicorn.Config:
        limits = self._limits
        config = uvicorn.Config(
            self._app,
            http=type("LimitedConnection", (Connection,), {"limits": limits, "waiting": {}}),
            ws=PulseConnection,
            loop="asyncio",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="error",  # it would log addresses
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws_max_size=limits.body,
            ws_per_message_deflate=False,
            h11_max_incomplete_event_size=limits.head,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=2,
            ssl_certfile=self.address.certificate or None,
            ssl_keyfile=self.address.certificate_key or None,
        )
        config.load()
        return config

    def _run(self, listening: socket.socket) -> None:
        try:
            asyncio.run(self._serve(listening))
        except BaseException as error:
            log.exception("the gateway ended")
            self._fault = error
        finally:
            self._ready.set()
            listening.close()

    async def _serve(self, listening: socket.socket) -> None:
        asyncio.get_running_loop().set_exception_handler(_log_loop_error)
        server = self._uvicorn
        assert server is not None, "start makes it"
        serving = asyncio.create_task(server._serve([listening]))
        while not server.started and not serving.done():
            await asyncio.sleep(0.002)
        self._ready.set()
        background: asyncio.Task[Any] = asyncio.ensure_future(self._background())
        try:
            await asyncio.wait({serving, background}, return_when=asyncio.FIRST_COMPLETED)
            if background.done() and not serving.done():
                log.error("the gateway's feed ended", exc_info=background.exception())
                server.should_exit = True
            await serving
        finally:
            background.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await background


def _log_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log errors that belong to no request; asyncio would write them to the terminal."""
    error = context.get("exception")
    log.warning("%s%s", context.get("message", "a fault"), "" if error is None else f": {type(error).__name__}")


def _bind(address: ListenAddress) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # The protocol is named: uvicorn switches small packets' waiting off only where it stands.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind((address.host, address.port))
        listening.listen(1024)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        where = f"{address.host} port {address.port}"
        if error.errno == errno.EADDRINUSE:
            raise Refusal(
                "port_taken", f"{where} is used by another program", "choose another; --port 0 finds a free one"
            ) from error
        message = f"{where} cannot be opened: {error.strerror or error}"
        raise Refusal(
            "bad_address", message, "name an address of this machine, and a port of 1024 or higher"
        ) from error
    return listening
