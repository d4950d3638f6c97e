"""Lays overlays over the places of the operator, so that commands write there without changing them (SPEC 3.8)."""

from __future__ import annotations

import itertools
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import field, replace
from pathlib import Path

from engine.execution.sandbox import Confinement, try_command
from engine.frozen import frozen

_work_names = (f"work{number}" for number in itertools.count())


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

    def source(self, place: Path) -> Path:
        """The folder at which the overlay of `place` is mounted, before the sandbox starts."""
        return self.folder / f"merged{self.places.index(place)}"

    def script(self) -> str:
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


UNSHARE = (
    ("unshare", "--mount", "--") if os.geteuid() == 0 else ("unshare", "--user", "--map-root-user", "--mount", "--")
)
"""Starts a command in a mount namespace in which overlays may be mounted."""


def find_layers(confinement: Confinement) -> Layers | None:
    """The overlays for a confinement; None if it shows no folder of the operator."""
    tree = confinement.tree
    readable = [place for place in confinement.readable if os.access(f"{place}/", os.R_OK)]
    if tree is not None:
        readable = [tree, *(place for place in readable if not place.is_relative_to(tree))]
    return Layers(confinement.layers, tuple(dict.fromkeys(readable)), confinement.is_ephemeral) if readable else None


_problem_by_disks: dict[tuple[int, ...], str] = {}


def find_mount_problem(layers: Layers) -> str:
    """Why these overlays cannot be mounted; "" if they can. A real mount tries it, once for each combination of
    disks."""
    try:
        layers.make()
        disks = tuple(place.stat().st_dev for place in (layers.folder, *layers.places))
    except OSError as error:
        return str(error)
    if disks not in _problem_by_disks:
        _problem_by_disks[disks] = _try_mount(replace(layers, work=next(_work_names)))
    return _problem_by_disks[disks]


def _try_mount(layers: Layers) -> str:
    for program in ("unshare", "mount"):
        if shutil.which(program) is None:
            return f"`{program}` does not exist"
    try:
        layers.make()
    except OSError as error:
        return str(error)
    return try_command([*UNSHARE, "/bin/sh", "-c", layers.script()], layers.folder).problem


def list_written_files(confinement: Confinement) -> Iterator[str]:
    """The files that commands made, changed or removed over the operator's tree, as paths in it."""
    upper = confinement.layers / "upper"
    for folder, _, names in os.walk(upper):
        for name in names:
            path = Path(folder, name)
            is_removed = stat.S_ISCHR(path.lstat().st_mode)
            yield f"{path.relative_to(upper)}{' (removed)' if is_removed else ''}"


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
"""Folders in a tree where tools keep caches, each with a file that shows that the tree uses the tool ("" for any
tree)."""


def make_tree_caches(confinement: Confinement) -> dict[Path, Path]:
    """Make folders for the caches of `_TREE_CACHES`, for a session that works over the operator's tree. Returns the
    folder of each cache by its path in the tree. Paths that the operator uses are left out."""
    folders = {}
    for name, tree_file in _TREE_CACHES:
        path = confinement.folder / name
        is_taken = path.exists() or path.is_symlink() or path.parent.is_symlink()
        if is_taken or not (confinement.folder / tree_file).exists():
            continue
        # Commands do not see this folder, so none can replace it by a link.
        cache = confinement.caches.parent / "tree" / name
        cache.mkdir(parents=True, exist_ok=True)
        folders[path] = cache
    return folders
