"""The server of the gateway: its thread with the event loop, its socket, its connections.

The engine is synchronous, so worker threads call it, never the event loop. The socket is bound before the thread
starts, so that a port in use raises a `Refusal`.

`routes.build_server` builds a `Server` around the application with its `Guard`; `Gateway` starts and closes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import logging
import socket
import ssl
import sys
import termios
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any, ClassVar

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from engine.api.gateway.access import HOW_TO_MAKE_PAIR, ListenAddress
from engine.api.gateway.guard import ClientCounts, GatewayLimits, Guard
from engine.model import Refusal
from engine.text import sanitise

log = logging.getLogger(__name__)

START_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 5.0
SEND_BUFFER_BYTES = 128 * 1024
"""Bytes in the system's send buffer for a client that does not read."""


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
            _check_certificate(address.certificate, address.certificate_key)
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
                ws_max_size=limits.max_body_bytes,
                ws_per_message_deflate=False,
                h11_max_incomplete_event_size=limits.max_head_bytes,
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


def _log_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log errors outside of requests. By default, asyncio writes them to the terminal."""
    error = context.get("exception")
    log.warning("%s%s", context.get("message", "a fault"), "" if error is None else f": {type(error).__name__}")


def _check_certificate(certificate: str, key: str) -> None:
    """Check that both can be loaded. OpenSSL would ask for a pass phrase on the terminal; this does not. Raises
    `Refusal` `bad_certificate`."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except OSError as error:  # `ssl.SSLError` is one
        reason = getattr(error, "reason", None) or error.strerror or error
        message = f"{certificate} with {key} cannot be used: {reason}"
        fix = f"name a certificate and its key, readable for you, in PEM form, without a passphrase; {HOW_TO_MAKE_PAIR}"
        raise Refusal("bad_certificate", sanitise(message), sanitise(fix)) from error


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
        endpoint = f"{address.host} port {address.port}"
        if error.errno == errno.EADDRINUSE:
            fix = "choose another; --port 0 finds a free one"
            raise Refusal("port_taken", f"{endpoint} is used by another program", fix) from error
        fix = "name an address of this machine, and a port of 1024 or higher"
        raise Refusal("bad_address", f"{endpoint} cannot be opened: {error.strerror or error}", fix) from error
    return listening


class _Connection(H11Protocol):
    """An HTTP connection, which is closed if no request comes. If there are too many connections, the oldest one that
    waits for a request or for the rest of one is closed, so that idle clients do not keep others out."""

    limits: ClassVar[GatewayLimits]
    arrived: ClassVar[dict[_Connection, None]]
    """The HTTP connections of the server, the oldest first."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.arrived[self] = None
        if len(self.connections) > self.limits.max_connections:
            waiting_states = (h11.IDLE, h11.SEND_BODY)
            idle = (connection for connection in self.arrived if connection.conn.their_state in waiting_states)
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
        waiting_bytes = self._count_waiting_bytes()
        self._cut_off_timer = self.loop.call_later(self.limits.stall_seconds, self._cut_off_unless_read, waiting_bytes)

    def _count_waiting_bytes(self) -> int:
        """The bytes that the client has not received, in the buffers of this process and of the system."""
        in_system = b""
        with contextlib.suppress(OSError):  # a system that does not tell, such as macOS
            in_system = fcntl.ioctl(self.transport.get_extra_info("socket"), termios.TIOCOUTQ, bytes(4))
        return self.transport.get_write_buffer_size() + int.from_bytes(in_system, sys.byteorder)

    def _cut_off_unless_read(self, former_waiting_bytes: int) -> None:
        if self._count_waiting_bytes() < former_waiting_bytes:  # the client reads slowly
            self._start_timer()
            return
        self.counts.dropped += 1
        self.transport.abort()
