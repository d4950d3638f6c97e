"""The port `engine.gateway`: opens and closes the gateway, and says where it listens (SPEC 10.1). Light until then."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from engine.api.gateway.access import THIS_RUN, Access
from engine.api.gateway.addresses import ListenAddress, ListenOptions, listen_address
from engine.api.gateway.limits import Limits
from engine.config.gateway import GatewaySettings
from engine.events import Event, GatewayClosed, GatewayOpened
from engine.frozen import frozen
from engine.model import Refusal

if TYPE_CHECKING:
    from engine.api.gateway.feed import Feed
    from engine.api.gateway.guard import Guard
    from engine.api.gateway.server import Server
    from engine.services import Services

log = logging.getLogger(__name__)


ENDED = "it stopped unexpectedly: see the log, then start it again"


@frozen
class GatewayState:
    """How it stands. `url` is "" when it does not listen; `words` say so, or how it is guarded, or why it failed;
    `token` where the token comes from; `clients` listen on WebSockets, `dropped` of them were too slow."""

    url: str = ""
    words: str = "off"
    token: str = ""
    clients: int = 0
    dropped: int = 0

    @property
    def listening(self) -> bool:
        return bool(self.url)


BuildApp = Callable[..., "Guard"]
"""`engine.api.gateway.api.build`, which is handed in: it stands on the operations, and they on the gateway's state."""


class Gateway:
    """Callable from any thread. `announce(url)` writes where it listens into the note of the engine that holds the
    home."""

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
        self._changing = threading.RLock()
        self._server: Server | None = None
        self._feed: Feed | None = None
        self._fault = ""
        self._by_setting: GatewaySettings | None = None
        """The settings it was opened by, None when somebody opened it himself."""
        self._fresh = ""
        self._closed = False

    def open(self, *, in_file: bool = False, **options: Any) -> str:
        """Listen; `options` are those of `ListenOptions`, over the settings. Returns what `reveal` does. `in_file`: the
        operator's consent to keep a token that is made now in a file of his own. What somebody opened stays as it is.

        Raises `Refusal`: `port_taken`, `bad_address`, `unsafe_address`, `no_certificate`, `bad_certificate`,
        `not_listening`, `weak_token`, and what the key stores raise.
        """
        with self._changing:
            if self._closed:
                return ""
            if self._server is not None:
                if self._by_setting is None or not any(value is not None for value in options.values()):
                    return self.reveal()
                self.close()  # the settings opened it, and this options goes over them
            try:
                settings = ListenOptions(**options).over(self._engine.settings.current.gateway)
                self._open(listen_address(settings), in_file)
            except Refusal as refusal:
                self._fault = f"{refusal.message}; {refusal.fix}" if refusal.fix else refusal.message
                raise
            self._fault, self._by_setting = "", None
            return self.reveal()

    def reveal(self) -> str:
        """A token that was made in this run and shown to nobody yet; "" from then on."""
        with self._changing:
            fresh, self._fresh = self._fresh, ""
            return fresh

    def close(self) -> None:
        """Listen no more. Safe to call twice."""
        with self._changing:
            server, self._server, self._feed = self._server, None, None
            self._by_setting = None
            if server is not None:
                self._announce("")
                server.close()
                self._record(GatewayClosed(subject=server.address.url))

    def end(self) -> None:
        """The engine ends: close, for good."""
        with self._changing:
            self._closed = True
            self.close()

    def switch(self, on: bool) -> str:
        """On or off, now and from now on: it is kept in the settings. Returns and raises as `open`."""
        with self._changing:
            self._engine.settings.set("gateway.enabled", on)
            if not on:
                self.close()
                self._fault = ""
                return ""
            fresh = self.open()
            self._by_setting = self._engine.settings.current.gateway
            return fresh

    def start(self) -> None:
        """Open it soon where the settings say so, without keeping anybody waiting."""
        if self._engine.settings.current.gateway.enabled:
            threading.Thread(target=self.follow, name="clawpy-gateway-opens", daemon=True).start()

    def follow(self) -> None:
        """Do what the settings say now; a fault is told once and tried again when they change. What somebody opened
        stays where it is, and is called as they say."""
        settings = self._engine.settings.current.gateway
        with self._changing:
            if self._server is not None and not self._server.alive:
                was = self._by_setting
                self.close()
                self._by_setting, self._fault = was, ENDED
                self._engine.report("gateway", ENDED)
            if self._server is not None:
                self._server.answer_to(settings)
            if self._by_setting is not None and _but_names(settings) != _but_names(self._by_setting):
                self.close()
                self._fault = ""
            if not settings.enabled or self._server is not None or (self._fault and self._by_setting == settings):
                return
            try:
                self._fresh = self.open()  # nobody is there to read it
            except Refusal as refusal:
                self._engine.report("gateway", f"{refusal.message}; {refusal.fix}")
            self._by_setting = settings

    def state(self) -> GatewayState:
        """How it stands now."""
        server, feed = self._server, self._feed
        if server is None or feed is None:
            return GatewayState(words=self._fault or "off")
        return GatewayState(
            url=server.address.url,
            words=_guarded(server.address, self._access.source),
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

        self._fresh = self._access.begin(in_file=in_file) or self._fresh
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


def _but_names(settings: GatewaySettings) -> GatewaySettings:
    """What it listens by: for another name, or another page, nobody has to be cut off."""
    return settings.model_copy(update={"hosts": (), "origins": ()})


def _guarded(address: ListenAddress, source: str) -> str:
    reach = (
        "this machine only"
        if address.local
        else "other machines too" + (", TLS" if address.certificate else ", by tunnel")
    )
    source_words = "token of this run only" if source == THIS_RUN else f"token in the {source}"
    return f"{reach}; {source_words}"
