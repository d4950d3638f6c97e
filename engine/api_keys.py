"""Finds and stores the keys of providers: in the environment, the system's keyring, or a private file (SPEC 11.1).

`Key.value` has the value, which is only for the call to the provider. It is never in a repr, log, error or document.
The process in which a person enters a key also stores it. So the key crosses no socket, and the keyring can ask that
person for its password. A running engine finds a new key within seconds.

`Keys` is what all others use. It asks a `Keyring` and a `KeyFile`; the environment comes first, then the keyring.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import re
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from engine.background import run_in_thread
from engine.clock import Clock, SystemClock
from engine.files import FileCache, write_json
from engine.frozen import frozen
from engine.home import Home
from engine.model import Refusal
from engine.redaction import redact

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

ENVIRONMENT, KEYRING, FILE = "environment", "keyring", "file"
"""The sources of a key."""

TWIN = "twin"
"""The key of the Twin model (`twinApiKey`, SPEC 7.6)."""

NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
"""The name of a key."""

VARIABLE = re.compile(r"CLAWPY_([A-Z][A-Z0-9_]{0,39})_API_KEY")
"""The environment variable of a key."""

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
        """Refuse to copy or pickle it, since that could store it."""
        raise TypeError(f"the key {self.name} cannot be copied or pickled, because that could store it")


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
        self._read_keys_lock = threading.Lock()
        self._read_keys: list[Key] = []

    def get(self, name: str) -> Key | None:
        """The key of `name`, None if there is none.

        Raises `Refusal` `loose_keys` or `damaged_keys` if it could only be in a file that must not be used.
        """
        value = self._environment.get(make_variable_name(name), "").strip()
        if value:
            return self._remember_read(Key(name, ENVIRONMENT, value))
        value = self._ask_keyring(name).value or ""
        if value:
            return self._remember_read(Key(name, KEYRING, value))
        value = self._file.get(name) or ""
        return self._remember_read(Key(name, FILE, value)) if value else None

    def find_source(self, name: str) -> str:
        """The source of the key of `name`: "environment", "keyring" or "file"; "" for no key."""
        key = self.get(name)
        return "" if key is None else key.source

    def find_keyring_fault(self, name: str) -> str:
        """Why the keyring cannot say whether it has the key of `name`, "" if it can."""
        return self._ask_keyring(name).fault

    def list_names(self) -> tuple[str, ...]:
        """The names of keys in the environment and the file. A keyring cannot list its keys."""
        names = [match[1].lower() for match in map(VARIABLE.fullmatch, self._environment) if match]
        return tuple(dict.fromkeys((*sorted(names), *self._file.list_names())))

    def set(self, name: str, value: str, *, in_file: bool = False, keyring_fix: str = "") -> str:
        """Store a key in the keyring, or with `in_file` in the file; returns "keyring" or "file".

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
            self.clear_cache()
            if in_file:
                self._file.set(name, value)
                self._delete_from_keyring(name)
                return FILE
            try:
                self._keyring.set(name, value)
            except NoKeyring as error:
                raise Refusal("no_keyring", f"{error}", keyring_fix or advise_without_keyring(name)) from None
            finally:
                self.clear_cache()
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
            self.clear_cache()
        if deleted_from:
            return tuple(deleted_from)
        variable = make_variable_name(name)
        if self._environment.get(variable, "").strip():
            raise Refusal("in_environment", f"{variable} in the environment sets it", f"unset {variable}")
        message = f"there is no key for {name}"
        raise Refusal("no_key", f"{message} in the file; {fault}" if fault else message, "see `clawpy key list`")

    def clear_cache(self) -> None:
        """Clear the cache of the keyring."""
        with self._lock:
            self._answers.clear()

    def find_keyring_name(self) -> str:
        """The kind of keyring, such as `SecretService Keyring`. Raises `NoKeyring`."""
        return self._keyring.find_name()

    def find_file_warning(self) -> str:
        """A warning while keys are in a file, else ""."""
        try:
            names = self._file.list_names()
        except Refusal as refusal:
            return refusal.message
        return f"keys in a plain file: {', '.join(names)} ({self._file.path})" if names else ""

    def secrets(self) -> tuple[str, ...]:
        """Every value that must not be stored anywhere: keys that were read in this process, keys in the file, and
        secrets in the environment. The last include those of other programs, such as `GITHUB_TOKEN`: a session does not
        inherit them (SPEC 3.8), but may find them in a `.env`. The keyring is not asked, because that may need a
        person."""
        with self._read_keys_lock:
            read_values = [key.value for key in self._read_keys]
        return tuple(dict.fromkeys((*read_values, *self._file.list_values(), *self._collect_environment_secrets())))

    def _collect_environment_secrets(self) -> Iterator[str]:
        for name in list(self._environment):  # other threads may set variables meanwhile
            value = self._environment.get(name, "")
            if VARIABLE.fullmatch(name) or (_SECRET_VARIABLE.search(name) and _SECRET_VALUE.fullmatch(value)):
                yield value.strip()

    def _remember_read(self, key: Key) -> Key:
        """Keep the key for `secrets`, and return it."""
        with self._read_keys_lock:
            if all(key.value != other.value for other in self._read_keys):
                self._read_keys.append(key)
        return key

    def _ask_keyring(self, name: str) -> _KeyringAnswer:
        """The answer of the keyring about a key, from the cache if it is recent. A recent fault answers for all
        keys."""
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
            self.clear_cache()


