"""The token of the gateway, and the passes made from it (SPEC 10.1, 11.1).

The token is made at the first start and kept in the key stores; in memory there is only its SHA-256, compared in
constant time. A *pass* is a credential for a single request. It works once, also across restarts: a button in a
notification carries one, so that the token never leaves the machine.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import secrets
import threading
from typing import Any

from engine.home import Home
from engine.keys import ENVIRONMENT, FILE, Keys, NoKeyring
from engine.lock import read_holder
from engine.model import Refusal
from engine.storage import state
from engine.storage.database import Database, Transaction

log = logging.getLogger(__name__)

TOKEN_NAME = "gateway"
"""The name of the token in the key stores."""

TOKEN_PREFIX = "clawpy_"
PASS_PREFIX = "pass_"

USED_PASSES_KEY = "gateway.passes"
"""The key of the state that lists used passes and when they expire."""

THIS_RUN = "this run"

MIN_TOKEN_CHARS = 20
"""A token from the environment may be made by a person."""


def new_token() -> str:
    """A token of 256 random bits with a prefix by which scanners and people recognise it."""
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def rotate_token(keys: Keys, *, in_file: bool = False) -> tuple[str, str]:
    """Replace the token; returns it, and where it is stored. A running gateway refuses the old one within 15 s.

    Raises `Refusal` `in_environment` when a variable sets the token, `no_keyring` with the file as the way out, and
    what `Keys.set` raises.
    """
    if keys.where(TOKEN_NAME) == "environment":
        raise Refusal(
            "in_environment",
            "the token comes from CLAWPY_GATEWAY_API_KEY in the environment",
            "change it there, or unset it",
        )
    token = new_token()
    keyring_fix = (
        "store it in a file that only you can read: clawpy token new --store file; or set your own in "
        "CLAWPY_GATEWAY_API_KEY where clawpy is started"
    )
    source = keys.set(TOKEN_NAME, token, consent_file=in_file, keyring_fix=keyring_fix)
    return token, source


class Access:
    """Checks tokens and passes. `refresh` may take seconds (a keyring) and `spend` writes, so both are called in a
    thread; the other methods return at once."""

    def __init__(self, keys: Keys, database: Database | None = None) -> None:
        """Without a `database`, which stores used passes, no pass is accepted."""
        self._keys = keys
        self._database = database
        self._lock = threading.Lock()
        self._digest = b""
        self._pass_key = b""
        self._unstored_token = ""
        self.source = ""
        self.generation = 0
        """Incremented with each new token: connections made with an earlier one are closed."""

    def load_or_make(self, *, in_file: bool = False) -> str:
        """Find the token, or make the first one. Returns a token that was made now, to be shown once, else "".

        Without a keyring and without consent to a file the token lasts for this run only. Raises `Refusal`
        `weak_token`, and what the stores raise.
        """
        if self.refresh():
            return ""
        if (key := self._keys.get(TOKEN_NAME)) is not None:
            message = f"the gateway's token in the {key.source} has fewer than {MIN_TOKEN_CHARS} characters"
            new = "unset CLAWPY_GATEWAY_API_KEY, and " if key.source == ENVIRONMENT else ""
            raise Refusal(
                "weak_token", message, f"use a longer one; {new}`clawpy token new` makes one of 50 characters"
            )
        token = new_token()
        try:
            self._keys.set(TOKEN_NAME, token, consent_file=in_file)
        except Refusal as refusal:
            if refusal.code != "no_keyring":
                raise
            self._unstored_token = token
        self.refresh()
        return token

    def refresh(self) -> bool:
        """Read the token again; False when there is none. After a removal nobody gets in; a store that cannot be read
        changes nothing."""
        try:
            key = self._keys.get(TOKEN_NAME)
        except Refusal as refusal:
            log.warning("the gateway's token cannot be read: %s", refusal.message)
            return bool(self._digest)
        token, source = (key.value, key.source) if key else (self._unstored_token, THIS_RUN)
        if len(token) < MIN_TOKEN_CHARS:
            if key is None and self._digest and (self.source == FILE or not self._keys.keyring_fault(TOKEN_NAME)):
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

    def accepts(self, credential: str) -> bool:
        """Whether a credential is the token."""
        digest = hashlib.sha256(credential.encode("utf-8", "surrogateescape")).digest()
        with self._lock:
            return hmac.compare_digest(digest, self._digest)

    def is_pass(self, credential: str, *, method: str, path: str, now: float) -> bool:
        """Whether a credential is an unexpired pass for this request. It must still be spent. `now` is in seconds since
        1970."""
        until, _, signed = credential.removeprefix(PASS_PREFIX).partition(".")
        if not self._pass_key or not credential.startswith(PASS_PREFIX):
            return False
        if not (until.isascii() and until.isdigit() and len(until) <= 12):
            return False
        expected = self._sign(method, path, int(until))
        return hmac.compare_digest(expected.encode(), signed.encode("utf-8", "surrogateescape")) and now < int(until)

    def spend(self, credential: str, *, now: float) -> bool:
        """Use a pass up; False when it was used before. Raises `Refusal` when that cannot be stored."""
        if self._database is None:
            return False
        until, _, signed = credential.removeprefix(PASS_PREFIX).partition(".")

        def work(tx: Transaction) -> bool:
            spent = {
                signature: end for signature, end in state.get(tx.session, USED_PASSES_KEY, {}).items() if end > now
            }
            if signed in spent:
                return False
            state.put(tx, USED_PASSES_KEY, spent | {signed: int(until)})
            return True

        return self._database.write(work)

    def pass_for(self, method: str, path: str, *, until: float) -> str:
        """A pass for one method and path, valid until `until` (seconds since 1970); "" before `load_or_make`."""
        if not self._pass_key:
            return ""
        return f"{PASS_PREFIX}{int(until)}.{self._sign(method, path, int(until))}"

    def _sign(self, method: str, path: str, until: int) -> str:
        message = f"{method} {path} {until}".encode("utf-8", "surrogateescape")
        signed = hmac.new(self._pass_key, message, hashlib.sha256).digest()
        return base64.urlsafe_b64encode(signed).rstrip(b"=").decode()


def gateway_token(home: Home, *, new: bool = False, in_file: bool = False) -> dict[str, Any]:
    """The token and where it is stored; with `new` a new one, stored in the keyring, or with `in_file` in a private
    file.

    Raises `Refusal`: `no_token`, and what `rotate_token` raises.
    """
    keys = Keys(home)
    holder = read_holder(home)
    where = {"url": "" if holder is None else holder.gateway, "badge": keys.badge()}
    if new:
        token, source = rotate_token(keys, in_file=in_file)
        message = f"the token is stored in the {source}; the old one stops working within 15 s"
        return {"token": token, "source": source, "message": message, **where, "badge": keys.badge()}
    key = keys.get(TOKEN_NAME)
    if key is None:
        raise _no_token(keys, listening=bool(where["url"]))
    return {"token": key.value, "source": key.source, "message": f"it is stored in the {key.source}", **where}


def _no_token(keys: Keys, *, listening: bool) -> Refusal:
    """Why there is no token, and the command that makes one on this machine."""
    message = "there is no token yet"
    if listening:
        message = (
            "the gateway's token is not stored: the engine showed it once, on its terminal, and it ends with the engine"
        )
    try:
        keys.backend()
        fix = "`clawpy token new` makes one that lasts"
    except NoKeyring as fault:
        fix = f"`clawpy token new --store file` makes one that lasts, in a file that only you can read, for {fault}"
    return Refusal("no_token", message, f"{fix}; the running gateway uses it within 15 s" if listening else fix)
