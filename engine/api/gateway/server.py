"""The thread of the gateway with its event loop, its listening socket, and uvicorn.

The engine is synchronous: it is called from worker threads, never on the loop. The socket is bound first, so that a
port in use is a refusal.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from engine.api.gateway.addresses import Limits, ListenAddress, check_certificate
from engine.api.gateway.guard import Guard
from engine.model import Refusal

log = logging.getLogger(__name__)

START_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 5.0
SEND_BUFFER = 128 * 1024
"""Bytes in the system's send buffer for a client that does not read."""


class Server(uvicorn.Server):
    """Listens at `address` from `start` until `close`. `background` runs on its loop meanwhile."""

    def __init__(
        self, guard: Guard, address: ListenAddress, limits: Limits, background: Callable[[], Awaitable[None]]
    ) -> None:
        """Bind the socket. Raises `Refusal`: `port_taken`, `bad_address`, `bad_certificate`."""
        if address.certificate:
            check_certificate(address.certificate, address.certificate_key)
        self._listening = _bind(address)
        self.address = replace(address, port=self._listening.getsockname()[1])
        self.guard = guard
        self._background = background
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="clawpy-gateway", daemon=True)
        super().__init__(
            uvicorn.Config(
                guard,
                http=type("Connection", (_Connection,), {"head_seconds": limits.head_seconds}),
                ws="websockets-sansio",
                loop="asyncio",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                log_level="error",  # it would log addresses
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=limits.connections,
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
        """Start to listen. Raises `Refusal` `not_listening`."""
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
        """Handle no signals: they belong to the console or the headless engine."""
        yield

    async def main_loop(self) -> None:
        """Serve until `close`, or until the background work fails."""
        asyncio.get_running_loop().set_exception_handler(_log_loop_error)
        self._ready.set()
        background = asyncio.ensure_future(self._background())
        serving = asyncio.ensure_future(super().main_loop())
        try:
            done, _ = await asyncio.wait({serving, background}, return_when=asyncio.FIRST_COMPLETED)
            if background in done:
                log.error("the gateway's feed ended", exc_info=background.exception())
        finally:
            background.cancel()
            serving.cancel()


class _Connection(H11Protocol):
    """An HTTP connection, which is closed when nobody asks for anything on it."""

    head_seconds: float

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.loop.call_later(self.head_seconds, self._close_if_silent)

    def _close_if_silent(self) -> None:
        request: Any = self.cycle
        if request is None and self in self.connections:
            self.transport.abort()


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
