"""The gateway's own thread: one event loop, one listening socket, uvicorn between them.

The engine is synchronous and called from worker threads of this loop; no port of it is called on the loop itself. The
socket is bound before anything else, so that a port that is taken is a refusal and not the end of the program.
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

from engine.api.gateway.addresses import ListenAddress
from engine.api.gateway.certificate import check_pair
from engine.api.gateway.connections import Connection, PulseConnection
from engine.api.gateway.guard import Guard
from engine.api.gateway.limits import Limits
from engine.config.gateway import GatewaySettings
from engine.model import Refusal

log = logging.getLogger(__name__)

STARTS_WITHIN = 10.0
ENDS_WITHIN = 5.0
SEND_BUFFER = 128 * 1024
"""Bytes that the system keeps for a client who does not read."""

Along = Callable[[], Awaitable[None]]
"""What runs on the loop as long as it listens."""


class _Uvicorn(uvicorn.Server):
    """Uvicorn that takes no signals: they are the console's, or the headless engine's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Server:
    """Listens at `address` from `start` until `close`."""

    def __init__(self, app: Guard, address: ListenAddress, limits: Limits, along: Along) -> None:
        self.address = address
        self._app = app
        self._limits = limits
        self._along = along
        self._uvicorn: _Uvicorn | None = None
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._fault: BaseException | None = None

    def start(self) -> None:
        """Begin to listen. Raises `Refusal`: `port_taken`, `bad_address`, `bad_certificate`, `not_listening`."""
        if self.address.certificate:
            check_pair(self.address.certificate, self.address.certificate_key)
        listening = _bound(self.address)
        try:
            self.address = self.address.at(listening.getsockname()[1])
            config = self._config()
        except BaseException:
            listening.close()
            raise
        self._uvicorn = _Uvicorn(config)
        self._thread = threading.Thread(target=self._run, args=(listening,), name="clawpy-gateway", daemon=True)
        self._thread.start()
        if not self._ready.wait(STARTS_WITHIN) or self._fault is not None:
            self.close()
            raise Refusal("not_listening", f"the gateway did not start: {self._fault or 'it hangs'}", "see the log")

    @property
    def alive(self) -> bool:
        """Whether it listens still."""
        return self._thread is not None and self._thread.is_alive()

    def answer_to(self, settings: GatewaySettings) -> None:
        """Be called by the names, and from the pages, that these settings have."""
        self.address = self.address.called(settings)
        self._app.address = self.address

    def close(self) -> None:
        """Tell whoever is connected, and end. Safe to call twice."""
        if self._uvicorn is not None:
            self._uvicorn.should_exit = True
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(ENDS_WITHIN)
            self._thread = None

    def _config(self) -> uvicorn.Config:
        limits = self._limits
        _quiet_uvicorn()
        config = uvicorn.Config(
            self._app,
            http=type("LimitedConnection", (Connection,), {"limits": limits, "waiting": {}}),
            ws=PulseConnection,
            loop="asyncio",
            lifespan="off",
            interface="asgi3",
            log_config=None,
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
        asyncio.get_running_loop().set_exception_handler(_keep)
        server = self._uvicorn
        assert server is not None, "start makes it"
        serving = asyncio.create_task(server._serve([listening]))
        while not server.started and not serving.done():
            await asyncio.sleep(0.002)
        self._ready.set()
        beside: asyncio.Task[Any] = asyncio.ensure_future(self._along())
        try:
            await asyncio.wait({serving, beside}, return_when=asyncio.FIRST_COMPLETED)
            if beside.done() and not serving.done():
                log.error("the gateway's feed ended", exc_info=beside.exception())
                server.should_exit = True
            await serving
        finally:
            beside.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await beside


def _keep(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What goes wrong in no request's name is for the log; asyncio would write it to the terminal."""
    error = context.get("exception")
    log.warning("%s%s", context.get("message", "a fault"), "" if error is None else f": {type(error).__name__}")


def _bound(address: ListenAddress) -> socket.socket:
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


def _quiet_uvicorn() -> None:
    """Uvicorn writes addresses with their questions, and to the terminal where nobody listens: only faults are kept."""
    for name in ("uvicorn.error", "uvicorn.access", "uvicorn.asgi"):
        logging.getLogger(name).setLevel(logging.ERROR)
    root = logging.getLogger("uvicorn")
    root.propagate = False
    if not root.handlers:
        root.addHandler(logging.NullHandler())
