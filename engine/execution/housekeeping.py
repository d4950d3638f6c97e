"""What the engine can take back or give up of its own: landings, worktrees nobody needs, caches."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from datetime import datetime
from pathlib import Path

from engine.clock import Clock
from engine.execution.changesets import ChangeSets
from engine.execution.sandbox import Caches
from engine.frozen import frozen
from engine.home import Home
from engine.model import ChangeSet, ChangeState, Refusal

MAX_MEASURED = 50_000
"""Maximum number of files that are measured; beyond it a size is "at least"."""


FEW_BYTES = 5_000_000_000
FEW_SHARE = 0.1
"""A disk is nearly full with less free than both."""

URGENT, CALM = 1_000_000_000, 2_000_000_000
"""Bytes: with less free than the first it is urgent, and no longer from the second on."""

MEASURED_EVERY = 600.0
"""Seconds for which a measured size is believed."""


@frozen
class Disk:
    """A disk that is nearly full, in bytes: what is free, what it holds in all, what clawpy could give back of it.
    `urgent`: there is hardly anything left; `since`: when it was first seen nearly full."""

    free: int
    total: int
    ours: int
    urgent: bool
    since: datetime


def is_urgent(free: int, before: bool) -> bool:
    """Whether so few bytes are urgent. What was urgent `before` stays so until there is clearly more: a disk whose free
    space moves around the limit says one thing."""
    return free < (CALM if before else URGENT)


@frozen
class Reclaimed:
    """What was given up. `freed` in bytes, as far as it was measured."""

    worktrees: tuple[str, ...]
    caches: int
    freed: int


class Housekeeping:
    """For flows of `Place.ENGINE`. `busy` gives the ids of the sessions that run."""

    def __init__(
        self,
        home: Home,
        clock: Clock,
        *,
        changes: ChangeSets,
        caches: Caches,
        busy: Callable[[], Collection[str]],
    ) -> None:
        self._home = home
        self._clock = clock
        self._measured: tuple[float, int] | None = None
        self._full: Disk | None = None
        self._changes = changes
        self._worktrees = changes.worktrees
        self._caches = caches
        self._busy = busy

    def undo(self, change_set_id: str, workspace: str) -> ChangeSet:
        """See `ChangeSets.undo`. Raises `Refusal` also when it belongs to another workspace."""
        if self._changes.get(change_set_id).workspace != workspace:
            raise Refusal("unknown_change_set", f"{change_set_id} is of another workspace", "`clawpy work` lists them")
        return self._changes.undo(change_set_id)

    def free(self) -> tuple[int, int]:
        """Bytes that are free on the disk of the home's caches, and that it has. Raises OSError."""
        stats = os.statvfs(self._home.cache)
        return stats.f_bavail * stats.f_frsize, stats.f_blocks * stats.f_frsize

    def disk(self) -> Disk | None:
        """None unless the disk is nearly full; only then is anything measured. Raises OSError."""
        free, total = self.free()
        if free >= FEW_BYTES or free >= total * FEW_SHARE:
            self._full = None
            return None
        now = self._clock.monotonic()
        if self._measured is None or now - self._measured[0] >= MEASURED_EVERY:
            self._measured = now, measured([*self._over().values(), *self._caches.idle_slots()])
        before = self._full
        urgent = is_urgent(free, before is not None and before.urgent)
        self._full = Disk(free, total, self._measured[1], urgent, before.since if before else self._clock.now())
        return self._full

    def waiting(self) -> int:
        """How many worktrees stay because they are still needed."""
        return len(self._worktrees.list_sessions()) - len(self._over())

    def reclaim(self) -> Reclaimed:
        """Remove worktrees of sessions that are over and decided, and caches that no session uses. What waits to
        be landed, and what a session left that was not kept yet, stays. Raises OSError."""
        self._measured = None
        unneeded, freed = self._over(), 0
        for session_id, folder in unneeded.items():
            size = measured([folder])
            self._worktrees.remove(session_id)
            freed += 0 if folder.exists() else size
        idle = self._caches.idle_slots()
        freed += measured(idle)
        return Reclaimed(tuple(unneeded), self._caches.drop(idle), freed)

    def _over(self) -> dict[str, Path]:
        """Session to folder. A worktree stays while its session runs, or its work is not stored or not decided yet."""
        busy = set(self._busy())
        folders = {}
        for session_id, unsaved in self._worktrees.list_sessions():
            change = self._changes.for_session(session_id)
            undecided = change is not None and change.state in (ChangeState.WAITING, ChangeState.UNDONE)
            if session_id not in busy and not undecided and not (unsaved and change is None):
                folders[session_id] = self._worktrees.folder_of(session_id)
        return folders


def measured(folders: Collection[Path]) -> int:
    """Bytes on disk below these folders, links not followed, of at most `MAX_MEASURED` files together."""
    total = files = 0
    for folder in folders:
        for place, _, names in os.walk(folder):
            for name in names:
                try:
                    total += os.lstat(os.path.join(place, name)).st_blocks * 512  # noqa: PTH118 (many files)
                except OSError:
                    continue  # gone meanwhile
                files += 1
                if files >= MAX_MEASURED:
                    return total
    return total
