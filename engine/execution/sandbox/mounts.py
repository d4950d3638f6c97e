"""Plans which places of the file system a sandboxed command sees, and whether it may write them (SPEC 3.8).

A command sees the places that it may read, the places of its session, and an empty place instead of each secret. The
deeper path decides: a readable place inside a hidden folder is seen, and a hidden place inside a writable folder is
not. Overlays (`Layers`) show the operator's places without letting commands change them.

Each command gets new mounts, which are found by path. So a command must not be able to change what these paths mean for
the next command. For a mount inside a writable place, every folder on the way to it is mounted as well, because a mount
point cannot be renamed or replaced. And the source of a mount is never a link that a command could have made.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from enum import Enum
from pathlib import Path

from engine.execution.sandbox import Confinement, try_command
from engine.execution.sandbox.host_paths import HOST_TABLES
from engine.frozen import frozen
from engine.git import read_submodule_paths
from engine.model import Refusal

_work_names = (f"work{number}" for number in itertools.count())
"""Names for folders of the kernel, a new one for each mount."""

UNSHARE = (
    ("unshare", "--mount", "--") if os.geteuid() == 0 else ("unshare", "--user", "--map-root-user", "--mount", "--")
)
"""Starts a command in a mount namespace in which overlays may be mounted."""

_problem_by_disks: dict[tuple[int, ...], str] = {}
"""Why overlays cannot be mounted, by the devices of their folders; "" if they can."""


class MountKind(Enum):
    """Whether a place is hidden, and whether it may be written."""

    HIDDEN = "hidden"
    READ = "read"
    WRITE = "write"


@frozen
class Mount:
    """The place `source` of this machine, which commands see `at` a path."""

    kind: MountKind
    at: Path
    source: Path


def plan_mounts(
    confinement: Confinement, readable: Iterable[Path], moved: Mapping[Path, Path] | None = None
) -> list[Mount]:
    """The mounts of a command, in the order in which they are made.

    `readable` comes from `host_paths.find_readable_places`. `moved` maps paths to the sources that are seen there.
    These are writable, unless the path gets another kind. The disk is read only to look at `.git`.
    """
    moved = dict(moved or {})
    mounts: dict[Path, Mount] = {}
    kinds = _collect_kinds_of_places(confinement, readable, moved)
    for path in sorted(kinds, key=lambda path: len(path.parts)):
        mount = Mount(kinds[path], path, moved.get(path, path))
        enclosing = next((mounts[parent] for parent in path.parents if parent in mounts), None)
        if _is_needed(mount, enclosing, confinement.tmp):
            for pinned_mount in _make_pinned_mounts(mount, enclosing):
                mounts.setdefault(pinned_mount.at, pinned_mount)
            mounts[path] = mount
    return list(mounts.values())


def _collect_kinds_of_places(
    confinement: Confinement, readable: Iterable[Path], moved: Mapping[Path, Path]
) -> dict[Path, MountKind]:
    """The places that commands see or that are hidden from them, each with its kind. The later of two entries for one
    path decides."""
    tree, folder = confinement.tree, confinement.folder
    kinds = dict.fromkeys(confinement.hidden, MountKind.HIDDEN)
    kinds |= dict.fromkeys(moved, MountKind.WRITE)
    shown_folders = (folder,) if tree is None else (tree, folder)  # readable places in these need no mount of their own
    kinds |= {
        path: MountKind.READ for path in readable if not any(path.is_relative_to(place) for place in shown_folders)
    }
    if tree is not None:
        kinds[tree] = MountKind.READ
    own_folders = [confinement.files, confinement.home, confinement.caches]
    if confinement.tmp not in moved.values():
        own_folders.append(confinement.tmp)
    kinds |= dict.fromkeys((folder, *own_folders, *confinement.writable), MountKind.WRITE)
    return kinds | _collect_kinds_of_git_paths(confinement)


def _collect_kinds_of_git_paths(confinement: Confinement) -> dict[Path, MountKind]:
    """The paths that commands may only read, for the sake of git."""
    folder = confinement.folder
    if confinement.is_ephemeral:
        own_git = folder / ".git"
        return {} if own_git.is_symlink() or not own_git.exists() else {own_git: MountKind.READ}
    return dict.fromkeys(find_protected_git_paths(folder), MountKind.READ)


def _is_needed(mount: Mount, enclosing: Mount | None, tmp: Path) -> bool:
    """Whether a mount changes what is seen inside the mount that encloses it. Without an enclosing mount, nothing is
    seen there."""
    if enclosing is None:
        return mount.kind is not MountKind.HIDDEN
    if mount.kind is MountKind.HIDDEN:
        return enclosing.kind is not MountKind.HIDDEN and not enclosing.source.is_relative_to(tmp)
    is_same_source = mount.source == enclosing.source / mount.at.relative_to(enclosing.at)
    return not (mount.kind is enclosing.kind is MountKind.READ and is_same_source)


def _make_pinned_mounts(mount: Mount, enclosing: Mount | None) -> Iterator[Mount]:
    """Mounts for the folders between a writable place and a mount in it, so that none of them can be renamed or
    replaced."""
    if enclosing is not None and enclosing.kind is MountKind.WRITE:
        for between in reversed(mount.at.relative_to(enclosing.at).parents[:-1]):
            yield Mount(MountKind.WRITE, enclosing.at / between, enclosing.source / between)


def find_protected_git_paths(folder: Path) -> list[Path]:
    """The paths of git in `folder` that no command may write.

    They are its `.git`, those of its submodules, and the list of submodules. A hook or a filter that a command puts
    there would run with the operator's next git command. If `.git` is a link, nothing can be mounted on it. Then the
    whole `folder` must be protected.
    """
    own_git = folder / ".git"
    if own_git.is_symlink():
        return [folder]
    if not own_git.exists():
        return []
    paths = [own_git]
    for name in read_submodule_paths(folder):
        inner = folder / name / ".git"
        if os.path.lexists(inner) and inner.resolve() == inner and inner.is_relative_to(folder):
            paths.append(inner)
    if len(paths) > 1:
        paths.append(folder / ".gitmodules")
    return paths


def make_pinned(mounts: Iterable[Mount], root: Path) -> None:
    """Make missing folders for those sources that are in `root`.

    Commands may write in `root`. Raises `Refusal` `sandbox_tampered` if a command put a link or a file in the place of
    a folder, and OSError.
    """
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


@frozen
class Layers:
    """Overlays over places of the operator."""

    folder: Path
    """The folder in which they are made. Commands do not see it."""
    places: tuple[Path, ...]
    is_writable: bool
    """Whether commands may write over the first place."""
    work: str = field(default_factory=lambda: next(_work_names))
    """The name of a folder for the kernel, which can be used for one mount only."""

    def get_source(self, place: Path) -> Path:
        """The folder at which the overlay of `place` is mounted, before the sandbox starts."""
        return self.folder / f"merged{self.places.index(place)}"

    def make_script(self) -> str:
        """The shell script that mounts the overlays. The shell that runs it is in `folder`, and becomes the sandbox.

        The script uses links in `folder` instead of paths of the operator, because mount options cannot contain every
        character. Without `volatile`, the end of each command would wait until everything is written to the disk.
        """
        user = "" if os.geteuid() == 0 else ",userxattr"
        steps = []
        for number in range(len(self.places)):
            layers = f"lowerdir=lower{number}:nothing{user}"
            if number == 0 and self.is_writable:
                layers = f"lowerdir=lower0,upperdir=upper,workdir={self.work},index=off,volatile{user}"
            steps.append(f"mount -n -i -t overlay overlay -o {layers} merged{number} || exit 125; ")
        return "".join(steps)

    def make(self) -> None:
        """Make the folders and links that `script` needs, unless they exist. Raises OSError."""
        names = ["upper", self.work, "nothing", *(f"merged{number}" for number in range(len(self.places)))]
        for name in names:
            (self.folder / name).mkdir(exist_ok=True, mode=0o755)
        for number, place in enumerate(self.places):
            link = self.folder / f"lower{number}"
            if not link.is_symlink() or link.readlink() != place:
                link.unlink(missing_ok=True)
                link.symlink_to(place)


def find_layers(confinement: Confinement) -> Layers | None:
    """The overlays for a confinement; None if it shows no folder of the operator."""
    tree = confinement.tree
    readable = [place for place in confinement.readable if os.access(f"{place}/", os.R_OK)]
    if tree is not None:
        readable = [tree, *(place for place in readable if not place.is_relative_to(tree))]
    return Layers(confinement.layers, tuple(dict.fromkeys(readable)), confinement.is_ephemeral) if readable else None


def find_mount_problem(layers: Layers) -> str:
    """Why these overlays cannot be mounted; "" if they can. A real mount tries it, once for each combination of
    disks."""
    try:
        layers.make()
        disks = tuple(place.stat().st_dev for place in (layers.folder, *layers.places))
        if disks not in _problem_by_disks:
            _problem_by_disks[disks] = _try_mount(replace(layers, work=next(_work_names)))
    except OSError as error:
        return str(error)
    return _problem_by_disks[disks]


def _try_mount(layers: Layers) -> str:
    layers.make()
    return try_command([*UNSHARE, "/bin/sh", "-c", layers.make_script()], layers.folder).problem


def list_written_files(confinement: Confinement) -> Iterator[str]:
    """The files that commands made, changed or removed over the operator's tree, as paths in it."""
    upper = confinement.layers / "upper"
    for folder, _, names in os.walk(upper):
        for name in names:
            path = Path(folder, name)
            is_removed = stat.S_ISCHR(path.lstat().st_mode)
            yield f"{path.relative_to(upper)}{' (removed)' if is_removed else ''}"


def make_tree_caches(confinement: Confinement) -> dict[Path, Path]:
    """Make folders for the caches of the table `tree_caches`, for a session that works over the operator's tree.
    Returns the folder of each cache by its path in the tree. Paths that the operator uses are left out."""
    folders = {}
    for name, tree_file in HOST_TABLES["tree_caches"]:
        path = confinement.folder / name
        is_taken = path.exists() or path.is_symlink() or path.parent.is_symlink()
        if is_taken or not (confinement.folder / tree_file).exists():
            continue
        # Commands do not see this folder, so none can replace it by a link.
        cache = confinement.caches.parent / "tree" / name
        cache.mkdir(parents=True, exist_ok=True)
        folders[path] = cache
    return folders
