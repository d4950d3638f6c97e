"""The system's keyring, which stores the keys of providers (SPEC 11.1)."""

from __future__ import annotations

import importlib.metadata
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from engine.background import run_in_thread

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

Answer = TypeVar("Answer")

SERVICE = "clawpy-console"
"""The service name of keys in the keyring."""

KEYRING_TIMEOUT_S = 3.0
"""Seconds that a keyring may take. A locked one may ask its owner and never return."""


class NoKeyring(Exception):
    """Raised if the keyring cannot be used now. The message says why."""


def system_keyring() -> KeyringBackend:
    """The keyring of this machine. Raises `NoKeyring`.

    Keyrings of `keyrings.alt` are skipped: they write plain files, or ask on the terminal of the console.
    """
    if "keyring" not in sys.modules and not _may_have_keyring():
        raise NoKeyring("this machine has no usable keyring")
    import keyring

    chosen: Any = keyring.get_keyring()
    for backend in getattr(chosen, "backends", None) or [chosen]:
        module = type(backend).__module__
        if not module.startswith(("keyring.backends.fail", "keyring.backends.null", "keyrings.alt")):
            usable: KeyringBackend = backend
            return usable
    raise NoKeyring("this machine has no usable keyring")


def _may_have_keyring() -> bool:
    """Whether to import `keyring`. False on Linux without a session bus, unless another kind of keyring is installed or
    configured: importing it there would take 8 MB of memory and find nothing."""
    if sys.platform != "linux":
        return True
    if os.environ.get("DBUS_SESSION_BUS_ADDRESS") or os.environ.get("PYTHON_KEYRING_BACKEND"):
        return True
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    config_files = (Path(f"/run/user/{os.getuid()}/bus"), config / "python_keyring" / "keyringrc.cfg")
    return any(file.exists() for file in config_files) or any(
        not point.value.startswith(("keyring.backends", "keyrings.alt"))
        for point in importlib.metadata.entry_points(group="keyring.backends")
    )


class Keyring:
    """The system's keyring, called in a thread with a timeout. `backend()` finds it at each call, so that a keyring
    that is started or unlocked later is used."""

    def __init__(
        self, backend: Callable[[], KeyringBackend] = system_keyring, *, seconds: float = KEYRING_TIMEOUT_S
    ) -> None:
        self._backend = backend
        self._seconds = seconds
        self._lock = threading.Lock()
        self._request: Future[Any] | None = None

    def name(self) -> str:
        """The kind of keyring, such as `SecretService Keyring`. Raises `NoKeyring`."""
        return self._call(lambda backend: str(backend.name))

    def get(self, name: str) -> str | None:
        """The value of `name`, None if there is none. Raises `NoKeyring`."""
        return self._call(lambda backend: backend.get_password(SERVICE, name))

    def set(self, name: str, value: str) -> None:
        """Store a value, and check that it was stored: some keyrings drop values. Raises `NoKeyring`."""

        def work(backend: KeyringBackend) -> bool:
            backend.set_password(SERVICE, name, value)
            return backend.get_password(SERVICE, name) == value

        if not self._call(work):
            raise NoKeyring("the keyring accepted the key but did not store it")

    def delete(self, name: str) -> bool:
        """Delete a value. Returns whether there was one. Raises `NoKeyring`."""

        def work(backend: KeyringBackend) -> bool:
            if backend.get_password(SERVICE, name) is None:
                return False
            backend.delete_password(SERVICE, name)
            return True

        return self._call(work)

    def _call(self, work: Callable[[KeyringBackend], Answer]) -> Answer:
        with self._lock:
            if self._request is not None and not self._request.done():
                raise NoKeyring("the keyring has still not answered; if a window asks for its password, enter it")
            request = self._request = run_in_thread("clawpy-keyring", lambda: work(self._backend()))
            if not wait([request], self._seconds).done:
                message = f"the keyring did not answer within {self._seconds:g} s"
                raise NoKeyring(f"{message}; if a window asks for its password, enter it, then try again")
        error = request.exception()
        if error is None:
            answer: Answer = request.result()
            return answer
        if isinstance(error, NoKeyring):
            raise error
        # The error's text may have a secret in it, so only its type is reported.
        raise NoKeyring(f"the keyring failed ({type(error).__name__})")
