"""Which places of the file system a sandboxed command sees, and how: a plan over paths (SPEC 3.8).

Nothing is there to begin with. On it come the places to read, the session's own, and over secrets something empty. The
deeper path decides: what is shown inside a hidden folder is seen, what is hidden inside a writable one is not.

Two rules keep a command from preparing the way for the next one, since each command's mounts are made anew by paths:
what is mounted inside a writable place is pinned, with every folder on the way to it, because a mount point cannot be
renamed or exchanged; and a source of a mount is never a link that a command could have made."""

from __future__ import annotations

import itertools
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from enum import Enum
from pathlib import Path

from engine.execution.sandbox.base import Confinement, try_command
from engine.frozen import frozen
from engine.git import submodule_paths
from engine.model import Refusal


class Kind(Enum):
    """How a place is seen."""

    HIDDEN = "hidden"
    READ = "read"
    WRITE = "write"


@frozen
class Mount:
    """`source` as it is outside, seen `at` a place inside."""

    kind: Kind
    at: Path
    source: Path


def plan(confinement: Confinement, readable: Iterable[Path], moved: Mapping[Path, Path] | None = None) -> list[Mount]:
    """What to mount, in order. `readable` as `host_paths.readable_places` has it. `moved` are places that are seen with
    what lies elsewhere: place inside to source; those that are nothing else yet are written. Looks at the disk only
    for `.git`."""
    moved = dict(moved or {})
    tree, folder = confinement.tree, confinement.folder
    kinds = dict.fromkeys(confinement.hidden, Kind.HIDDEN)
    kinds |= dict.fromkeys(moved, Kind.WRITE)
    shown = (folder,) if tree is None else (tree, folder)  # an environment that lies in these is seen with them
    kinds |= {path: Kind.READ for path in readable if not any(path.is_relative_to(place) for place in shown)}
    if tree is not None:
        kinds[tree] = Kind.READ
    own_folders = [confinement.files, confinement.home, confinement.caches]
    if confinement.tmp not in moved.values():
        own_folders.append(confinement.tmp)
    kinds |= dict.fromkeys((folder, *own_folders, *confinement.writable), Kind.WRITE)
    if confinement.is_ephemeral:
        own_git = folder / ".git"
        git = [] if own_git.is_symlink() or not own_git.exists() else [own_git]
    else:
        git, pinned = protected_git_paths(folder)
        if not pinned:
            kinds[folder] = Kind.READ
    kinds |= dict.fromkeys(git, Kind.READ)

    mounts: dict[Path, Mount] = {}
    for path, kind in sorted(kinds.items(), key=lambda item: len(item[0].parts)):
        source = moved.get(path, path)
        enclosing = next((mounts[parent] for parent in path.parents if parent in mounts), None)
        if enclosing is not None:
            inner = path.relative_to(enclosing.at)
            if kind is Kind.HIDDEN and (
                enclosing.kind is Kind.HIDDEN or enclosing.source.is_relative_to(confinement.tmp)
            ):
                continue  # it is not there
            if kind is Kind.READ and enclosing.kind is Kind.READ and source == enclosing.source / inner:
                continue  # it is seen
            if enclosing.kind is Kind.WRITE:
                for between in reversed(inner.parents[:-1]):
                    between_path = enclosing.at / between
                    mounts.setdefault(between_path, Mount(Kind.WRITE, between_path, enclosing.source / between))
        elif kind is Kind.HIDDEN:
            continue
        mounts[path] = Mount(kind, path, source)
    return list(mounts.values())


def protected_git_paths(folder: Path) -> tuple[list[Path], bool]:
    """What of git in `folder` nobody may write, for whoever does plants a hook or a filter that the operator's next
    git command runs: its `.git`, those of its submodules, and the list of them. The second is False when it cannot be
    held, because `.git` is a link, on which nothing can be mounted: then the folder is not writable at all."""
    own_git = folder / ".git"
    if own_git.is_symlink():
        return [], False
    if not own_git.exists():
        return [], True
    paths = [own_git]
    for name in submodule_paths(folder):
        inner = folder / name / ".git"
        if os.path.lexists(inner) and inner.resolve() == inner and inner.is_relative_to(folder):
            paths.append(inner)
    if len(paths) > 1:
        paths.append(folder / ".gitmodules")
    return paths, True


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


