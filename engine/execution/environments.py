"""Installing packages inside a session: reaching the registries alone, and putting folders into the operator's tree
when all went well.

The commands see the folder (`.venv`, `node_modules`) where it will be, while it lies among the session's own; what they
write besides is discarded, and after a failure the tree is as it was.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from engine.execution.live_session import LiveSession
from engine.execution.runners.flow import CannotRun
from engine.execution.runners.toolchains.installing import Installation
from engine.plain_files import remove_folder
from engine.storage.files import TEMPORARY_PREFIX

GITIGNORE = "*\n"
"""The `.gitignore` inside a folder that was made: a folder that the project does not ignore stays out of git, too."""

_UPDATED_KINDS = frozenset({"python"})
"""Kinds whose present environment is brought up to date; the others are made anew."""


@contextmanager
def network_access(live: LiveSession, hosts: Sequence[str]) -> Iterator[None]:
    """For the time of the block the session's commands may reach `hosts`, those that the workspace's settings name,
    and nothing else. Raises `CannotRun` where the sandbox cannot hold them to that."""
    if not live.sandbox.can_filter_hosts:
        message = f"this needs the network ({', '.join(hosts)}), and {live.sandbox.name} cannot hold it to that"
        raise CannotRun(message, "install bubblewrap, or run the command in a terminal")
    previous = live.confinement
    live.confine(replace(previous, network=False, hosts=tuple(dict.fromkeys((*previous.hosts, *hosts)))))
    try:
        yield
    finally:
        current = live.confinement
        live.confine(replace(current, network=previous.network, hosts=previous.hosts))


@contextmanager
def install_into_tree(live: LiveSession, installation: Installation, top: Path) -> Iterator[None]:
    """In a session over the operator's tree: the folders of the installation are made beside it and put in place after
    the block, when it ended well. Raises `CannotRun` when one of them is a link, or when nothing was put into any."""
    staged: dict[Path, Path] = {}
    root = live.confinement.scratch / "made"
    for number, place in enumerate((*installation.made, *installation.updated)):
        target, fresh = top / place, root / str(number)
        _refuse_links(top, place)
        _finish_swap(target)
        if place in installation.updated and installation.kind in _UPDATED_KINDS:
            shutil.copytree(target, fresh, symlinks=True)
        else:
            fresh.mkdir(parents=True)
        staged[target] = fresh
        if not target.parent.exists():  # to be mounted on, it has to be there
            (live.confinement.layers / "upper" / place).parent.mkdir(parents=True, exist_ok=True)
    if installation.cache:
        (live.confinement.caches / installation.cache).mkdir(exist_ok=True)
    live.confine(replace(live.confinement, bind_mounts=tuple(staged.items())))
    yield
    live.processes.end(grace=0)  # nobody writes into them any more
    filled = {target for target, fresh in staged.items() if any(fresh.iterdir())}
    if staged and not filled:
        names = ", ".join((*installation.made, *installation.updated))
        message = f"`{installation.command}` put nothing into {names}, so nothing was changed"
        raise CannotRun(message, "run it in a terminal: it stores its packages elsewhere")
    for target, fresh in staged.items():
        _refuse_links(top, target.relative_to(top).as_posix())
        if target in filled:
            _put_in_place(fresh, target)
        else:
            _remove_if_present(target)  # the tool wants nothing there any more


def keep_out_of_git(top: Path, place: str = "") -> None:
    """Have git ignore the folder `place` below `top`, if it is there, also where the project does not. Raises
    `CannotRun` when it is a link."""
    _refuse_links(top, place)
    if (top / place).is_dir():
        with suppress(FileExistsError), (top / place / ".gitignore").open("x") as file:
            file.write(GITIGNORE)


def _refuse_links(top: Path, place: str) -> None:
    step = top
    for part in Path(place).parts:
        step /= part
        if step.is_symlink() or (os.path.lexists(step) and not step.is_dir()):
            message = f"{place} is not a folder of your tree: {step.relative_to(top)} is a link or a file"
            raise CannotRun(message, "nothing outside your tree is changed; run the command in a terminal")


def _put_in_place(fresh: Path, target: Path) -> None:
    """Put a folder in place of another, or of none. They may lie on different disks."""
    if not os.path.lexists(target):
        keep_out_of_git(fresh)
    _drop_set_bits(fresh)
    target.parent.mkdir(parents=True, exist_ok=True)
    near, old = _temporary_path(target, "new"), _temporary_path(target, "old")
    _remove_if_present(near)
    shutil.move(fresh, near)  # a copy where it is another disk; from here on it is two renames
    if target.exists():
        _remove_if_present(old)
        target.rename(old)
        near.rename(target)
        _remove_if_present(old)
    else:
        near.rename(target)


def _temporary_path(target: Path, prefix: str) -> Path:
    return target.with_name(f"{TEMPORARY_PREFIX}{prefix}-{target.name}")


def _finish_swap(target: Path) -> None:
    """What a crash left between the two renames of `_put_in_place`."""
    if not os.path.lexists(target) and _temporary_path(target, "old").is_dir():
        _temporary_path(target, "old").rename(target)


def _drop_set_bits(folder: Path) -> None:
    """No program that was installed runs as its owner for somebody else."""
    for current, _, names in os.walk(folder):
        for name in names:
            file = Path(current, name)
            mode = file.lstat().st_mode
            if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
                file.chmod(stat.S_IMODE(mode) & 0o777)


def _remove_if_present(folder: Path) -> None:
    if os.path.lexists(folder):
        remove_folder(folder)
