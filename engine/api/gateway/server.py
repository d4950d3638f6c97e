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
from typing import Any

import uvicorn

from engine.api.gateway.addresses import ListenAddress, check_certificate
from engine.api.gateway.connections import Connection, PulseConnection
from engine.api.gateway.guard import Guard
from engine.api.gateway.limits import Limits
from engine.config.gateway import GatewaySettings
from engine.model import Refusal

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
