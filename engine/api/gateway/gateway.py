"""Opens and closes the gateway, as the settings or the operator say (SPEC 10.1). Imports no web server until then."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from engine.api.gateway.access import THIS_RUN, Access
from engine.api.gateway.addresses import Limits, ListenAddress, ListenOptions, listen_address
from engine.config.sections import GatewaySettings
from engine.events import Event, GatewayClosed, GatewayOpened
from engine.frozen import frozen
from engine.model import Refusal

if TYPE_CHECKING:
    from engine.api.gateway.feed import Feed
    from engine.api.gateway.guard import Guard
    from engine.api.gateway.server import Server
    from engine.services import Services

log = logging.getLogger(__name__)


STOPPED_WORDS = "it stopped unexpectedly: see the log, then start it again"


@frozen
class GatewayState:
    """The state of the gateway. `url` is "" while it does not listen; `words` says how it is protected, or why it
    does not listen; `token` is where the token is stored; `clients` counts WebSockets, `dropped` those that were too
    slow."""

    url: str = ""
    words: str = "off"
    token: str = ""
    clients: int = 0
    dropped: int = 0

    @property
    def listening(self) -> bool:
        return bool(self.url)


BuildApp = Callable[..., "Guard"]
"""`engine.api.gateway.api.build`. It is passed in, because it depends on the operations, which read the gateway's
state."""


class Gateway:
    """Opens the gateway. Callable from any thread. `announce(url)` publishes the address to other processes."""

    def __init__(
        self,
        engine: Services,
        build_app: BuildApp,
        *,
        announce: Callable[[str], None],
        limits: Limits | None = None,
    ) -> None:
        self._engine = engine
        self._build_app = build_app
        self._announce = announce
        self._limits = limits or Limits()
        self._access = Access(engine.keys, engine.database)
        self._state_lock = threading.RLock()
        self._server: Server | None = None
        self._feed: Feed | None = None
        self._fault = ""
        self._opened_by: GatewaySettings | None = None
        """The settings that opened it; None when the operator did."""
        self._new_token = ""
        self._closed = False

    def open(self, *, in_file: bool = False, **options: Any) -> str:
        """Listen, with `options` of `ListenOptions` over the settings. Returns what `take_new_token` does. `in_file`:
        the operator agrees to store a new token in a private file. A gateway that the operator opened stays as it is.

        Raises `Refusal`: `port_taken`, `bad_address`, `unsafe_address`, `no_certificate`, `bad_certificate`,
        `not_listening`, `weak_token`, and what the key stores raise.
        """
        with self._state_lock:
            if self._closed:
                return ""
            if self._server is not None:
                if self._opened_by is None or not any(value is not None for value in options.values()):
                    return self.take_new_token()
                self.close()  # the settings opened it, and this options goes over them
            try:
                settings = ListenOptions(**options).override(self._engine.settings.current.gateway)
                self._open(listen_address(settings), in_file)
            except Refusal as refusal:
                self._fault = f"{refusal.message}; {refusal.fix}" if refusal.fix else refusal.message
                raise
            self._fault, self._opened_by = "", None
            return self.take_new_token()

    def take_new_token(self) -> str:
        """A token that was made in this run and not shown yet; "" from then on."""
        with self._state_lock:
            fresh, self._new_token = self._new_token, ""
            return fresh

    def close(self) -> None:
        """Stop listening. Safe to call twice."""
        with self._state_lock:
            server, self._server, self._feed = self._server, None, None
            self._opened_by = None
            if server is not None:
                self._announce("")
                server.close()
                self._record(GatewayClosed(subject=server.address.url))

    def end(self) -> None:
        """Close for good: the engine ends."""
        with self._state_lock:
            self._closed = True
            self.close()

    def set_enabled(self, on: bool) -> str:
        """Switch the gateway on or off, and store that in the settings. Returns and raises as `open`."""
        with self._state_lock:
            self._engine.settings.set("gateway.enabled", on)
            if not on:
                self.close()
                self._fault = ""
                return ""
            fresh = self.open()
            self._opened_by = self._engine.settings.current.gateway
            return fresh

    def start(self) -> None:
        """Open it in a thread if the settings say so."""
        if self._engine.settings.current.gateway.enabled:
            threading.Thread(target=self.apply_settings, name="clawpy-gateway-opens", daemon=True).start()

    def apply_settings(self) -> None:
        """Open, close or rename as the settings say now. A fault is reported once, and tried again when they change. A
        gateway that the operator opened keeps its address, but takes on host names and origins."""
        settings = self._engine.settings.current.gateway
        with self._state_lock:
            if self._server is not None and not self._server.is_alive:
                was = self._opened_by
                self.close()
                self._opened_by, self._fault = was, STOPPED_WORDS
                self._engine.report("gateway", STOPPED_WORDS)
            if self._server is not None:
                self._server.use_names_of(settings)
            if self._opened_by is not None and _without_names(settings) != _without_names(self._opened_by):
                self.close()
                self._fault = ""
            if not settings.enabled or self._server is not None or (self._fault and self._opened_by == settings):
                return
            try:
                self._new_token = self.open()  # nobody is there to read it
            except Refusal as refusal:
                self._engine.report("gateway", f"{refusal.message}; {refusal.fix}")
            self._opened_by = settings

    def state(self) -> GatewayState:
        """The state now."""
        server, feed = self._server, self._feed
        if server is None or feed is None:
            return GatewayState(words=self._fault or "off")
        return GatewayState(
            url=server.address.url,
            words=_protection_words(server.address, self._access.source),
            token=self._access.source,
            clients=feed.clients,
            dropped=feed.dropped,
        )

    def pass_for(self, method: str, path: str, *, until: float) -> str:
        """A credential for one request alone, for instance a button of a notification: `method` and `path` as
        `POST /api/v1/predictions/ID/confirm`, valid until then (seconds since 1970). "" while nothing listens."""
        return self._access.pass_for(method, path, until=until) if self._server is not None else ""

    def _open(self, address: ListenAddress, in_file: bool) -> None:
        # Only here FastAPI and uvicorn are loaded: a console without a gateway never pays for them.
        from engine.api.gateway.feed import Feed
        from engine.api.gateway.server import Server

        self._new_token = self._access.load_or_make(in_file=in_file) or self._new_token
        feed = Feed(self._engine, self._access, self._limits)
        app = self._build_app(self._engine, self._access, feed, address, self._limits)
        server = Server(app, address, self._limits, feed.run)
        server.start()
        self._server, self._feed = server, feed
        self._announce(server.address.url)
        self._record(GatewayOpened(subject=server.address.url, words=self.state().words))

    def _record(self, fact: Event) -> None:
        try:
            self._engine.database.write(lambda tx: tx.record(fact))
        except Refusal as refusal:  # a full disk is no reason not to listen, nor to go on listening
            log.warning("%s could not be recorded: %s", fact.kind, refusal.message)


def _without_names(settings: GatewaySettings) -> GatewaySettings:
    """The settings that need a new socket when they change: host names and origins do not."""
    return settings.model_copy(update={"hosts": (), "origins": ()})


def _protection_words(address: ListenAddress, source: str) -> str:
    reach = (
        "this machine only"
        if address.is_local
        else "other machines too" + (", TLS" if address.certificate else ", by tunnel")
    )
    source_words = "token of this run only" if source == THIS_RUN else f"token in the {source}"
    return f"{reach}; {source_words}"
