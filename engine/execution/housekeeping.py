"""Manages the disk space of the engine: what can be removed, and a disk that is nearly full.

The flows of `Place.ENGINE` use it. They also undo landings through it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime
from itertools import islice
from pathlib import Path

from engine.clock import Clock
from engine.execution.caches import Caches
from engine.execution.changesets import ChangeSets
from engine.frozen import frozen
from engine.home import Home
from engine.model import ChangeSet, ChangeState, Refusal

MAX_MEASURED = 50_000
"""Maximum number of files that are measured. The others are not counted."""

NEARLY_FULL_BYTES = 5_000_000_000
NEARLY_FULL_SHARE = 0.1
"""A disk is nearly full when its free space is less than both."""

URGENT_BYTES, NOT_URGENT_BYTES = 1_000_000_000, 2_000_000_000
"""A nearly full disk becomes urgent below the first number of free bytes, and stops being urgent at the second."""

MEASURE_INTERVAL_S = 600.0
"""Seconds until the size is measured again."""


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


def is_urgent(free: int, before: bool) -> bool:
    """Whether a disk with `free` bytes is urgent. One that was urgent `before` stays so up to a higher limit, so that
    the answer does not change back and forth."""
    return free < (NOT_URGENT_BYTES if before else URGENT_BYTES)


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
    """The engine's own upkeep."""

    def __init__(
        self,
        home: Home,
        clock: Clock,
        *,
        changes: ChangeSets,
        caches: Caches,
        busy: Callable[[], Collection[str]],
    ) -> None:
        """`busy` returns the ids of running sessions."""
        self._home = home
        self._clock = clock
        self._measured: tuple[float, int] | None = None
        self._full: FullDisk | None = None
        self._changes = changes
        self._worktrees = changes.worktrees
        self._caches = caches
        self._busy = busy

    def undo(self, change_set_id: str, workspace: str) -> ChangeSet:
        """Undo a landing; see `ChangeSets.undo`. Raises `Refusal` also when it belongs to another workspace."""
        if self._changes.get(change_set_id).workspace != workspace:
            raise Refusal("unknown_change_set", f"{change_set_id} is of another workspace", "`clawpy work` lists them")
        return self._changes.undo(change_set_id)

    def read_free_space(self) -> tuple[int, int]:
        """The free and the total bytes of the disk that has the home's caches. Raises OSError."""
        stats = os.statvfs(self._home.cache)
        return stats.f_bavail * stats.f_frsize, stats.f_blocks * stats.f_frsize

    def disk(self) -> FullDisk | None:
        """The disk if it is nearly full, else None. Folders are measured only if it is. Raises OSError."""
        free, total = self.read_free_space()
        if free >= NEARLY_FULL_BYTES or free >= total * NEARLY_FULL_SHARE:
            self._full = None
            return None
        now = self._clock.monotonic()
        if self._measured is None or now - self._measured[0] >= MEASURE_INTERVAL_S:
            self._measured = now, measure_folders([*self._unneeded_worktrees().values(), *self._caches.idle_slots()])
        before = self._full
        urgent = is_urgent(free, before is not None and before.urgent)
        self._full = FullDisk(free, total, self._measured[1], urgent, before.since if before else self._clock.now())
        return self._full

    def count_needed_worktrees(self) -> int:
        """The number of worktrees that are still needed."""
        return len(self._worktrees.list_sessions()) - len(self._unneeded_worktrees())

    def reclaim(self) -> ReclaimedSpace:
        """Remove the worktrees of sessions whose changes are decided, and the caches that no session uses. Undecided
        and unsaved changes stay. Raises OSError."""
        self._measured = None
        unneeded, freed = self._unneeded_worktrees(), 0
        for session_id, folder in unneeded.items():
            size = measure_folders([folder])
            self._worktrees.remove(session_id)
            freed += 0 if folder.exists() else size
        idle = self._caches.idle_slots()
        freed += measure_folders(idle)
        return ReclaimedSpace(tuple(unneeded), self._caches.drop(idle), freed)

    def _unneeded_worktrees(self) -> dict[str, Path]:
        """The worktrees by session that are not needed, because the session is over, and its changes are stored and
        decided."""
        busy = set(self._busy())
        folders = {}
        for session_id, unsaved in self._worktrees.list_sessions():
            change = self._changes.for_session(session_id)
            undecided = change is not None and change.state in (ChangeState.WAITING, ChangeState.UNDONE)
            if session_id not in busy and not undecided and not (unsaved and change is None):
                folders[session_id] = self._worktrees.folder_of(session_id)
        return folders


def measure_folders(folders: Collection[Path]) -> int:
    """The bytes that the files below these folders take on the disk, for at most `MAX_MEASURED` files. Links are not
    followed."""
    walks = (walk for folder in folders for walk in os.walk(folder))
    files = (os.path.join(place, name) for place, _, names in walks for name in names)  # noqa: PTH118 (many files)
    total = 0
    for file in islice(files, MAX_MEASURED):
        with suppress(OSError):  # gone meanwhile
            total += os.lstat(file).st_blocks * 512
    return total