def find_key_variables(environment: Mapping[str, str]) -> list[str]:
    """The variables of an environment that hold keys of providers, by name."""
    return sorted(name for name, value in environment.items() if VARIABLE.fullmatch(name) and value.strip())


def make_variable_name(name: str) -> str:
    """The environment variable of the key of `name`."""
    return f"CLAWPY_{name.upper().replace('-', '_')}_API_KEY"


def advise_without_keyring(name: str) -> str:
    """Advice for a machine without a keyring."""
    return (
        f"either export {make_variable_name(name)}=… where clawpy is started, "
        f"or store it in a file that only you can read: clawpy key set {name} --store file"
    )


def check_name(name: str) -> None:
    """Raise `Refusal` `bad_name` for an invalid name, without repeating it."""
    if not NAME.fullmatch(name) or redact(name) != name:
        # Not repeated: people paste the key itself here.
        raise Refusal("bad_name", "that is not a valid provider name", "for example: clawpy key set openai")


# -- the keyring of the system

Result = TypeVar("Result")

SERVICE = "clawpy-console"
"""The service name of keys in the keyring."""

KEYRING_TIMEOUT_S = 3.0
"""Seconds that a keyring may take. A locked one may ask its owner and never return."""


class NoKeyring(Exception):
    """Raised if the keyring cannot be used now. The message says why."""


def find_system_keyring() -> KeyringBackend:
    """The keyring of this machine. Raises `NoKeyring`.

    Keyrings of `keyrings.alt` are skipped: they write plain files, or ask on the terminal of the console.
    """
    if "keyring" not in sys.modules and not _may_have_keyring():
        raise NoKeyring("this machine has no usable keyring")
    import keyring

    configured: Any = keyring.get_keyring()
    for backend in getattr(configured, "backends", None) or [configured]:
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
    """The system's keyring, called in a thread with a timeout. `find_backend` finds it at each call, so that a keyring
    that is started or unlocked later is used."""

    def __init__(
        self, find_backend: Callable[[], KeyringBackend] = find_system_keyring, *, seconds: float = KEYRING_TIMEOUT_S
    ) -> None:
        self._find_backend = find_backend
        self._seconds = seconds
        self._lock = threading.Lock()
        self._request: Future[Any] | None = None

    def find_name(self) -> str:
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

    def _call(self, work: Callable[[KeyringBackend], Result]) -> Result:
        """Run `work` with the keyring. Raises `NoKeyring` if it fails or takes too long."""
        with self._lock:
            if self._request is not None and not self._request.done():
                raise NoKeyring("the keyring has still not answered; if a window asks for its password, enter it")
            request = self._request = run_in_thread("clawpy-keyring", lambda: work(self._find_backend()))
            if not wait([request], self._seconds).done:
                message = f"the keyring did not answer within {self._seconds:g} s"
                raise NoKeyring(f"{message}; if a window asks for its password, enter it, then try again")
        error = request.exception()
        if error is None:
            answer: Result = request.result()
            return answer
        if isinstance(error, NoKeyring):
            raise error
        # The error's text may have a secret in it, so only its type is reported.
        raise NoKeyring(f"the keyring failed ({type(error).__name__})")


