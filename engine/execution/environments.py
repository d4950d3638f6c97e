"""Installs packages inside a session: with the network of the registries alone, and into the operator's tree after a
success.

The commands see the folder (`.venv`, `node_modules`) at its final place, while it lies among the session's own. Their
other writes are discarded, and after a failure the tree is unchanged.
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
from engine.files import TEMPORARY_PREFIX, remove_folder

GITIGNORE = "*\n"
"""The `.gitignore` inside an installed folder, for a project that does not ignore it."""

_UPDATED_KINDS = frozenset({"python"})
"""Languages whose present environment is updated; those of others are replaced."""


@contextmanager
def network_access(live: LiveSession, hosts: Sequence[str]) -> Iterator[None]:
    """Let the session's commands reach `hosts` and those of the workspace's settings, and no others. Raises `CannotRun`
    where the sandbox cannot filter hosts."""
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
    """Make the folders of an installation beside the operator's tree, and put them in place after the block, if it
    succeeds. Raises `CannotRun` when one of them is a link, or when all stay empty."""
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
        if not target.parent.exists():  # a mount point must exist
            (live.confinement.layers / "upper" / place).parent.mkdir(parents=True, exist_ok=True)
    if installation.cache:
        (live.confinement.caches / installation.cache).mkdir(exist_ok=True)
    live.confine(replace(live.confinement, bind_mounts=tuple(staged.items())))
    yield
    live.processes.end(grace=0)  # no process writes into them any more
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
            _remove_if_present(target)  # the tool left it empty


def keep_out_of_git(top: Path, place: str = "") -> None:
    """Have git ignore the folder `place` below `top`, if it exists. Raises `CannotRun` when it is a link."""
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
    """Move a folder to its place, where another one may be, also from another disk."""
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
    """Restore the old folder after a crash between the two renames of `_put_in_place`."""
    if not os.path.lexists(target) and _temporary_path(target, "old").is_dir():
        _temporary_path(target, "old").rename(target)


def _drop_set_bits(folder: Path) -> None:
    """Remove setuid and setgid bits from installed files."""
    for current, _, names in os.walk(folder):
        for name in names:
            file = Path(current, name)
            mode = file.lstat().st_mode
            if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
                file.chmod(stat.S_IMODE(mode) & 0o777)


def _remove_if_present(folder: Path) -> None:
    if os.path.lexists(folder):
        remove_folder(folder)
