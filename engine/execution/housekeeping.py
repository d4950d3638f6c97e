"""Looks after what the engine stored on the disk: caches of workspaces, what can be removed, and a landing to undo.

Sensing asks whether the disk is nearly full. The flows of `Place.ENGINE` free space and undo landings, and the folders
of sessions get their caches here.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import islice
from pathlib import Path

from engine.clock import Clock
from engine.execution.changesets import ChangeSets
from engine.files import remove_folder
from engine.frozen import frozen
from engine.home import Home
from engine.model import ChangeSet, ChangeState, Refusal
from engine.text import hex_hash

MAX_MEASURED_FILES = 50_000
"""Maximum number of files that are measured. The others are not counted."""

NEARLY_FULL_BYTES = 5_000_000_000
NEARLY_FULL_SHARE = 0.1
"""A disk is nearly full when its free space is less than both."""

URGENT_BYTES = 1_000_000_000
NOT_URGENT_BYTES = 2_000_000_000
"""A nearly full disk becomes urgent below the first number of free bytes, and stops being urgent at the second, so that
its card does not come back each time that a file is deleted."""

MEASURE_INTERVAL_S = 600.0
"""Seconds until the size is measured again."""

MAX_CACHE_SLOTS = 3
"""Maximum number of caches of one workspace. Each is for one line of commits."""

MAX_UNUSED_S = 30 * 86_400
"""Seconds after which a cache that no session used is removed."""


@frozen
class UndoneLanding:
    """A landing that was undone: its change set after that, and the paths of the files that the landing had changed."""

    change: ChangeSet
    restored: Sequence[str]


@frozen
class FullDisk:
    """A disk that is nearly full."""

    free: int
    """Free bytes."""
    total: int
    """Bytes of the whole disk."""
    ours: int
    """Bytes that clawpy could free."""
    urgent: bool
    since: datetime
    """When it was first found nearly full."""


@frozen
class ReclaimedSpace:
    """The result of `reclaim`."""

    worktrees: tuple[str, ...]
    """The sessions whose worktrees were removed."""
    caches: int
    """The number of removed caches."""
    freed: int
    """Freed bytes, as far as they were measured."""


class Housekeeping:
    """Frees disk space, and undoes landings for flows."""

    def __init__(
        self,
        home: Home,
        clock: Clock,
        *,
        changes: ChangeSets,
        caches: Caches,
        list_running: Callable[[], Collection[str]],
    ) -> None:
        """`list_running` returns the ids of running sessions."""
        self._home = home
        self._clock = clock
        self._measured: tuple[float, int] | None = None
        """When it was last measured (monotonic seconds), and the bytes that clawpy could free."""
        self._full: FullDisk | None = None
        self._changes = changes
        self._worktrees = changes.worktrees
        self._caches = caches
        self._list_running = list_running

    def undo(self, change_set_id: str, workspace: str) -> UndoneLanding:
        """Undo a landing; see `ChangeSets.undo`. Raises `Refusal` also when it belongs to another workspace."""
        before = self._changes.get(change_set_id)
        if before.workspace != workspace:
            raise Refusal("unknown_change_set", f"{change_set_id} is of another workspace", "`clawpy work` lists them")
        after = self._changes.undo(change_set_id)
        was_whole = before.state is ChangeState.LANDED
        return UndoneLanding(after, [file.path for file in after.files if was_whole or file not in before.files])

    def read_free_space(self) -> tuple[int, int]:
        """The free and the total bytes of the disk that has the home's caches. Raises OSError."""
        stats = os.statvfs(self._home.cache)
        return stats.f_bavail * stats.f_frsize, stats.f_blocks * stats.f_frsize

    def find_full_disk(self) -> FullDisk | None:
        """The disk if it is nearly full, else None. Folders are measured only if it is. Raises OSError."""
        free, total = self.read_free_space()
        if free >= NEARLY_FULL_BYTES or free >= total * NEARLY_FULL_SHARE:
            self._full = None
            return None
        now = self._clock.monotonic()
        if self._measured is None or now - self._measured[0] >= MEASURE_INTERVAL_S:
            folders = [*self._find_unneeded_worktrees().values(), *self._caches.find_idle_slots()]
            self._measured = now, measure_folders(folders)
        before = self._full
        urgent = free < (NOT_URGENT_BYTES if before is not None and before.urgent else URGENT_BYTES)
        self._full = FullDisk(free, total, self._measured[1], urgent, before.since if before else self._clock.now())
        return self._full

    def count_needed_worktrees(self) -> int:
        """The number of worktrees that are still needed."""
        return len(self._worktrees.list_sessions()) - len(self._find_unneeded_worktrees())

    def reclaim(self) -> ReclaimedSpace:
        """Remove the worktrees of sessions whose changes are decided, and the caches that no session uses. Undecided
        and unsaved changes stay. Raises OSError."""
        self._measured = None
        unneeded, idle = self._find_unneeded_worktrees(), self._caches.find_idle_slots()
        before = measure_folders([*unneeded.values(), *idle])
        for session_id in unneeded:
            self._worktrees.remove(session_id)
        caches = self._caches.drop(idle)
        return ReclaimedSpace(tuple(unneeded), caches, before - measure_folders([*unneeded.values(), *idle]))

    def _find_unneeded_worktrees(self) -> dict[str, Path]:
        """The worktrees by session that are not needed, because the session is over, and its changes are stored and
        decided."""
        running = set(self._list_running())
        folders = {}
        for session_id, unsaved in self._worktrees.list_sessions().items():
            change = self._changes.find_of_session(session_id)
            undecided = change is not None and change.state.is_undecided
            if session_id not in running and not undecided and not (unsaved and change is None):
                folders[session_id] = self._worktrees.folder_of(session_id)
        return folders


