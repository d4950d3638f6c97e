"""The address of the gateway: where it listens, its host names, and its certificate (SPEC 10.1, 11.1).

Other machines can reach it only with a certificate, or if the operator says that a tunnel encrypts. A web page can make
its own host name point to this machine; its requests then have that name as Host. So the gateway answers only to known
names.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from engine.config import GatewaySettings
from engine.frozen import frozen
from engine.model import Refusal, sanitise

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def override(settings: GatewaySettings, options: Mapping[str, Any]) -> GatewaySettings:
    """The settings with the options of the command line. None keeps the setting. Raises `Refusal` `bad_address`."""
    given = {name: value for name, value in options.items() if value is not None}
    try:
        return GatewaySettings.model_validate(settings.model_dump() | given)
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

    def with_names(self, settings: GatewaySettings) -> ListenAddress:
        """The same with the host names and origins of these settings."""
        return replace(self, names=LOOPBACK | frozenset(settings.hosts), origins=frozenset(settings.origins))

    def answers_to(self, host: str) -> bool:
        """Whether a Host header, with or without a port, names this gateway."""
        try:
            split = urlsplit(f"//{host}")
            name, _ = split.hostname or "", split.port
            # A page that rebinds its name sends that name. A numeric address cannot be rebound.
            known = name in self.names or ipaddress.ip_address(name).is_loopback or not self.is_local
        except ValueError:
            return False
        return known and split.netloc == host and "@" not in host


def listen_address(settings: GatewaySettings) -> ListenAddress:
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
    ).with_names(settings)
    if not address.is_local and not certificate and not settings.tunnel:
        raise Refusal(
            "unsafe_address",
            f"{settings.host} can be reached by other machines, and the connection is not encrypted",
            "give --certificate and --certificate-key; or --tunnel if something in front of it encrypts; "
            "or reach 127.0.0.1 by `ssh -L` or `tailscale serve`",
        )
    return address


HOW_TO_MAKE_PAIR = (
    "to make a pair for this machine only: openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -addext "
    "subjectAltName=DNS:localhost,IP:127.0.0.1 -days 365 -keyout key.pem -out cert.pem"
)


def check_certificate(certificate: str, key: str) -> None:
    """Check that both can be loaded. OpenSSL would ask for a pass phrase on the terminal; this does not. Raises
    `Refusal` `bad_certificate`."""
    import ssl  # slow to import, and only needed with a certificate

    def refuse_passphrase() -> str:
        fix = f"remove it: openssl pkey -in {key} -out open.pem, and name that file"
        raise _bad_certificate(f"the key in {key} is protected by a passphrase", fix)

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=refuse_passphrase)
    except ssl.SSLError as error:
        message = f"{certificate} with {key} cannot be used: {error.reason or error}"
        fix = f"name a certificate and its key in PEM form; {HOW_TO_MAKE_PAIR}"
        raise _bad_certificate(message, fix) from error
    except OSError as error:
        message = f"{certificate} or {key} cannot be read: {error.strerror or error}"
        raise _bad_certificate(message, "make it readable for the user that runs clawpy") from error


def _bad_certificate(message: str, fix: str) -> Refusal:
    return Refusal("bad_certificate", sanitise(message), sanitise(fix))
