"""The HTTP API and WebSocket of the engine, for a phone, a watch, a script or another agent (SPEC 10.1). Here `Gateway`
opens and closes it, by the settings or for the operator.

`Engine` has one `Gateway`, which imports the web server only when it opens. `access` says who may reach it. `server`
has the thread, the socket and the connections, and `guard` checks each request. `routes` has the routes, which carry
out operations, and `replies` describes their replies. `pulse` is the WebSocket. The gateway makes no decision of the
engine.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from engine.api.gateway.access import THIS_RUN, Access, make_listen_address
from engine.config.external_sections import GatewaySettings
from engine.events import Event
from engine.events.engine import GatewayClosed, GatewayOpened
from engine.frozen import frozen
from engine.home import Home
from engine.model import Refusal
from engine.settings_store import SettingsStore
from engine.text import sanitise

if TYPE_CHECKING:
    from engine.api.gateway.server import Server
    from engine.services import Services

log = logging.getLogger(__name__)

STOPPED = "it stopped unexpectedly: see the log, then start it again"


@frozen
class GatewayState:
    """The state of the gateway."""

    url: str = ""
    """"" if it does not listen."""
    description: str = "off"
    """How it is protected, or why it does not listen."""
    token_source: str = ""
    """The place where the token is stored, such as "keyring"; `THIS_RUN` if it is stored nowhere."""
    clients: int = 0
    """The number of WebSockets."""
    dropped: int = 0
    """The number of WebSockets that were closed because they did not read."""


BuildServer = Callable[..., "Server"]
"""The type of `routes.build_server`. The function is passed in, because it imports the operations, which read the
gateway's state."""


