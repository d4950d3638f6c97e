"""Which places of the file system a sandboxed command sees, and how: a plan over paths (SPEC 3.8).

Nothing is there to begin with. On it come the places to read, the session's own, and over secrets something empty. The
deeper path decides: what is shown inside a hidden folder is seen, what is hidden inside a writable one is not.

Two rules keep a command from preparing the way for the next one, since each command's mounts are made anew by paths:
what is mounted inside a writable place is pinned, with every folder on the way to it, because a mount point cannot be
renamed or exchanged; and a source of a mount is never a link that a command could have made.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from engine.execution.sandbox.base import Confinement
from engine.git import submodule_paths
from engine.model import Refusal


class Kind(Enum):
    """How a place is seen."""

    HIDDEN = "hidden"
    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class Mount:
    """`source` as it is outside, seen `at` a place inside."""

    kind: Kind
    at: Path
    source: Path


def plan(confinement: Confinement, readable: Iterable[Path], moved: Mapping[Path, Path] | None = None) -> list[Mount]:
    """What to mount, in order. `readable` as `places.readable_places` has it. `moved` are places that are seen with
    what lies elsewhere: place inside to source; those that are nothing else yet are written. Looks at the disk only
    for `.git`."""
    moved = dict(moved or {})
    tree, folder = confinement.tree, confinement.folder
    wanted = dict.fromkeys(confinement.hidden, Kind.HIDDEN)
    wanted |= dict.fromkeys(moved, Kind.WRITE)
    shown = (folder,) if tree is None else (tree, folder)  # an environment that lies in these is seen with them
    wanted |= {path: Kind.READ for path in readable if not any(path.is_relative_to(place) for place in shown)}
    if tree is not None:
        wanted[tree] = Kind.READ
    own = [confinement.files, confinement.home, confinement.caches]
    if confinement.tmp not in moved.values():
        own.append(confinement.tmp)
    wanted |= dict.fromkeys((folder, *own, *confinement.writable), Kind.WRITE)
    if confinement.discards:
        own_git = folder / ".git"
        git = [] if own_git.is_symlink() or not own_git.exists() else [own_git]
    else:
        git, pinned = protected(folder)
        if not pinned:
            wanted[folder] = Kind.READ
    wanted |= dict.fromkeys(git, Kind.READ)

    mounts: dict[Path, Mount] = {}
    for path, kind in sorted(wanted.items(), key=lambda item: len(item[0].parts)):
        source = moved.get(path, path)
        above = next((mounts[one] for one in path.parents if one in mounts), None)
        if above is not None:
            inner = path.relative_to(above.at)
            if kind is Kind.HIDDEN and (above.kind is Kind.HIDDEN or above.source.is_relative_to(confinement.tmp)):
                continue  # it is not there
            if kind is Kind.READ and above.kind is Kind.READ and source == above.source / inner:
                continue  # it is seen
            if above.kind is Kind.WRITE:
                for between in reversed(inner.parents[:-1]):
                    at = above.at / between
                    mounts.setdefault(at, Mount(Kind.WRITE, at, above.source / between))
        elif kind is Kind.HIDDEN:
            continue
        mounts[path] = Mount(kind, path, source)
    return list(mounts.values())


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


def make_pinned(mounts: Iterable[Mount], root: Path) -> None:
    """Make the folders among the sources that lie in `root` and are not there yet. Commands write in `root`: raises
    `Refusal` when one of them put something else there, and OSError."""
    for mount in mounts:
        if not mount.source.is_relative_to(root) or mount.source == root:
            continue
        step = root
        for part in mount.source.relative_to(root).parts:
            step /= part
            if not os.path.lexists(step):
                step.mkdir()
            elif step.is_symlink() or not step.is_dir():
                raise Refusal("sandbox_tampered", f"{step} is no longer a separate folder", "run it again")
