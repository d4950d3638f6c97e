"""The address on which the gateway listens, the host names to which it answers, and its TLS certificate.

Other machines reach it only with a certificate, or when the operator says that a tunnel encrypts. A page that rebinds
its own name to this machine still sends that name as Host, so unknown names are refused.
"""

from __future__ import annotations

import ipaddress
from dataclasses import asdict, replace
from pathlib import Path
from typing import NoReturn

from pydantic import ValidationError

from engine.config.sections import GatewaySettings
from engine.frozen import frozen
from engine.model import Refusal, sanitise

# All limits of the gateway: generous for a phone, tight for a flood.


@frozen
class Limits:
    """Sizes in bytes, times in seconds, rates per second."""

    body: int = 256 * 1024
    """Bytes of a request's body."""
    head: int = 64 * 1024
    """Bytes of a request's line and headers."""
    headers: int = 64
    head_seconds: float = 10.0
    """The head of a request must be complete within this time of the connection or of its first byte."""
    body_seconds: float = 15.0
    unread_seconds: float = 15.0
    """A client that does not read its answer for so long is disconnected."""
    connections: int = 512
    sockets: int = 256
    """WebSockets at a time."""
    requests: float = 100.0
    burst: int = 400
    """Requests a second with the right token, and how many at once."""
    failures: float = 0.5
    failure_burst: int = 30
    """Requests with a wrong token from one address. Beyond it they get 429; the right token never does."""
    triggers: int = 4
    """Cycles and questions to the Twin that may be in progress at once."""
    frames: float = 20.0
    """Frames a second to one WebSocket."""
    all_frames: float = 3_000.0
    """Frames a second to all of them: with more than 150 clients each gets fewer and larger ones, so that the console
    in the same process stays responsive."""
    frame_events: int = 250
    frame_bytes: int = 256 * 1024
    kept_events: int = 8_000
    """Messages in the buffer; a client that is further behind reads the ledger."""
    resume_events: int = 20_000
    """A client that resumes from further back is told to read the state again."""
    messages: float = 10.0
    message_burst: int = 20
    """Messages from a WebSocket a second, and at once."""
    subscribe_seconds: float = 10.0
    stall_seconds: float = 5.0
    """A WebSocket that reads nothing for so long is dropped."""


LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


@frozen
class ListenOptions:
    """Options of the command line that override the settings; None keeps the setting."""

    host: str | None = None
    port: int | None = None
    certificate: str | None = None
    certificate_key: str | None = None
    tunnel: bool | None = None

    def override(self, settings: GatewaySettings) -> GatewaySettings:
        """The settings with these options. Raises `Refusal` `bad_address`."""
        overrides = {name: value for name, value in asdict(self).items() if value is not None}
        try:
            return GatewaySettings.model_validate(settings.model_dump() | overrides)
        except ValidationError as error:
            fault = error.errors()[0]
            message = f"{fault['loc'][0]}: {fault['msg'].removeprefix('Value error, ')}"
            raise Refusal("bad_address", sanitise(message), "for example --host 127.0.0.1 --port 8477") from error


@frozen
class ListenAddress:
    """The address of the gateway. `port` 0 chooses a free one; `names` are the values of Host that it answers to."""

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
        """`http://127.0.0.1:8477`; the loopback address where it listens on all addresses."""
        address = ipaddress.ip_address(self.host)
        if address.is_unspecified:
            address = ipaddress.ip_address("::1" if address.version == 6 else "127.0.0.1")
        host = f"[{address}]" if address.version == 6 else str(address)
        return f"http{'s' if self.certificate else ''}://{host}:{self.port}"

    def with_port(self, port: int) -> ListenAddress:
        """The same with the port that was chosen."""
        return replace(self, port=port)

    def with_names(self, settings: GatewaySettings) -> ListenAddress:
        """The same with the host names and origins of these settings."""
        return replace(self, names=LOOPBACK | frozenset(settings.hosts), origins=frozenset(settings.origins))

    def answers_to(self, host: str) -> bool:
        """Whether a Host header, with or without a port, names this gateway."""
        name = host_name(host)
        if name is None:
            return False
        if name in self.names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        # A page that rebinds comes by a name; who writes out an address means this machine.
        return address.is_loopback or not self.is_local


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


def host_name(host: str) -> str | None:
    """The name in a Host header in small letters, None when there is none. `[::1]:8477` is `::1`."""
    if host.startswith("["):
        name, bracket, rest = host[1:].partition("]")
        if not bracket or rest[:1] not in ("", ":"):
            return None
        port = rest[1:] if rest else "0"
    else:
        name, colon, port = host.partition(":")
        port = port if colon else "0"
    if not (port.isascii() and port.isdigit() and len(port) <= 5):
        return None
    return name.lower() or None


HOW_TO_MAKE_PAIR = (
    "to make a pair for this machine only: openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -addext "
)
HOW_TO_MAKE_PAIR += "subjectAltName=DNS:localhost,IP:127.0.0.1 -days 365 -keyout key.pem -out cert.pem"


def check_certificate(certificate: str, key: str) -> None:
    """Load both without asking for a pass phrase, as OpenSSL would on the terminal. Raises `Refusal`
    `bad_certificate`."""
    import ssl  # only who has a certificate pays for it

    _check_pem(certificate, "CERTIFICATE-----", "certificate", HOW_TO_MAKE_PAIR)
    _check_pem(key, "PRIVATE KEY-----", "private key", "name the file that contains it with --certificate-key")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            certificate, key, password=lambda: _refuse_passphrase(key)
        )
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise _bad_certificate(
                f"{key} is not the key of {certificate}", "name the certificate and key that were made together"
            ) from error
        message = f"{certificate} with {key} cannot be used: {error.reason or error}"
        raise _bad_certificate(
            message, "`openssl x509 -noout -text -in` and `openssl pkey -check -in` show what is wrong"
        ) from error


def _check_pem(file: str, mark: str, kind: str, fix: str) -> None:
    try:
        is_pem = mark in Path(file).read_text(errors="replace")
    except OSError as error:
        raise _bad_certificate(
            f"{file} cannot be read: {error.strerror or error}", "make it readable for the user that runs clawpy"
        ) from error
    if not is_pem:
        raise _bad_certificate(f"{file} has no {kind} in PEM form", fix)


def _refuse_passphrase(key: str) -> NoReturn:
    fix = (
        f"clawpy cannot ask for it at every start; remove it: openssl pkey -in {key} -out open.pem, and name that file"
    )
    raise _bad_certificate(f"the key in {key} is protected by a passphrase", fix)


def _bad_certificate(message: str, fix: str) -> Refusal:
    return Refusal("bad_certificate", sanitise(message), sanitise(fix))
