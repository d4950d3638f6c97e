"""The verb `token`. It runs in the process of the person who asks, so that the token crosses no socket (SPEC 10.1,
11.1)."""

from __future__ import annotations

from typing import Any

from engine.api.gateway.access import NAME, rotate_token
from engine.home import Home
from engine.key_stores import NoKeyring
from engine.keys import Keys
from engine.lock import read_holder
from engine.model import Refusal

Document = dict[str, Any]


def gateway_token(home: Home, *, new: bool = False, in_file: bool = False) -> Document:
    """The token and where it is stored; with `new` a new one, stored in the keyring, or with `in_file` in a private
    file.

    Raises `Refusal`: `no_token`, and what `rotate_token` raises.
    """
    keys = Keys(home)
    holder = read_holder(home)
    where = {"url": "" if holder is None else holder.gateway, "badge": keys.badge()}
    if new:
        token, storage = rotate_token(keys, in_file=in_file)
        return {"token": token, "source": storage.source, "message": storage.words, **where, "badge": keys.badge()}
    key = keys.get(NAME)
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