def measure_folders(folders: Collection[Path]) -> int:
    """The bytes that the files below these folders take on the disk, for at most `MAX_MEASURED_FILES` files. Links are
    not followed."""
    walks = (walk for folder in folders for walk in os.walk(folder))
    files = (os.path.join(place, name) for place, _, names in walks for name in names)  # noqa: PTH118 (many files)
    total = 0
    for file in islice(files, MAX_MEASURED_FILES):
        with suppress(OSError):  # gone meanwhile
            total += os.lstat(file).st_blocks * 512
    return total


class Caches:
    """The caches of workspaces in `folder`, for one engine (SPEC 3.8). They outlive a session, so that its checks are
    fast. Thread-safe.

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
            slot = self._choose_slot(self._folder / hex_hash(workspace, 16), head, descends)
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
        """Remove caches that no session used for `MAX_UNUSED_S`. Raises OSError."""
        now = time.time()
        for workspace in self._folder.glob("*"):
            for slot in workspace.iterdir():
                head_file = slot / "head"
                if not head_file.is_file() or now - head_file.stat().st_mtime > MAX_UNUSED_S:
                    remove_folder(slot)
            if not any(workspace.iterdir()):
                workspace.rmdir()

    def find_idle_slots(self) -> list[Path]:
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

    def _choose_slot(self, folder: Path, head: str, descends: Callable[[str], bool]) -> Path:
        """The slot that was last used at `head`, else the newest one at an ancestor of `head`, else an empty one."""
        slots = [path.parent for path in folder.glob("*/head")]
        heads = {slot: (slot / "head").read_text() for slot in slots}
        slots.sort(key=lambda slot: (heads[slot] == head, (slot / "head").stat().st_mtime), reverse=True)
        for slot in slots:
            if heads[slot] == head or (not self._users[slot] and heads[slot] and descends(heads[slot])):
                return slot
        free = [slot for slot in slots if not self._users[slot]]
        if len(slots) >= MAX_CACHE_SLOTS and free:
            remove_folder(free[-1])
            slots.remove(free[-1])
        names = {slot.name for slot in slots}
        return folder / next(name for name in map(str, range(len(slots) + 1)) if name not in names)
