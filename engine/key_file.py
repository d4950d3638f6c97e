"""The private file that stores the keys of providers where there is no keyring (SPEC 11.1)."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from engine.files import FileCache, write_json
from engine.model import Refusal

LOCK_TIMEOUT_S = 5.0
MAX_FILE_BYTES = 64 * 1024


class KeyFile:
    """Keys in a file that only its owner can read. Written atomically, under a lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._cached_values = FileCache[tuple[str, ...]]()

    def names(self) -> tuple[str, ...]:
        """The names in the file. Raises `Refusal` as `get`."""
        return tuple(self._read())

    def get(self, name: str) -> str | None:
        """The value of `name`. Raises `Refusal`: `loose_keys` if other users may read the file, `damaged_keys`."""
        return self._read().get(name)

    def values(self) -> tuple[str, ...]:
        """All values in the file, so that they can be removed from texts, even if other users may read the file. Empty
        for a damaged file."""

        def read() -> tuple[str, ...]:
            try:
                return tuple(self._read(to_use=False).values())
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
            # The status of the open file: another file may have its name a moment later.
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
            # `from None` and no text of the file: it may be a key.
            raise Refusal("damaged_keys", message, "move it away and set the keys again") from None
        return values
