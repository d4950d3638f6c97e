"""The stores of keys: the system's keyring, and a private file (SPEC 11.1).

Both store values by name, and know nothing of the environment or of what a key is for. No error repeats a value.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from engine.model import Refusal
from engine.storage.files import write_json

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

Answer = TypeVar("Answer")

SERVICE = "clawpy-console"
"""The service name of keys in the keyring."""

KEYRING_TIMEOUT_S = 3.0
"""Seconds that a keyring may take: a locked one may ask its owner and never return."""

LOCK_TIMEOUT_S = 5.0
MAX_FILE_BYTES = 64 * 1024


class NoKeyring(Exception):
    """The keyring cannot be used now, and why."""


def system_keyring() -> KeyringBackend:
    """The keyring of this machine. Raises `NoKeyring`.

    Those of `keyrings.alt` are skipped: they write plain files, or ask on the terminal of the console.
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
    """False on Linux without a session bus, unless another sort of keyring is installed or configured. Importing
    `keyring` there would take 8 MB and find nothing."""
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
    """The keyring, called in a thread with a timeout. `backend` is called each time, so that a keyring that is started
    or unlocked later is used."""

    def __init__(
        self, backend: Callable[[], KeyringBackend] = system_keyring, *, seconds: float = KEYRING_TIMEOUT_S
    ) -> None:
        self._backend = backend
        self._seconds = seconds
        self._lock = threading.Lock()
        self._request: threading.Thread | None = None

    def name(self) -> str:
        """The kind of keyring, such as `SecretService Keyring`. Raises `NoKeyring`."""
        return self._call(lambda backend: str(backend.name))

    def get(self, name: str) -> str | None:
        """The value of `name`, None when there is none. Raises `NoKeyring`."""
        return self._call(lambda backend: backend.get_password(SERVICE, name))

    def set(self, name: str, value: str) -> None:
        """Store a value, and check that it was stored: some keyrings drop values. Raises `NoKeyring`."""

        def work(backend: KeyringBackend) -> bool:
            backend.set_password(SERVICE, name, value)
            return backend.get_password(SERVICE, name) == value

        if not self._call(work):
            raise NoKeyring("the keyring accepted the key but did not store it")

    def delete(self, name: str) -> bool:
        """Delete a value; False when there was none. Raises `NoKeyring`."""

        def work(backend: KeyringBackend) -> bool:
            if backend.get_password(SERVICE, name) is None:
                return False
            backend.delete_password(SERVICE, name)
            return True

        return self._call(work)

    def _call(self, work: Callable[[KeyringBackend], Answer]) -> Answer:
        answers: list[Answer] = []
        faults: list[str] = []

        def run() -> None:
            try:
                answers.append(work(self._backend()))
            except NoKeyring as error:
                faults.append(str(error))
            except Exception as error:
                # Its text may hold anything; the kind of fault says enough, and holds no secret.
                faults.append(f"the keyring failed ({type(error).__name__})")

        with self._lock:
            if self._request is not None and self._request.is_alive():
                raise NoKeyring("the keyring has still not answered; if a window asks for its password, enter it")
            self._request = threading.Thread(target=run, name="clawpy-keyring", daemon=True)
            self._request.start()
            self._request.join(self._seconds)
            if not answers and not faults:
                message = f"the keyring did not answer within {self._seconds:g} s"
                raise NoKeyring(f"{message}; if a window asks for its password, enter it, then try again")
        if faults:
            raise NoKeyring(faults[0])
        return answers[0]


class KeyFile:
    """Keys in a file that only its owner can read. Written atomically, under a lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._cached_values: tuple[tuple[int, int, int, int] | None, tuple[str, ...]] = (None, ())

    def names(self) -> tuple[str, ...]:
        """The names in the file. Raises `Refusal` as `get`."""
        return tuple(self._read())

    def get(self, name: str) -> str | None:
        """The value of `name`. Raises `Refusal` `loose_keys` when others may read the file, `damaged_keys`."""
        return self._read().get(name)

    def values(self) -> tuple[str, ...]:
        """All values in the file, so that they can be removed from texts, even when others may read it. Read again when
        the file changes; empty for a damaged one."""
        try:
            status = self.path.stat()
        except OSError:
            return ()
        state = (status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode)
        if self._cached_values[0] != state:
            try:
                self._cached_values = state, tuple(self._read(to_use=False).values())
            except Refusal:
                self._cached_values = state, ()
        return self._cached_values[1]

    def set(self, name: str, value: str) -> None:
        """Store a value. Raises `Refusal` as `get`, and `unwritable_keys`."""
        with self._locked_for_writing():
            self._write(self._read() | {name: value})

    def delete(self, name: str) -> bool:
        """Delete a value; False when there was none. The file goes with the last one."""
        if not self.path.exists():
            return False
        with self._locked_for_writing():
            values = self._read()
            if values.pop(name, None) is None:
                return False
            if values:
                self._write(values)
            else:
                self.path.unlink(missing_ok=True)
            return True

    @contextlib.contextmanager
    def _locked_for_writing(self) -> Iterator[None]:
        from filelock import FileLock, Timeout

        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with FileLock(f"{self.path}.lock", timeout=LOCK_TIMEOUT_S, mode=0o600):
                yield
        except Timeout:
            raise Refusal("unwritable_keys", f"another process is writing {self.path}", "try again") from None
        except OSError as error:
            message = f"{self.path} cannot be written: {error.strerror or error}"
            raise Refusal("unwritable_keys", message, "make the folder writable; nothing changed") from error

    def _write(self, values: dict[str, str]) -> None:
        write_json(self.path, values, mode=0o600)

    def _read(self, *, to_use: bool = True) -> dict[str, str]:
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return {}
        except OSError as error:
            message = f"{self.path} cannot be read: {error.strerror or error}"
            raise Refusal("damaged_keys", message, f"make yourself its owner: chmod 600 '{self.path}'") from error
        try:
            # Asked of what was opened: the name may lead elsewhere a moment later.
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise Refusal("damaged_keys", f"{self.path} is not a file", "move it away and set the keys again")
            if to_use and (status.st_mode & 0o077 or status.st_uid != os.geteuid()):
                message = f"{self.path} can be read or changed by others (mode {stat.S_IMODE(status.st_mode):04o})"
                raise Refusal(
                    "loose_keys", message, f"chmod 600 '{self.path}'; and replace the keys if others may have read them"
                )
            raw = os.read(descriptor, MAX_FILE_BYTES + 1)
        finally:
            os.close(descriptor)
        try:
            values = json.loads(raw) if len(raw) <= MAX_FILE_BYTES else None
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
            message = f"{self.path} is not a list of keys"
            # `from None`, and no word of what stands there: it may be a key.
            raise Refusal("damaged_keys", message, "move it away and set the keys again") from None
        return values