class Gateway:
    """Opens the gateway. Callable from any thread. `announce(url)` publishes the address to other processes."""

    def __init__(self, engine: Services, build_server: BuildServer, *, announce: Callable[[str], None]) -> None:
        self._engine = engine
        self._build_server = build_server
        self._announce = announce
        self._access = Access(engine.keys, engine.database)
        self._state_lock = threading.RLock()
        self._server: Server | None = None
        self._fault = ""
        self._is_pinned = False
        """Whether the operator opened the gateway. Then it keeps its address even if the settings change."""
        self._applied: GatewaySettings | None = None
        """The settings that were applied last."""
        self._new_token = ""
        self._closed = False

    def open(self, *, in_file: bool = False, **options: Any) -> str:
        """Listen, with `options` that override the settings (see `apply_options`). Returns as `take_new_token`.
        `in_file` is the operator's consent to store a new token in a private file. If the operator opened the gateway
        before, it stays as it is.

        Raises `Refusal`: `port_taken`, `bad_address`, `unsafe_address`, `no_certificate`, `bad_certificate`,
        `not_listening`, `weak_token`, and what the key stores raise.
        """
        with self._state_lock:
            has_options = any(value is not None for value in options.values())
            if self._server is None or (has_options and not self._is_pinned):
                self.close()  # it was opened by the settings, which these options override
                self._listen(apply_options(self._engine.settings.current.gateway, options), in_file=in_file)
                self._is_pinned = True
            return self.take_new_token()

    def take_new_token(self) -> str:
        """Return a token that was made in this run and not shown yet, else "". A token is returned only once."""
        with self._state_lock:
            fresh, self._new_token = self._new_token, ""
            return fresh

    def close(self) -> None:
        """Stop listening. Safe to call twice."""
        with self._state_lock:
            server, self._server = self._server, None
            self._is_pinned = False
            if server is not None:
                self._announce("")
                server.close()
                self._record(GatewayClosed(subject=server.address.url))

    def end(self) -> None:
        """Close permanently, because the engine ends."""
        with self._state_lock:
            self._closed = True
            self.close()

    def set_enabled(self, on: bool) -> str:
        """Switch the gateway on or off, and store that in the settings. Returns and raises as `open`."""
        with self._state_lock:
            self._engine.settings.set("gateway.enabled", on)
            self._applied = self._engine.settings.current.gateway
            if not on:
                self.close()
                self._fault = ""
            elif self._server is None:
                self._listen(self._applied)
            return self.take_new_token()

    def start(self) -> None:
        """Open it in a thread if the settings say so."""
        if self._engine.settings.current.gateway.enabled:
            threading.Thread(target=self.apply_settings, name="clawpy-gateway-opens", daemon=True).start()

    def apply_settings(self) -> None:
        """Open the gateway, close it, or change its host names and origins, by the present settings.

        An error is reported once; the next attempt is made when the settings change. A gateway that the operator opened
        keeps its address, but gets new host names and origins.
        """
        settings = self._engine.settings.current.gateway
        with self._state_lock:
            before, self._applied = self._applied, settings
            if self._server is not None and not self._server.is_alive:
                self.close()
                self._fault = STOPPED
                self._engine.report("gateway", STOPPED)
            needs_new_socket = before is not None and _clear_names(settings) != _clear_names(before)
            if needs_new_socket and not self._is_pinned:
                self.close()
                self._fault = ""
            has_failed_before = bool(self._fault) and settings == before
            if self._server is not None:
                self._server.guard.address = self._server.guard.address.replace_names(settings)
            elif settings.enabled and not has_failed_before:
                try:
                    self._listen(settings)
                except Refusal as refusal:
                    self._engine.report("gateway", f"{refusal.message}; {refusal.fix}")

    def state(self) -> GatewayState:
        """The present state."""
        server = self._server
        if server is None:
            return GatewayState(description=self._fault or "off")
        address, source, counts = server.address, self._access.source, server.counts
        reach = f"other machines too, {'TLS' if address.certificate else 'by tunnel'}"
        if address.is_local:
            reach = "this machine only"
        token = "token of this run only" if source == THIS_RUN else f"token in the {source}"
        return GatewayState(address.url, f"{reach}; {token}", source, counts.connected, counts.dropped)

    def issue_pass(self, method: str, path: str, *, until: float) -> str:
        """A credential for one request, such as `POST /api/v1/predictions/ID/confirm` of a button in a notification. It
        is valid until `until`, in seconds since 1970. "" if the gateway does not listen."""
        return self._access.issue_pass(method, path, until=until) if self._server is not None else ""

    def _listen(self, settings: GatewaySettings, *, in_file: bool = False) -> None:
        """Open the server, and publish its address. Why that fails is shown until it succeeds. Raises as `open`."""
        if self._closed:
            return
        try:
            address = make_listen_address(settings)
            self._new_token = self._access.load_or_make(in_file=in_file) or self._new_token
            # FastAPI and uvicorn are imported only here, so a console without a gateway does not load them.
            server = self._build_server(self._engine, self._access, address)
            server.start()
        except Refusal as refusal:
            self._fault = f"{refusal.message}; {refusal.fix}" if refusal.fix else refusal.message
            raise
        self._server, self._fault = server, ""
        self._announce(server.address.url)
        self._record(GatewayOpened(subject=server.address.url, words=self.state().description))

    def _record(self, event: Event) -> None:
        try:
            self._engine.database.record(event)
        except Refusal as refusal:  # opening and closing must work on a full disk too
            log.warning("%s could not be recorded: %s", event.kind, refusal.message)


def _clear_names(settings: GatewaySettings) -> GatewaySettings:
    """The settings whose change needs a new socket: all but host names and origins."""
    return settings.model_copy(update={"hosts": (), "origins": ()})


def apply_options(settings: GatewaySettings, options: Mapping[str, Any]) -> GatewaySettings:
    """The settings with the options of the command line. None keeps the setting. Raises `Refusal` `bad_address`."""
    changes = {name: value for name, value in options.items() if value is not None}
    try:
        return GatewaySettings.model_validate(settings.model_dump() | changes)
    except ValidationError as error:
        fault = error.errors()[0]
        message = f"{fault['loc'][0]}: {fault['msg'].removeprefix('Value error, ')}"
        raise Refusal("bad_address", sanitise(message), "for example --host 127.0.0.1 --port 8477") from error


def check_gateway_options(home: Home, *, in_file: bool = False, **options: Any) -> None:
    """Check the options of `Gateway.open` without an engine. Raises `Refusal`: those of a bad or unsafe address, and
    `bad_config`."""
    make_listen_address(apply_options(SettingsStore(home.config_file).current.gateway, options))
