"""Who may reach the gateway: the address at which it listens, its token, and passes for single requests (SPEC 10.1,
11.1).

Other machines can reach it only with a certificate, or if the operator says that a tunnel encrypts. A web page can make
its own host name point to this machine; its requests then have that name as Host. So the gateway answers only to known
names.

The token is made when the gateway first opens, and kept in the key stores. In memory there is only its SHA-256, which
is compared in constant time. A *pass* is a credential for one request. It works only once, even after a restart. A
button in a notification has a pass, so the token never leaves the machine.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import logging
import re
import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from engine.api_keys import ENVIRONMENT, FILE, Keys, NoKeyring
from engine.config.external_sections import GatewaySettings
from engine.frozen import frozen
from engine.home import Home
from engine.lock import read_holder
from engine.model import Refusal
from engine.storage import state
from engine.storage.database import Database, Transaction
from engine.text import sanitise

log = logging.getLogger(__name__)

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

HOW_TO_MAKE_PAIR = (
    "to make a pair for this machine only: openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -addext "
    "subjectAltName=DNS:localhost,IP:127.0.0.1 -days 365 -keyout key.pem -out cert.pem"
)


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


TOKEN_NAME = "gateway"
"""The name of the token in the key stores."""

TOKEN_PREFIX = "clawpy_"
PASS_PREFIX = "pass_"

USED_PASSES_KEY = "gateway.passes"
"""Key in the state table: the used passes and the time when each expires."""

THIS_RUN = "this run"
"""The source of a token that is stored nowhere."""

MIN_TOKEN_CHARS = 20
"""Minimum length of a token. A token from the environment may be chosen by a person."""


def make_token() -> str:
    """A new token of 256 random bits, with a prefix by which scanners and people recognise it."""
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def rotate_token(keys: Keys, *, in_file: bool = False) -> tuple[str, str]:
    """Replace the token. Returns it and the place where it is stored. A running gateway refuses the old token within
    15 s.

    Raises `Refusal`: `in_environment` if a variable sets the token, `no_keyring`, which advises to use a file, and as
    `Keys.set`.
    """
    if keys.find_source(TOKEN_NAME) == ENVIRONMENT:
        raise Refusal(
            "in_environment",
            "the token comes from CLAWPY_GATEWAY_API_KEY in the environment",
            "change it there, or unset it",
        )
    token = make_token()
    keyring_fix = (
        "store it in a file that only you can read: clawpy token new --store file; or set your own in "
        "CLAWPY_GATEWAY_API_KEY where clawpy is started"
    )
    source = keys.set(TOKEN_NAME, token, in_file=in_file, keyring_fix=keyring_fix)
    return token, source


class _Secret(NamedTuple):
    """Hashes of the present token, from which the token cannot be computed."""

    digest: bytes = b""
    pass_key: bytes = b""
    source: str = ""


class Access:
    """Checks tokens and passes. `refresh` may take seconds, because it reads a keyring, and `spend` writes to the
    database. So call both in a thread. The other methods return at once."""

    def __init__(self, keys: Keys, database: Database) -> None:
        self._keys = keys
        self._database = database
        self._secret = _Secret()
        self.generation = 0
        """Incremented with each new token. Connections with an earlier token are then closed."""

    @property
    def source(self) -> str:
        """The place where the token is stored: "keyring", "file", "environment", or `THIS_RUN` for none."""
        return self._secret.source

    def load_or_make(self, *, in_file: bool = False) -> str:
        """Load the token, or make the first one. Returns a new token, which is to be shown once, else "".

        Without a keyring and without consent to a file, the token is valid for this run only. Raises `Refusal`
        `weak_token`, and the refusals of the key stores.
        """
        if (key := self._keys.get(TOKEN_NAME)) is not None:
            if len(key.value) < MIN_TOKEN_CHARS:
                fix = "use a longer one; without CLAWPY_GATEWAY_API_KEY `clawpy token new` makes one of 50 characters"
                message = f"the gateway's token in the {key.source} has fewer than {MIN_TOKEN_CHARS} characters"
                raise Refusal("weak_token", message, fix)
            self._accept_from_now_on(key.value, key.source)
            return ""
        if self.source == THIS_RUN:  # it was made for an earlier opening in this run
            return ""
        token = make_token()
        try:
            source = self._keys.set(TOKEN_NAME, token, in_file=in_file)
        except Refusal as refusal:
            if refusal.code != "no_keyring":
                raise
            source = THIS_RUN
        self._accept_from_now_on(token, source)
        return token

    def refresh(self) -> None:
        """Read the token again. If it was removed, or replaced by one that is too short, nobody gets in. If a store
        cannot be read, nothing changes."""
        try:
            key = self._keys.get(TOKEN_NAME)
        except Refusal as refusal:
            log.warning("the gateway's token cannot be read: %s", refusal.message)
            return
        if key is not None and len(key.value) >= MIN_TOKEN_CHARS:
            self._accept_from_now_on(key.value, key.source)
            return
        may_be_in_keyring = key is None and self.source != FILE and self._keys.find_keyring_fault(TOKEN_NAME)
        if may_be_in_keyring or self.source in ("", THIS_RUN):
            return
        fault = "was removed" if key is None else f"has less than {MIN_TOKEN_CHARS} characters"
        log.warning("the gateway's token %s: nobody can connect until a new one is set", fault)
        self._secret = _Secret()
        self.generation += 1

    def _accept_from_now_on(self, token: str, source: str) -> None:
        digest = hashlib.sha256(token.encode()).digest()
        self.generation += digest != self._secret.digest
        self._secret = _Secret(digest, hashlib.sha256(b"clawpy gateway pass\0" + token.encode()).digest(), source)

    def accepts(self, credential: str) -> bool:
        """Whether a credential is the token."""
        digest = hashlib.sha256(credential.encode("utf-8", "surrogateescape")).digest()
        return hmac.compare_digest(digest, self._secret.digest)

    def is_pass(self, credential: str, *, method: str, path: str, now: float) -> bool:
        """Whether a credential is a pass for this request that has not expired. The caller must still `spend` it. `now`
        is in seconds since 1970."""
        until, _ = _parse_pass(credential)
        expected = self.issue_pass(method, path, until=until)
        return bool(expected) and now < until and hmac.compare_digest(expected.encode(), credential.encode())

    def spend(self, credential: str, *, now: float) -> bool:
        """Use a pass up. Returns False if it was used before. Raises `Refusal` if that cannot be stored."""
        until, signature = _parse_pass(credential)

        def store_use(tx: Transaction) -> bool:
            stored = state.get(tx.session, USED_PASSES_KEY, {})
            unexpired = {used_signature: end for used_signature, end in stored.items() if end > now}
            if signature in unexpired:
                return False
            state.put(tx, USED_PASSES_KEY, unexpired | {signature: until})
            return True

        return self._database.write(store_use)

    def issue_pass(self, method: str, path: str, *, until: float) -> str:
        """A pass for one method and path, valid until `until` (seconds since 1970); "" before `load_or_make`."""
        if not self._secret.pass_key:
            return ""
        message = f"{method} {path} {int(until)}".encode("utf-8", "surrogateescape")
        signed = hmac.new(self._secret.pass_key, message, hashlib.sha256).digest()
        return f"{PASS_PREFIX}{int(until)}.{base64.urlsafe_b64encode(signed).rstrip(b'=').decode()}"


def _parse_pass(credential: str) -> tuple[int, str]:
    """(time of expiry, signature) in a credential that looks like a pass; (0, "") for another credential."""
    match = re.fullmatch(rf"{PASS_PREFIX}([0-9]{{1,12}})\.([A-Za-z0-9_-]+)", credential)
    return (int(match[1]), match[2]) if match else (0, "")


def get_gateway_token(home: Home, *, new: bool = False, in_file: bool = False) -> dict[str, Any]:
    """The token and the place where it is stored. With `new`, it is replaced by a new one in the keyring, or with
    `in_file` in a private file.

    Raises `Refusal`: `no_token`, and as `rotate_token`.
    """
    keys, holder = Keys(home), read_holder(home)
    if new:
        token, source = rotate_token(keys, in_file=in_file)
        message = f"the token is stored in the {source}; the old one stops working within 15 s"
    else:
        key = keys.get(TOKEN_NAME)
        if key is None:
            raise _make_no_token_refusal(keys)
        token, source = key.value, key.source
        message = f"it is stored in the {source}"
    url = "" if holder is None else holder.gateway
    return {"token": token, "source": source, "message": message, "url": url, "badge": keys.find_file_warning()}


def _make_no_token_refusal(keys: Keys) -> Refusal:
    fix = "`clawpy token new` makes one that lasts"
    try:
        keys.find_keyring_name()
    except NoKeyring as fault:
        fix = f"`clawpy token new --store file` makes one that lasts, in a file that only you can read, for {fault}"
    message = "no token is stored; one that a running gateway made is shown once on its terminal, and ends with it"
    return Refusal("no_token", message, fix)