_works = (f"work{number}" for number in itertools.count())


@frozen
class Layers:
    """Overlays over `places`, made in `folder`, which commands never see. The first is `written` over, with the folder
    `work` for the kernel, which takes each for one mount only."""

    folder: Path
    places: tuple[Path, ...]
    written: bool
    work: str = field(default_factory=lambda: next(_works))

    def source(self, place: Path) -> Path:
        """Where what is seen of `place` is mounted, before the sandbox starts."""
        return self.folder / f"merged{self.places.index(place)}"

    def script(self) -> str:
        """What a shell does before it becomes the sandbox; it works in `folder`. Paths of the operator's are not in
        it: options of a mount cannot hold every character.

        What is thrown away need not reach the disk: without `volatile` each command's end would wait until all that
        anybody wrote to that disk is there."""
        user = "" if os.geteuid() == 0 else ",userxattr"
        steps = []
        for number in range(len(self.places)):
            layers = f"lowerdir=lower{number}:nothing{user}"
            if number == 0 and self.written:
                layers = f"lowerdir=lower0,upperdir=upper,workdir={self.work},index=off,volatile{user}"
            steps.append(f"mount -n -i -t overlay overlay -o {layers} merged{number} || exit 125; ")
        return "".join(steps)

    def make(self) -> None:
        """Make the folders that `script` needs, if they are not there yet. Raises OSError."""
        names = ["upper", self.work, "nothing", *(f"merged{number}" for number in range(len(self.places)))]
        for name in names:
            (self.folder / name).mkdir(exist_ok=True, mode=0o755)
        for number, place in enumerate(self.places):
            link = self.folder / f"lower{number}"
            if not link.is_symlink() or link.readlink() != place:
                link.unlink(missing_ok=True)
                link.symlink_to(place)


UNSHARE = (
    ("unshare", "--mount", "--") if os.geteuid() == 0 else ("unshare", "--user", "--map-root-user", "--mount", "--")
)
"""What a command starts with that has overlays: a mount namespace in which they may be mounted."""


def overlay_layers(confinement: Confinement) -> Layers | None:
    """The overlays that belong to a confinement; None when it shows nothing of the operator's."""
    tree = confinement.tree
    readable = [place for place in confinement.readable if os.access(f"{place}/", os.R_OK)]
    if tree is not None:
        readable = [tree, *(place for place in readable if not place.is_relative_to(tree))]
    return Layers(confinement.layers, tuple(dict.fromkeys(readable)), confinement.is_ephemeral) if readable else None


_tried: dict[tuple[int, ...], str] = {}


def fault(layers: Layers) -> str:
    """Why these overlays cannot be mounted here, in the words of who refused; "" when they can. Tried for real, once
    for each disk."""
    try:
        layers.make()
        disks = tuple(place.stat().st_dev for place in (layers.folder, *layers.places))
    except OSError as error:
        return str(error)
    if disks not in _tried:
        _tried[disks] = _try(replace(layers, work=next(_works)))
    return _tried[disks]


def _try(layers: Layers) -> str:
    for program in ("unshare", "mount"):
        if shutil.which(program) is None:
            return f"`{program}` does not exist"
    try:
        layers.make()
    except OSError as error:
        return str(error)
    return try_command([*UNSHARE, "/bin/sh", "-c", layers.script()], layers.folder).fault


def written(confinement: Confinement) -> Iterator[str]:
    """The files that commands wrote, changed or removed in the operator's tree, by their paths in it."""
    upper = confinement.layers / "upper"
    for folder, _, names in os.walk(upper):
        for name in names:
            path = Path(folder, name)
            gone = stat.S_ISCHR(path.lstat().st_mode)
            yield f"{path.relative_to(upper)}{' (removed)' if gone else ''}"
