"""Caches of a workspace that outlive a session, and who may see them (SPEC 3.8).

A cache that one session filled is believed by the next one that reads it. So only sessions that check, without writing,
share one, and only along one line of commits: a slot remembers the commit it was last used at, and is taken again for
that commit and those that descend from it. Everybody else has an empty one that goes with the session.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.execution.sandbox.base import Confinement
from engine.files import remove_folder

_TREE_CACHES = (
    (".pytest_cache", ""),
    ("node_modules/.cache", "node_modules"),
    ("target", "Cargo.toml"),
    ("target", "pom.xml"),
    (".gradle", "build.gradle"),
    (".gradle", "build.gradle.kts"),
    ("build", "build.gradle"),
    ("build", "build.gradle.kts"),
)
"""Folders in which tools keep caches in the tree itself, each with the file that such a tree has ("": any tree)."""


def caches_in_tree(confinement: Confinement) -> dict[Path, Path]:
    """Make the caches of `_TREE_CACHES` for a session that works over the operator's tree: place in the tree to folder
    of the cache. A place where the operator has something is left out."""
    folders = {}
    for name, tree_file in _TREE_CACHES:
        path = confinement.folder / name
        is_taken = path.exists() or path.is_symlink() or path.parent.is_symlink()
        if is_taken or not (confinement.folder / tree_file).exists():
            continue
        # Beside what is shown: a source of a mount that a command could exchange for a link is none.
        cache = confinement.caches.parent / "tree" / name
        cache.mkdir(parents=True, exist_ok=True)
        folders[path] = cache
    return folders


MAX_SLOTS = 3
"""Maximum number of lines of commits of one workspace that have a cache."""

MAX_UNUSED_SECONDS = 30 * 86_400
"""Seconds after which a cache that no session used is removed."""


class Caches:
    """The caches in `folder`, for one engine. Its methods may be called from any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._users: Counter[Path] = Counter()
        """The number of sessions that use each slot."""

    @contextmanager
    def use_cache(self, workspace: str, head: str, descends: Callable[[str], bool]) -> Iterator[Path]:
        """The folder, for `Confinement.caches`, of a session that checks `workspace` at the commit `head`. `descends`
        says whether `head` descends from a commit. Raises OSError."""
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
        """Remove those of `slots` that are still idle; returns how many went. The next check fills them anew. Raises
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
        """The slot last used at `head`, else the latest at a commit it descends from, else an empty one."""
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
