"""Which places of the file system a sandboxed command sees, and how: a plan over paths (SPEC 3.8).

The world is read-only to begin with. On it come the session's own places, and over secrets something empty. The
deeper path decides: what is shown inside a hidden folder is seen, what is hidden inside a writable one is not.

Two rules keep a command from preparing the way for the next one, since each command's mounts are made anew by paths:
what is mounted inside a writable place is pinned, with every folder on the way to it, because a mount point cannot be
renamed or exchanged; and a source of a mount is never a link.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from enum import Enum
from pathlib import Path

from engine.execution.sandbox.base import PRIVATE, Confinement
from engine.git import submodule_paths
from engine.values import Refusal


class Kind(Enum):
    """How a place is seen."""

    COVERED = "covered"  # something empty of the session's own lies over it
    HIDDEN = "hidden"
    READ = "read"
    WRITE = "write"


RUN = Path("/run").resolve()


def plan(confinement: Confinement, listeners: Iterable[Path] = ()) -> list[tuple[Kind, Path]]:
    """What to mount, in order. `listeners` are other programs' sockets and pipes. Looks at the disk only for `.git`."""
    wanted: dict[Path, Kind] = {}
    for path in (*confinement.hidden, *listeners):
        wanted[path] = Kind.HIDDEN
    for path in confinement.readable:
        wanted[path] = Kind.READ
    for path in (confinement.folder, confinement.scratch, confinement.caches, *confinement.writable):
        wanted[path] = Kind.WRITE
    git, git_pinned = protected(confinement.folder)
    if not git_pinned and wanted[confinement.folder] is Kind.WRITE:
        wanted[confinement.folder] = Kind.READ
    for path in git:
        wanted.setdefault(path, Kind.READ)

    mounts: dict[Path, Kind] = dict.fromkeys((*PRIVATE, RUN), Kind.COVERED)
    for path, kind in sorted(wanted.items(), key=lambda item: len(item[0].parts)):
        above = next((one for one in path.parents if one in mounts), None)
        surrounding = mounts[above] if above is not None else Kind.READ
        if kind is Kind.HIDDEN and surrounding in (Kind.COVERED, Kind.HIDDEN):
            continue  # it is not there
        if kind is Kind.READ and surrounding is Kind.READ:
            continue  # it is seen
        if above is not None and surrounding is Kind.WRITE:
            for between in reversed(path.relative_to(above).parents[:-1]):
                mounts.setdefault(above / between, Kind.WRITE)
        mounts[path] = kind
    for path in (*PRIVATE, RUN):
        del mounts[path]
    return [(kind, path) for path, kind in mounts.items()]


def protected(folder: Path) -> tuple[list[Path], bool]:
    """What of git in `folder` nobody may write, for whoever does plants a hook or a filter that the operator's next
    git command runs: its `.git`, those of its submodules, and the list of them. The second is False when it cannot be
    held, because `.git` is a link, on which nothing can be mounted: then the folder is not writable at all."""
    own = folder / ".git"
    if own.is_symlink():
        return [], False
    if not own.exists():
        return [], True
    found = [own]
    for name in submodule_paths(folder):
        inner = folder / name / ".git"
        if os.path.lexists(inner) and inner.resolve() == inner and inner.is_relative_to(folder):
            found.append(inner)
    if len(found) > 1:
        found.append(folder / ".gitmodules")
    return found, True


def check_sources(confinement: Confinement) -> None:
    """Raise `Refusal` when a folder that is about to be mounted was exchanged for a link or is gone."""
    for path in (confinement.folder, confinement.scratch, confinement.scratch / "tmp", confinement.caches):
        if path.is_symlink() or not path.is_dir():
            raise Refusal("sandbox_tampered", f"{path} is no folder of its own any more", "run it again")