# -- the file of keys

LOCK_TIMEOUT_S = 5.0
"""Seconds to wait for another process that writes the file."""

MAX_FILE_BYTES = 64 * 1024
"""Maximum size of the file."""


class KeyFile:
    """Keys in a file that only its owner can read. Written atomically, under a lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._cached_values = FileCache[tuple[str, ...]]()

    def list_names(self) -> tuple[str, ...]:
        """The names in the file. Raises `Refusal` as `get`."""
        return tuple(self._read())

    def get(self, name: str) -> str | None:
        """The value of `name`. Raises `Refusal`: `loose_keys` if other users may read the file, `damaged_keys`."""
        return self._read().get(name)

    def list_values(self) -> tuple[str, ...]:
        """All values in the file, so that they can be removed from texts, even if other users may read the file. Empty
        for a damaged file."""

        def read() -> tuple[str, ...]:
            try:
                return tuple(self._read(must_be_private=False).values())
            except Refusal:
                return ()

        return self._cached_values.get(self.path, (self.path,), read)

    def set(self, name: str, value: str) -> None:
        """Store a value. Raises `Refusal` as `get`, and `unwritable_keys`."""
        with self._locked_for_writing():
            self._write(self._read() | {name: value})

    def delete(self, name: str) -> bool:
        """Delete a value. Returns whether there was one. The file is deleted with the last value."""
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
        """A context in which no other process writes the file. Raises `Refusal` `unwritable_keys`."""
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

    def _read(self, *, must_be_private: bool = True) -> dict[str, str]:
        """The keys in the file. Raises `Refusal`: `damaged_keys`, and as `_read_bytes`."""
        raw = self._read_bytes(must_be_private=must_be_private)
        try:
            values = json.loads(raw) if len(raw) <= MAX_FILE_BYTES else None
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
            message = f"{self.path} is not a list of keys"
            # `from None` and no text of the file: it may be a key.
            raise Refusal("damaged_keys", message, "move it away and set the keys again") from None
        return values

    def _read_bytes(self, *, must_be_private: bool) -> bytes:
        """The content of the file, without keys if there is no file. Raises `Refusal`: `damaged_keys`, and `loose_keys`
        if it must be private and others can read or change it."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return b"{}"
        except OSError as error:
            message = f"{self.path} cannot be read: {error.strerror or error}"
            raise Refusal("damaged_keys", message, f"make yourself its owner: chmod 600 '{self.path}'") from error
        try:
            # The status of the open file: another file may have its name a moment later.
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise Refusal("damaged_keys", f"{self.path} is not a file", "move it away and set the keys again")
            if must_be_private and (status.st_mode & 0o077 or status.st_uid != os.geteuid()):
                message = f"{self.path} can be read or changed by others (mode {stat.S_IMODE(status.st_mode):04o})"
                raise Refusal(
                    "loose_keys", message, f"chmod 600 '{self.path}'; and replace the keys if others may have read them"
                )
            return os.read(descriptor, MAX_FILE_BYTES + 1)
        finally:
            os.close(descriptor)
