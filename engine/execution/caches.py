"""The caches of a workspace that outlive a session, so that its checks are fast (SPEC 3.8)."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.files import remove_folder

MAX_SLOTS = 3
"""Maximum number of caches of one workspace. Each is for one line of commits."""

MAX_UNUSED_SECONDS = 30 * 86_400
"""Seconds after which a cache that no session used is removed."""


class Caches:
    """The caches in `folder`, for one engine. Thread-safe.

    A session trusts the files that an earlier one left in its cache. So only sessions that check without writing share
    a cache, and only along one line of commits. A slot is one such cache. It remembers the commit at which it was last
    used, and is used again for that commit and its descendants. Every other session has an empty cache, which is
    deleted with the session.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._users: Counter[Path] = Counter()
        """The number of sessions that use each slot."""

    @contextmanager
    def use_cache(self, workspace: str, head: str, descends: Callable[[str], bool]) -> Iterator[Path]:
        """The folder of caches for a session that checks `workspace` at the commit `head`. `descends` says whether
        `head` descends from a commit. Raises OSError."""
        with self._lock:
            slot = self._choose_slot(self._workspace_folder(workspace), head, descends)
            self._users[slot] += 1
            for name in ("files", "tree"):
                (slot / name).mkdir(parents=True, exist_ok=True, mode=0o700)
            (slot / "head").write_text(head)
        try:
            yield slot / "files"
        finally:
            with self._lock:
                self._users[slot] -= 1

    def sweep(self) -> None:
        """Remove caches that no session used for `MAX_UNUSED_SECONDS`. Raises OSError."""
        now = time.time()
        for workspace in self._folder.glob("*"):
            for slot in workspace.iterdir():
                used = slot / "head"
                if not used.is_file() or now - used.stat().st_mtime > MAX_UNUSED_SECONDS:
                    remove_folder(slot)
            if not any(workspace.iterdir()):
                workspace.rmdir()

    def idle_slots(self) -> list[Path]:
        """The caches that no session uses now."""
        with self._lock:
            return [slot for slot in self._folder.glob("*/*") if not self._users[slot]]

    def drop(self, slots: Collection[Path]) -> int:
        """Remove those of `slots` that are still idle. Returns their number. The next check fills them again. Raises
        OSError."""
        dropped = 0
        for slot in slots:
            with self._lock:
                if not self._users[slot] and slot.is_dir():
                    remove_folder(slot)
                    dropped += 1
        return dropped

    def _workspace_folder(self, workspace: str) -> Path:
        return self._folder / hashlib.sha256(workspace.encode()).hexdigest()[:16]

    def _choose_slot(self, folder: Path, head: str, descends: Callable[[str], bool]) -> Path:
        """The slot that was last used at `head`, else the newest one at an ancestor of `head`, else an empty one."""
        slots = [path.parent for path in folder.glob("*/head")]
        heads = {slot: (slot / "head").read_text() for slot in slots}
        slots.sort(key=lambda slot: (heads[slot] == head, (slot / "head").stat().st_mtime), reverse=True)
        for slot in slots:
            if heads[slot] == head or (not self._users[slot] and heads[slot] and descends(heads[slot])):
                return slot
        free = [slot for slot in slots if not self._users[slot]]
        if len(slots) >= MAX_SLOTS and free:
            remove_folder(free[-1])
            slots.remove(free[-1])
        names = {slot.name for slot in slots}
        return folder / next(name for name in map(str, range(len(slots) + 1)) if name not in names)
