"""Keys of providers (SPEC 11.1): the environment, then the system's keyring, then, with consent, a file of one's own.

A value leaves here only as `Key.value`, for the one who calls the provider: it is in no repr, no log, no error and no
document. Whoever sets a key does so in his own process: it crosses no socket, and the keyring that may ask for its
password asks the person who is there. A running engine finds the new key within seconds.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping
from typing import NoReturn

from engine.clock import Clock, SystemClock
from engine.frozen import frozen
from engine.home import Home
from engine.key_stores import KeyFile, Keyring, NoKeyring
from engine.model import Refusal
from engine.model.secrets import redact

ENVIRONMENT, KEYRING, FILE = "environment", "keyring", "file"

TWIN = "twin"
"""The key of the Twin model (`twinApiKey`, SPEC 7.6)."""

NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
VARIABLE = re.compile(r"CLAWPY_([A-Z][A-Z0-9_]{0,39})_API_KEY")

_SECRET_VARIABLE = re.compile(r"(?:^|_)(?:API_?KEY|ACCESS_KEY|SECRET|SECRET_KEY|TOKEN|PASSWORD|PASSWD|PASS)$")
_LIKE_A_SECRET = re.compile(r"(?=.*[0-9])[^\s/][!-~]{11,}")
"""Whose value is taken for a secret: no path, no word (`TOKEN=disabled`)."""

REMEMBERED = 10.0
"""Seconds that an answer of the keyring is believed: it is asked before every card, and may be another process."""

UNABLE = 60.0
"""Seconds that a keyring which failed or hung is not asked again."""


class Key:
    """A key and where it comes from. Shown, it is a name; only `value` tells it."""

    __slots__ = ("_value", "name", "source")

    def __init__(self, name: str, source: str, value: str) -> None:
        self.name = name
        self.source = source
        self._value = value

    @property
    def value(self) -> str:
        """The key itself: for the call to the provider and nothing else."""
        return self._value

    def __repr__(self) -> str:
        return f"Key({self.name!r}, {self.source!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("the key was not stored")


@frozen
class _Answer:
    """What the keyring said, and until when (monotonic seconds) that is believed."""

    value: str | None
    fault: str
    until: float

    def __repr__(self) -> str:
        return "_Answer()"


class Keys:
    """Finds, keeps and forgets keys by the provider's name. Safe from any thread; a first look may take 3 s."""

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
        self._answers: dict[str, _Answer] = {}
        self._telling = threading.Lock()
        self._told: list[Key] = []

    def get(self, name: str) -> Key | None:
        """The key of `name`, None when there is none.

        Raises `Refusal` `loose_keys` or `damaged_keys` when it could only be in a file that must not be used.
        """
        value = self._environment.get(variable(name), "").strip()
        if value:
            return self._tell(Key(name, ENVIRONMENT, value))
        value = self._ask(name).value or ""
        if value:
            return self._tell(Key(name, KEYRING, value))
        value = self._file.get(name) or ""
        return self._tell(Key(name, FILE, value)) if value else None

    def where(self, name: str) -> str:
        """Where the key of `name` comes from: "environment", "keyring" or "file"; "" when there is none."""
        key = self.get(name)
        return "" if key is None else key.source

    def keyring_fault(self, name: str) -> str:
        """Why the keyring does not say whether it has the key of `name`; "" when it does say."""
        return self._ask(name).fault

    def names(self) -> tuple[str, ...]:
        """Whose keys are in the environment or in the file. A keyring does not say what it holds: ask it by name."""
        names = [match[1].lower() for match in map(VARIABLE.fullmatch, self._environment) if match]
        return tuple(dict.fromkeys((*sorted(names), *self._file.names())))

    def set(self, name: str, value: str, *, consent_file: bool = False) -> str:
        """Keep a key in the keyring, or with `consent_file` in the file; returns "keyring" or "file".

        It lies in one place only: what the other one held is taken out. Raises `Refusal`: `bad_name`, `bad_key`,
        `no_keyring` (it says what can be done instead), and what the file raises.
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
                self._take_from_keyring(name)
                return FILE
            try:
                self._keyring.set(name, value)
            except NoKeyring as error:
                raise Refusal("no_keyring", f"{error}", without_keyring(name)) from None
            finally:
                self.forget()
            self._file.delete(name)
            return KEYRING

    def delete(self, name: str) -> tuple[str, ...]:
        """Take a key out of the keyring and the file; returns where it was.

        Raises `Refusal`: `bad_name`, `no_key`, and `in_environment` when only a variable has it.
        """
        check_name(name)
        with self._lock:
            was = []
            fault = ""
            try:
                if self._keyring.delete(name):
                    was.append(KEYRING)
            except NoKeyring as error:
                fault = str(error)
            if self._file.delete(name):
                was.append(FILE)
            self.forget()
        if was:
            return tuple(was)
        if self._environment.get(variable(name), "").strip():
            raise Refusal("in_environment", f"{variable(name)} in the environment sets it", f"unset {variable(name)}")
        message = f"there is no key for {name}"
        raise Refusal("no_key", f"{message} in the file; {fault}" if fault else message, "see `clawpy key list`")

    def forget(self) -> None:
        """Ask the keyring anew from now on: something may have changed."""
        with self._lock:
            self._answers.clear()

    def backend(self) -> str:
        """What keyring there is, for instance `SecretService Keyring`; raises `NoKeyring` with the reason."""
        return self._keyring.name()

    def badge(self) -> str:
        """As long as keys lie in a file: the words that say so wherever the state of things is shown; else ""."""
        try:
            names = self._file.names()
        except Refusal as refusal:
            return refusal.message
        return f"keys in a plain file: {', '.join(names)} ({self._file.path})" if names else ""

    def secrets(self) -> tuple[str, ...]:
        """Every value that must stand in nothing that is kept: what this process has told anyone, what lies in the
        file, and what the environment holds, also under others' names (`GITHUB_TOKEN`): a session does not inherit it
        (SPEC 3.8), but may find the same in a `.env`. A keyring is not asked, which may need a person."""
        with self._telling:
            disclosed = [key.value for key in self._told]
        return tuple(dict.fromkeys((*disclosed, *self._file.values(), *self._inherited())))

    def _inherited(self) -> Iterator[str]:
        for name in list(self._environment):  # others may set variables meanwhile
            value = self._environment.get(name, "")
            if VARIABLE.fullmatch(name) or (_SECRET_VARIABLE.search(name) and _LIKE_A_SECRET.fullmatch(value)):
                yield value.strip()

    def _tell(self, key: Key) -> Key:
        with self._telling:
            if all(key.value != other.value for other in self._told):
                self._told.append(key)
        return key

    def _ask(self, name: str) -> _Answer:
        with self._lock:
            now = self._clock.monotonic()
            cached = self._answers.get(name)
            if cached is not None and now < cached.until:
                return cached
            unable = next((answer for answer in self._answers.values() if answer.fault and now < answer.until), None)
            if unable is not None:
                return unable
            try:
                answer = _Answer(self._keyring.get(name), "", now + REMEMBERED)
            except NoKeyring as error:
                answer = _Answer(None, str(error), self._clock.monotonic() + UNABLE)
            self._answers[name] = answer
            return answer

    def _take_from_keyring(self, name: str) -> None:
        """After a key was put into the file: one of the same name in the keyring would come first for ever."""
        try:
            self._keyring.delete(name)
        except NoKeyring:
            return  # what cannot be asked does not come first either
        finally:
            self.forget()


def variable(name: str) -> str:
    """The variable of the environment that holds the key of `name`."""
    return f"CLAWPY_{name.upper().replace('-', '_')}_API_KEY"


def without_keyring(name: str) -> str:
    """What to do on a machine without a keyring, in words."""
    return (
        f"either export {variable(name)}=… where clawpy is started, "
        f"or store it in a file that only you can read: clawpy key set {name} --store file"
    )


def check_name(name: str) -> None:
    """Raise `Refusal` `bad_name` for what is no provider's name, without repeating it."""
    if not NAME.fullmatch(name) or redact(name) != name:
        # Not repeated: people paste the key itself here.
        raise Refusal("bad_name", "that is not a valid provider name", "for example: clawpy key set openai")
