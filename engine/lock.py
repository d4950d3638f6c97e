"""The lock of a home, which allows only one engine, and a note about its holder (SPEC 7.5).

The operating system releases the lock when the process dies. The note `data/engine.json` has the process id, the start,
the version, the address of the control socket, and the folder it was written in: a copied home has the note of the
original, whose engine is not its own. It only informs: whether the home is held depends on the lock alone.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import threading
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import __version__
from engine.files import write_json
from engine.frozen import frozen
from engine.home import Home
from engine.model import Refusal
from engine.wording import local_time

if TYPE_CHECKING:
    from filelock import BaseFileLock

    from engine.clock import Clock

log = logging.getLogger(__name__)


RELEASE_TIMEOUT_S = 2.0
"""Seconds until programs that a dead engine was just starting have released its lock."""


@frozen
class Holder:
    """The holder of a home. `since` is an ISO instant in UTC. `address` is the path of the control socket, or "".
    `kind` is "console" or "headless" (consoles attach to both), or "" for a verb. `gateway` is the URL of its gateway,
    or "". `data` is the path of the home's data folder. `key_variables` are the variables of its environment that hold
    keys, None if the note does not say."""

    pid: int
    since: str
    version: str = ""
    address: str = ""
    kind: str = ""
    gateway: str = ""
    data: str = ""
    key_variables: tuple[str, ...] | None = None


def read_holder(home: Home) -> Holder | None:
    """The holder in the note, None for a missing or invalid note, and for one that was copied from another home. The
    note may be that of a dead engine."""
    try:
        note = json.loads(home.engine_note.read_bytes()[:4096])
        if not isinstance(note, dict):
            return None
        texts = {name: str(note.get(name, "")) for name in ("version", "address", "kind", "gateway", "data")}
        variables = note.get("key_variables")
        key_variables = tuple(map(str, variables)) if isinstance(variables, list) else None
        datetime.fromisoformat(note["since"])
        holder = Holder(int(note["pid"]), note["since"], **texts, key_variables=key_variables)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return holder if home.has_data_folder(holder.data) else None


def read_living_holder(home: Home) -> Holder | None:
    """The holder in the note if its process lives."""
    holder = read_holder(home)
    return holder if holder is not None and _is_alive(holder.pid) else None


class HomeLock:
    """The lock of one home. Acquire it before SQLite is opened, release it after SQLite is closed."""

    def __init__(
        self, home: Home, *, clock: Clock, version: str = "", kind: str = "", key_variables: Sequence[str] = ()
    ) -> None:
        self._home = home
        self._clock = clock
        self._version = version
        self._kind = kind
        self._key_variables = tuple(key_variables)
        self._holder: Holder | None = None
        self._note_lock = threading.RLock()
        # The lock is not thread-local: the engine may be opened in one thread and closed in another.
        self._lock = _make_lock(home)

    def acquire(self) -> None:
        """Take the home, creating its folders. Never waits for a living engine.

        Raises `Refusal`: `home_held` (by whom, since when), `unwritable_home`.
        """
        try:
            for folder in (self._home.config, self._home.data, self._home.cache, self._home.logs):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            is_taken = self._try_to_take()
        except OSError as error:
            raise _make_unwritable_home_refusal(Path(error.filename or self._home.data), error) from error
        if not is_taken:
            raise make_held_refusal(self._home)
        try:
            since = self._clock.now().isoformat(timespec="seconds")
            self._write_note(
                Holder(
                    os.getpid(),
                    since,
                    self._version,
                    kind=self._kind,
                    data=str(self._home.data),
                    key_variables=self._key_variables,
                )
            )
        except BaseException:
            self._lock.release()
            raise

    def _try_to_take(self) -> bool:
        if _try_acquire(self._lock):
            return True
        holder = read_holder(self._home)
        if holder is None or _is_alive(holder.pid):
            return False
        # The holder died while it was starting a program, which inherited the lock and releases it a moment later.
        return _try_acquire(self._lock, timeout_s=RELEASE_TIMEOUT_S)

    def announce(self, address: str) -> None:
        """Write the address of the control socket into the note; "" removes it. Removing never fails, because an engine
        must be able to end on a full disk."""
        self._update_note(address=address)

    def announce_gateway(self, url: str) -> None:
        """Write the URL of the gateway into the note, in the same way."""
        self._update_note(gateway=url)

    def _update_note(self, **changes: Any) -> None:
        """Change fields of the note. A failure is only logged if it would remove an address."""
        assert self._holder is not None, "acquire the lock first"
        try:
            with self._note_lock:  # two threads may announce at once, and both changes must stay
                self._write_note(replace(self._holder, **changes))
        except Refusal:
            if any(changes.values()):
                raise
            log.exception("the lock file still has an address at which nobody listens")

    def release(self) -> None:
        """Release the home. Does nothing if it is not held."""
        if self._lock.is_locked:
            self._home.engine_note.unlink(missing_ok=True)
            self._lock.release()

    def _write_note(self, holder: Holder) -> None:
        with self._note_lock:
            self._holder = holder
            try:
                write_json(self._home.engine_note, asdict(holder), mode=0o600)
            except OSError as error:
                raise _make_unwritable_home_refusal(self._home.engine_note, error) from error


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def _make_unwritable_home_refusal(path: Path, error: OSError) -> Refusal:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Refusal("disk_full", f"the disk that holds {path.parent} is full", "free some space; nothing was lost")
    return Refusal(
        "unwritable_home",
        f"the home cannot be written: {path}: {error.strerror or error}",
        "make the folder writable, or name another with --home DIR",
    )


def is_free(home: Home) -> bool:
    """Whether no engine holds `home` now."""
    lock = _make_lock(home)
    if not _try_acquire(lock):
        return False
    lock.release()
    return True


def _make_lock(home: Home) -> BaseFileLock:
    from filelock import FileLock

    return FileLock(home.lock, thread_local=False)


def _try_acquire(lock: BaseFileLock, *, timeout_s: float = 0.0) -> bool:
    """Try to take the lock for `timeout_s` seconds; returns whether it was taken. Raises OSError if its file cannot be
    created."""
    from filelock import Timeout

    try:
        lock.acquire(timeout=timeout_s)
    except Timeout:
        return False
    return True


def find_version_problem(holder: Holder) -> Refusal | None:
    """The refusal of an engine that is not of this version, as after an upgrade of the package; None if it is, or if
    its version is not known."""
    if holder.version in ("", __version__):
        return None
    return Refusal(
        "other_version",
        f"the running engine is clawpy {holder.version}, this is {__version__}",
        f"end it with q in its console, or with `kill {holder.pid}`; then repeat this",
    )


def make_held_refusal(home: Home) -> Refusal:
    """The refusal that says who holds `home`."""
    holder = read_holder(home)
    if holder is None:
        holder_words = "another engine that is starting"
    else:
        engine = f"the {holder.kind} engine".replace("  ", " ")
        holder_words = f"{engine} with process id {holder.pid}, running since {local_time(holder.since)}"
    return Refusal(
        "home_held",
        f"{home.data} is held by {holder_words}",
        "`clawpy` attaches to it, and verbs reach it: `clawpy --workspace DIR predict` checks another repository, and "
        "`clawpy config set 'workspaces.\"DIR\".autonomy' cards` lets it watch that repository too; or name another "
        "home with --home DIR",
    )
