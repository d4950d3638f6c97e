"""Finds and stores the keys of providers: in the environment, the system's keyring, or a private file (SPEC 11.1).

`Key.value` has the value, which is only for the call to the provider. It is never in a repr, log, error or document.
The process in which a person enters a key also stores it. So the key crosses no socket, and the keyring can ask that
person for its password. A running engine finds a new key within seconds.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import NoReturn

from engine.clock import Clock, SystemClock
from engine.frozen import frozen
from engine.home import Home
from engine.key_file import KeyFile
from engine.keyring import Keyring, NoKeyring
from engine.model import Refusal
from engine.model.secrets import redact

ENVIRONMENT, KEYRING, FILE = "environment", "keyring", "file"
"""The sources of a key."""

TWIN = "twin"
"""The key of the Twin model (`twinApiKey`, SPEC 7.6)."""

NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
VARIABLE = re.compile(r"CLAWPY_([A-Z][A-Z0-9_]{0,39})_API_KEY")

_SECRET_VARIABLE = re.compile(r"(?:^|_)(?:API_?KEY|ACCESS_KEY|SECRET|SECRET_KEY|TOKEN|PASSWORD|PASSWD|PASS)$")
_SECRET_VALUE = re.compile(r"(?=.*[0-9])[^\s/][!-~]{11,}")
"""The value of such a variable is a secret unless it looks like a path or a word (`TOKEN=disabled`)."""

KEYRING_CACHE_S = 10.0
"""Seconds that an answer of the keyring is cached. It is needed before every card, and asking is slow."""

KEYRING_RETRY_S = 60.0
"""Seconds until a keyring that failed or hung is asked again."""


@frozen
class Key:
    """A key and its source. Its repr has only the name. It cannot be copied or pickled."""

    name: str
    source: str
    value: str = field(repr=False)
    """The key itself, only for the call to the provider."""

    def __reduce__(self) -> NoReturn:
        raise TypeError("the key was not stored")


@frozen
class _KeyringAnswer:
    """An answer of the keyring, cached until `until` (monotonic seconds)."""

    value: str | None = field(repr=False)
    fault: str
    until: float


class Keys:
    """Finds, stores and deletes keys by the name of the provider. Callable from any thread; the first read may take 3
    s."""

    def __init__(
        self,
        home: Home,
        *,
        environment: Mapping[str, str] = os.environ,
        keyring: Keyring | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._file = KeyFile(home.config / "keys.json")
        self._environment = environment
        self._keyring = keyring or Keyring()
        self._clock = clock or SystemClock()
        self._lock = threading.RLock()
        self._answers: dict[str, _KeyringAnswer] = {}
        self._disclosed_lock = threading.Lock()
        self._disclosed: list[Key] = []

    def get(self, name: str) -> Key | None:
        """The key of `name`, None if there is none.

        Raises `Refusal` `loose_keys` or `damaged_keys` if it could only be in a file that must not be used.
        """
        value = self._environment.get(variable(name), "").strip()
        if value:
            return self._disclose(Key(name, ENVIRONMENT, value))
        value = self._ask_keyring(name).value or ""
        if value:
            return self._disclose(Key(name, KEYRING, value))
        value = self._file.get(name) or ""
        return self._disclose(Key(name, FILE, value)) if value else None

    def where(self, name: str) -> str:
        """The source of the key of `name`: "environment", "keyring" or "file"; "" for no key."""
        key = self.get(name)
        return "" if key is None else key.source

    def keyring_fault(self, name: str) -> str:
        """Why the keyring cannot say whether it has the key of `name`, "" if it can."""
        return self._ask_keyring(name).fault

    def names(self) -> tuple[str, ...]:
        """The names of keys in the environment and the file. A keyring cannot list its keys."""
        names = [match[1].lower() for match in map(VARIABLE.fullmatch, self._environment) if match]
        return tuple(dict.fromkeys((*sorted(names), *self._file.names())))

    def set(self, name: str, value: str, *, consent_file: bool = False, keyring_fix: str = "") -> str:
        """Store a key in the keyring, or with `consent_file` in the file; returns "keyring" or "file".

        It is stored in one place only; a key in the other place is deleted. Raises `Refusal`: `bad_name`, `bad_key`,
        `no_keyring` (with `keyring_fix`, by default the alternatives), and as `KeyFile.set`.
        """
        check_name(name)
        value = value.strip()
        if not re.fullmatch(r"[!-~]{1,4000}", value):
            raise Refusal(
                "bad_key", "that is not a key: it is empty, or contains a space or a line break", "copy the whole key"
            )
        with self._lock:
            self.forget()
            if consent_file:
                self._file.set(name, value)
                self._delete_from_keyring(name)
                return FILE
            try:
                self._keyring.set(name, value)
            except NoKeyring as error:
                raise Refusal("no_keyring", f"{error}", keyring_fix or without_keyring(name)) from None
            finally:
                self.forget()
            self._file.delete(name)
            return KEYRING

    def delete(self, name: str) -> tuple[str, ...]:
        """Delete a key from the keyring and the file; returns the places where it was.

        Raises `Refusal`: `bad_name`, `no_key`, and `in_environment` if only a variable has it.
        """
        check_name(name)
        with self._lock:
            deleted_from = []
            fault = ""
            try:
                if self._keyring.delete(name):
                    deleted_from.append(KEYRING)
            except NoKeyring as error:
                fault = str(error)
            if self._file.delete(name):
                deleted_from.append(FILE)
            self.forget()
        if deleted_from:
            return tuple(deleted_from)
        if self._environment.get(variable(name), "").strip():
            raise Refusal("in_environment", f"{variable(name)} in the environment sets it", f"unset {variable(name)}")
        message = f"there is no key for {name}"
        raise Refusal("no_key", f"{message} in the file; {fault}" if fault else message, "see `clawpy key list`")

    def forget(self) -> None:
        """Clear the cache of the keyring."""
        with self._lock:
            self._answers.clear()

    def backend(self) -> str:
        """The kind of keyring, such as `SecretService Keyring`. Raises `NoKeyring`."""
        return self._keyring.name()

    def badge(self) -> str:
        """A warning while keys are in a file, else ""."""
        try:
            names = self._file.names()
        except Refusal as refusal:
            return refusal.message
        return f"keys in a plain file: {', '.join(names)} ({self._file.path})" if names else ""

    def secrets(self) -> tuple[str, ...]:
        """Every value that must not be stored anywhere: keys that were read in this process, keys in the file, and
        secrets in the environment. The last include those of other programs, such as `GITHUB_TOKEN`: a session does not
        inherit them (SPEC 3.8), but may find them in a `.env`. The keyring is not asked, because that may need a
        person."""
        with self._disclosed_lock:
            disclosed = [key.value for key in self._disclosed]
        return tuple(dict.fromkeys((*disclosed, *self._file.values(), *self._environment_secrets())))

    def _environment_secrets(self) -> Iterator[str]:
        for name in list(self._environment):  # other threads may set variables meanwhile
            value = self._environment.get(name, "")
            if VARIABLE.fullmatch(name) or (_SECRET_VARIABLE.search(name) and _SECRET_VALUE.fullmatch(value)):
                yield value.strip()

    def _disclose(self, key: Key) -> Key:
        with self._disclosed_lock:
            if all(key.value != other.value for other in self._disclosed):
                self._disclosed.append(key)
        return key

    def _ask_keyring(self, name: str) -> _KeyringAnswer:
        with self._lock:
            now = self._clock.monotonic()
            cached = self._answers.get(name)
            if cached is not None and now < cached.until:
                return cached
            fault = next((answer for answer in self._answers.values() if answer.fault and now < answer.until), None)
            if fault is not None:
                return fault
            try:
                answer = _KeyringAnswer(self._keyring.get(name), "", now + KEYRING_CACHE_S)
            except NoKeyring as error:
                answer = _KeyringAnswer(None, str(error), self._clock.monotonic() + KEYRING_RETRY_S)
            self._answers[name] = answer
            return answer

    def _delete_from_keyring(self, name: str) -> None:
        """Delete the keyring's key of a name whose key is now in the file, because the keyring would come first."""
        try:
            self._keyring.delete(name)
        except NoKeyring:
            return  # a keyring that cannot be asked does not come first
        finally:
            self.forget()


def variable(name: str) -> str:
    """The environment variable of the key of `name`."""
    return f"CLAWPY_{name.upper().replace('-', '_')}_API_KEY"


def without_keyring(name: str) -> str:
    """Advice for a machine without a keyring."""
    return (
        f"either export {variable(name)}=… where clawpy is started, "
        f"or store it in a file that only you can read: clawpy key set {name} --store file"
    )


def check_name(name: str) -> None:
    """Raise `Refusal` `bad_name` for an invalid name, without repeating it."""
    if not NAME.fullmatch(name) or redact(name) != name:
        # Not repeated: people paste the key itself here.
        raise Refusal("bad_name", "that is not a valid provider name", "for example: clawpy key set openai")
