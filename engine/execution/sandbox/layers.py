"""The operator's tree seen through an overlay: what commands write over it lies in the session's own folder, and
nothing of it stays (SPEC 3.9).

The kernel's overlay is mounted before the sandbox starts, in a mount namespace of the command's own; bubblewrap can do
that itself since 0.11 only. A user who is not root takes a user namespace for it. Sockets and pipes that programs of
the operator have in the tree are seen there and lead nowhere, those made later too: an overlay has nodes of its own.
"""

from __future__ import annotations

import itertools
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from engine.execution.sandbox.base import Confinement

_works = (f"work{number}" for number in itertools.count())


@dataclass(frozen=True, slots=True)
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
        wanted = ["upper", self.work, "nothing", *(f"merged{number}" for number in range(len(self.places)))]
        for name in wanted:
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


def layers_of(confinement: Confinement) -> Layers | None:
    """The overlays that belong to a confinement; None when it shows nothing of the operator's."""
    tree = confinement.tree
    others = [place for place in confinement.readable if os.access(f"{place}/", os.R_OK)]
    if tree is not None:
        others = [tree, *(place for place in others if not place.is_relative_to(tree))]
    return Layers(confinement.layers, tuple(dict.fromkeys(others)), confinement.discards) if others else None


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
        done = subprocess.run(
            [*UNSHARE, "/bin/sh", "-c", layers.script()],
            cwd=layers.folder,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=10,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else done.stderr.strip() or f"exit code {done.returncode}"


def written(confinement: Confinement) -> Iterator[str]:
    """The files that commands wrote, changed or removed in the operator's tree, by their paths in it."""
    upper = confinement.layers / "upper"
    for folder, _, names in os.walk(upper):
        for name in names:
            path = Path(folder, name)
            gone = stat.S_ISCHR(path.lstat().st_mode)
            yield f"{path.relative_to(upper)}{' (removed)' if gone else ''}"
