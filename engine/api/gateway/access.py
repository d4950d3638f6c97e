"""The token of the gateway: made at the first start, found in the key stores, turned over at a word (SPEC 10.1, 11.1).

Of the token only its SHA-256 stays in memory, and it is compared in constant time. A *pass* is a credential for one
request alone, made from the token, and opens once, also over a restart: a button of a notification carries one, so that
the token never leaves the machine.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import secrets
import threading

from engine.frozen import frozen
from engine.keys import ENVIRONMENT, FILE, Keys
from engine.model import Refusal
from engine.storage import state
from engine.storage.database import Database, Transaction

log = logging.getLogger(__name__)

NAME = "gateway"
"""Under this name the token lies among the keys."""

PREFIX = "clawpy_"
PASS = "pass_"

USED = "gateway.passes"
"""Under this name passes are kept that opened a door, and until when they would have."""

THIS_RUN = "this run"

SHORTEST = 20
"""Characters of a token; what a variable says may be of a person's making."""


def new_token() -> str:
    """A token of 256 random bits; its beginning says what it is, wherever it turns up."""
    return PREFIX + secrets.token_urlsafe(32)


@frozen
class Kept:
    """Where a token came to lie: "keyring", "file", "environment" or "this run". `words` for the operator."""

    source: str
    words: str


def turn_over(keys: Keys, *, in_file: bool = False) -> tuple[str, Kept]:
    """A new token in place of the old one, which a running gateway refuses within 15 s.

    Raises `Refusal` `in_environment` when a variable names the token, `no_keyring` with the file as the way out, and
    what else `Keys.set` raises.
    """
    if keys.where(NAME) == "environment":
        raise Refusal(
            "in_environment",
            "the token comes from CLAWPY_GATEWAY_API_KEY in the environment",
            "change it there, or unset it",
        )
    token = new_token()
    try:
        source = keys.set(NAME, token, consent_file=in_file)
    except Refusal as refusal:
        if refusal.code != "no_keyring":
            raise
        fix = "store it in a file that only you can read: clawpy token new --store file; or set your own in"
        raise Refusal("no_keyring", refusal.message, f"{fix} CLAWPY_GATEWAY_API_KEY where clawpy is started") from None
    return token, Kept(source, f"the token is stored in the {source}; the old one stops working within 15 s")


class Access:
    """Who may come in. `look` may take seconds (a keyring), `spend` writes: they are called from a thread; the rest is
    instant."""

    def __init__(self, keys: Keys, database: Database | None = None) -> None:
        """Without a `database`, where the used ones are kept, no pass opens anything."""
        self._keys = keys
        self._database = database
        self._lock = threading.Lock()
        self._digest = b""
        self._pass_key = b""
        self._own = ""
        self.source = ""
        self.generation = 0
        """Counts tokens: what came in with an earlier one is shown out."""

    def begin(self, *, in_file: bool = False) -> str:
        """Find the token, or make the first one; returns it when it was made now, to be shown once, else "".

        Without a keyring, and without consent to a file, it lives as long as this run. Raises `Refusal` `weak_token`,
        and what the stores raise.
        """
        if self.look():
            return ""
        if (key := self._keys.get(NAME)) is not None:
            message = f"the gateway's token in the {key.source} has fewer than {SHORTEST} characters"
            new = "unset CLAWPY_GATEWAY_API_KEY, and " if key.source == ENVIRONMENT else ""
            raise Refusal(
                "weak_token", message, f"use a longer one; {new}`clawpy token new` makes one of 50 characters"
            )
        token = new_token()
        try:
            self._keys.set(NAME, token, consent_file=in_file)
        except Refusal as refusal:
            if refusal.code != "no_keyring":
                raise
            self._own = token
        self.look()
        return token

    def look(self) -> bool:
        """Find the token as it is now; False when there is none. What was taken away lets nobody in any more; a store
        that cannot be asked changes nothing."""
        try:
            key = self._keys.get(NAME)
        except Refusal as refusal:
            log.warning("the gateway's token cannot be read: %s", refusal.message)
            return bool(self._digest)
        token, source = (key.value, key.source) if key else (self._own, THIS_RUN)
        if len(token) < SHORTEST:
            if key is None and self._digest and (self.source == FILE or not self._keys.keyring_fault(NAME)):
                log.warning("the gateway's token was removed: nobody can connect until a new one is set")
                with self._lock:
                    self._digest = self._pass_key = b""
                    self.generation += 1
            return False
        digest = hashlib.sha256(token.encode()).digest()
        with self._lock:
            if not hmac.compare_digest(digest, self._digest):
                self._digest = digest
                self._pass_key = hashlib.sha256(b"clawpy gateway pass\0" + token.encode()).digest()
                self.generation += 1
            self.source = source
        return True

    def admits(self, credential: str) -> bool:
        """Whether a credential is the token."""
        digest = hashlib.sha256(credential.encode("utf-8", "surrogateescape")).digest()
        with self._lock:
            return hmac.compare_digest(digest, self._digest)

    def is_pass(self, credential: str, *, method: str, path: str, now: float) -> bool:
        """Whether it is a pass for just this request, which must say nothing more; it opens if it can be spent. `now`
        in seconds since 1970."""
        until, _, signed = credential.removeprefix(PASS).partition(".")
        if not self._pass_key or not credential.startswith(PASS):
            return False
        if not (until.isascii() and until.isdigit() and len(until) <= 12):
            return False
        expected = self._sign(method, path, int(until))
        return hmac.compare_digest(expected.encode(), signed.encode("utf-8", "surrogateescape")) and now < int(until)

    def spend(self, credential: str, *, now: float) -> bool:
        """Whether a pass was not used before; from then on it is none. Raises `Refusal` when that cannot be kept."""
        if self._database is None:
            return False
        until, _, signed = credential.removeprefix(PASS).partition(".")

        def work(tx: Transaction) -> bool:
            spent = {signature: end for signature, end in state.get(tx.session, USED, {}).items() if end > now}
            if signed in spent:
                return False
            state.put(tx, USED, spent | {signed: int(until)})
            return True

        return self._database.write(work)

    def pass_for(self, method: str, path: str, *, until: float) -> str:
        """A credential for one method and path until `until` (seconds since 1970); "" before `begin`."""
        if not self._pass_key:
            return ""
        return f"{PASS}{int(until)}.{self._sign(method, path, int(until))}"

    def _sign(self, method: str, path: str, until: int) -> str:
        message = f"{method} {path} {until}".encode("utf-8", "surrogateescape")
        signed = hmac.new(self._pass_key, message, hashlib.sha256).digest()
        return base64.urlsafe_b64encode(signed).rstrip(b"=").decode()
