"""The HTTP API and WebSocket of the engine, for a phone, a watch, a script or another agent (SPEC 10.1); here the
address at which it listens.

Other machines can reach it only with a certificate, or if the operator says that a tunnel encrypts. A web page can make
its own host name point to this machine; its requests then have that name as Host. So the gateway answers only to known
names.

`gateway` opens and closes it, and imports the web server only when it opens. `access` has its token and passes.
`server` has the thread, the socket and the connections, and `guard` checks each request. `routes` has the routes, which
carry out operations, and `replies` describes their replies. `pulse` is the WebSocket. The gateway makes no decision of
the engine.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from engine.config.sections import GatewaySettings
from engine.frozen import frozen
from engine.model import Refusal
from engine.text import sanitise

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

HOW_TO_MAKE_PAIR = (
    "to make a pair for this machine only: openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -addext "
    "subjectAltName=DNS:localhost,IP:127.0.0.1 -days 365 -keyout key.pem -out cert.pem"
)


def apply_options(settings: GatewaySettings, options: Mapping[str, Any]) -> GatewaySettings:
    """The settings with the options of the command line. None keeps the setting. Raises `Refusal` `bad_address`."""
    changes = {name: value for name, value in options.items() if value is not None}
    try:
        return GatewaySettings.model_validate(settings.model_dump() | changes)
    except ValidationError as error:
        fault = error.errors()[0]
        message = f"{fault['loc'][0]}: {fault['msg'].removeprefix('Value error, ')}"
        raise Refusal("bad_address", sanitise(message), "for example --host 127.0.0.1 --port 8477") from error


@frozen
class ListenAddress:
    """The address of the gateway. `port` 0 means any free port. `names` are the values of Host that it answers to."""

    host: str
    port: int
    certificate: str
    certificate_key: str
    names: frozenset[str]
    origins: frozenset[str]

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return ipaddress.ip_address(self.host).is_loopback

    @property
    def url(self) -> str:
        """The URL, such as `http://127.0.0.1:8477`. If it listens on all addresses, it is the loopback address."""
        address = ipaddress.ip_address(self.host)
        if address.is_unspecified:
            address = ipaddress.ip_address("::1" if address.version == 6 else "127.0.0.1")
        host = f"[{address}]" if address.version == 6 else str(address)
        return f"http{'s' if self.certificate else ''}://{host}:{self.port}"

    def replace_names(self, settings: GatewaySettings) -> ListenAddress:
        """The same with the host names and origins of these settings."""
        return replace(self, names=LOOPBACK | frozenset(settings.hosts), origins=frozenset(settings.origins))

    def answers_to(self, host: str) -> bool:
        """Whether a Host header, with or without a port, names this gateway."""
        try:
            split = urlsplit(f"//{host}")
            name, _ = split.hostname or "", split.port  # a port that is no number raises ValueError
            # A page that rebinds its name sends that name. A numeric address cannot be rebound.
            is_our_name = name in self.names or ipaddress.ip_address(name).is_loopback or not self.is_local
        except ValueError:
            return False
        return is_our_name and split.netloc == host and "@" not in host


def make_listen_address(settings: GatewaySettings) -> ListenAddress:
    """The address that these settings ask for. Raises `Refusal`: `unsafe_address`, `no_certificate`."""
    certificate, key = settings.certificate, settings.certificate_key or settings.certificate
    for file in filter(None, (certificate, key)):
        if not Path(file).expanduser().is_file():
            path = sanitise(str(Path(file).expanduser().absolute()))[:4096]
            raise Refusal("no_certificate", f"there is no file {path}", f"name a PEM file; {HOW_TO_MAKE_PAIR}")
    if key and not certificate:
        raise Refusal("no_certificate", "there is a certificateKey but no certificate", "name both")
    address = ListenAddress(
        host=settings.host,
        port=settings.port,
        certificate=str(Path(certificate).expanduser()) if certificate else "",
        certificate_key=str(Path(key).expanduser()) if key else "",
        names=LOOPBACK,
        origins=frozenset(),
    ).replace_names(settings)
    if not address.is_local and not certificate and not settings.tunnel:
        raise Refusal(
            "unsafe_address",
            f"{settings.host} can be reached by other machines, and the connection is not encrypted",
            "give --certificate and --certificate-key; or --tunnel if something in front of it encrypts; "
            "or reach 127.0.0.1 by `ssh -L` or `tailscale serve`",
        )
    return address


def check_certificate(certificate: str, key: str) -> None:
    """Check that both can be loaded. OpenSSL would ask for a pass phrase on the terminal; this does not. Raises
    `Refusal` `bad_certificate`."""
    import ssl  # slow to import, and only needed with a certificate

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except OSError as error:  # `ssl.SSLError` is one
        reason = getattr(error, "reason", None) or error.strerror or error
        message = f"{certificate} with {key} cannot be used: {reason}"
        fix = f"name a certificate and its key, readable for you, in PEM form, without a passphrase; {HOW_TO_MAKE_PAIR}"
        raise Refusal("bad_certificate", sanitise(message), sanitise(fix)) from error
