"""Installing a project's packages: the exact command, the network it needs, and where the packages go (issue 16).

An environment in the operator's tree is made elsewhere and put in place when all went well: the commands see the
folder (`.venv`, `node_modules`, `vendor`) where it will be, what they write besides is discarded, and after a failure
the tree is as it was. What tools keep outside of a project (Go modules, crates, Maven's repository) goes into the cache
that checks of the same line of commits share. A worktree is prepared in place; it is thrown away as a whole.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from engine.execution.live import LiveSession
from engine.execution.runners.flow import CannotRun, CommandResult, FlowUnable, NotBegun
from engine.execution.runners.toolchains.projects import Packages, Project
from engine.execution.sandbox import CACHED_PACKAGES
from engine.plain_files import remove_folder
from engine.values import sanitise

IGNORED = "*\n"
"""The `.gitignore` inside a folder that was made, so that a folder which the project does not ignore stays out of git."""

_FOLDERS = {
    "python": (".venv",),
    "node": ("node_modules",),
    "ruby": ("vendor/bundle",),
    "php": ("vendor",),
    "elixir": ("deps",),
}
_ENVIRONMENT = {
    "python": {
        "POETRY_VIRTUALENVS_IN_PROJECT": "true",
        "PDM_VENV_IN_PROJECT": "1",
        "PIPENV_VENV_IN_PROJECT": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "UV_LINK_MODE": "copy",
        "UV_PYTHON_DOWNLOADS": "never",
    },
    "node": {"npm_config_audit": "false", "npm_config_fund": "false", "CI": "1"},
    "ruby": {"BUNDLE_PATH": "vendor/bundle", "BUNDLE_FROZEN": "false"},
}
_EACH_ITS_OWN = frozenset({"pnpm"})
"""Tools that give each package of a workspace a folder of its own."""

_KEPT = frozenset({"python"})
"""Kinds whose present environment is brought up to date; the others are made anew."""

_NETWORK = re.compile(
    r"^network: (\S+?)(?::443)? (is not among the hosts|leads to|cannot be reached)([^\n]*)", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Installation:
    """How the packages of one project are installed. All paths are relative to the top of the repository; `folder` is
    where `commands` run, `made` folders of the tree that are not there yet, `updated` those that are. `cache` names the
    cache that the packages go to instead, "" when they go into the tree."""

    folder: str
    commands: tuple[tuple[str, ...], ...]
    hosts: tuple[str, ...]
    made: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    cache: str = ""
    kind: str = ""

    @property
    def lines(self) -> list[str]:
        """The commands as the operator would type them: the parameter `command` of the flow."""
        return [shlex.join(command) for command in self.commands]

    @property
    def command(self) -> str:
        """The same in one line."""
        return " && ".join(self.lines)

    @property
    def places(self) -> str:
        """What becomes of the operator's tree, in words."""
        words = [f"creates {_listed(self.made)} in your tree"] if self.made else []
        words += [f"updates your {_listed(self.updated)}"] if self.updated else []
        return ", ".join(words) or "keeps the packages in a cache of Clawpy's; your tree is not touched"

    @property
    def undo(self) -> str:
        """How it is taken back, in words."""
        if self.updated:
            again = " ".join(shlex.quote(one) for one in (*self.made, *self.updated))
            return (
                f"{self.places}; what was there before is not kept. To begin anew: rm -r {again}, and prepare it again"
            )
        if self.made:
            return f"{self.places}; to undo: rm -r {' '.join(map(shlex.quote, self.made))}"
        return f"{self.places}; nothing to undo"

    @property
    def environment(self) -> dict[str, str]:
        """Variables for the commands."""
        return dict(_ENVIRONMENT.get(self.kind, {}))


def _listed(places: Sequence[str]) -> str:
    return places[0] if len(places) == 1 else f"{places[0]} and {len(places) - 1} more"


def sentence_of(installation: Installation) -> str:
    """What a card says: the exact command, what it needs of the network, and what it does to the operator's tree."""
    where = f" in {installation.folder}" if installation.folder else ""
    hosts = ", ".join(installation.hosts) or "none"
    return sanitise(f"`{installation.command}`{where}; network: {hosts} alone; {installation.places}")


def installations(projects: Sequence[Project], top: Path, path: str = "") -> tuple[Installation, ...]:
    """How the packages of the project at `path` (among `projects`, all those of the repository `top`) are installed,
    one entry a language; () when nothing is known to install them. Looks at the disk, starts nothing."""
    project = next((one for one in projects if one.path == path), None)
    if project is None:
        return ()
    return tuple(_of(one, projects, top) for one in project.packages if one.commands)


def _of(packages: Packages, projects: Sequence[Project], top: Path) -> Installation:
    names = _FOLDERS.get(packages.kind, ())
    if packages.kind == "python":  # pip installs into the environment that is there, whatever its name
        own = re.match(r"(\.?\w+)/bin/", packages.commands[-1][0])
        names = (own[1],) if own else names
    folders = [packages.folder]
    if packages.kind == "node":  # what a package of a workspace has for itself alone
        prefix = f"{packages.folder}/" if packages.folder else ""
        below = [one.path for one in projects if one.path and one.path.startswith(prefix)]
        folders += [path for path in below if (top / path / "package.json").is_file() and path != packages.folder]
    places = [f"{folder}/{name}".removeprefix("/") for folder in dict.fromkeys(folders) for name in names]
    made = [place for place in places if not os.path.lexists(top / place)]
    if packages.keeper not in _EACH_ITS_OWN:
        made = [place for place in made if place == places[0]]  # the tool keeps all packages at the top
    cache = CACHED_PACKAGES[packages.keeper][0] if packages.keeper in CACHED_PACKAGES else ""
    return Installation(
        packages.folder,
        packages.commands,
        packages.hosts,
        tuple(made),
        tuple(place for place in places if os.path.lexists(top / place)),
        cache,
        packages.kind,
    )


# -- inside a session -----------------------------------------------------------------------------------------------


@contextmanager
def reaching(live: LiveSession, hosts: Sequence[str]) -> Iterator[None]:
    """For the time of the block the session's commands may reach `hosts`, those that the workspace's settings name,
    and nothing else. Raises `CannotRun` where the sandbox cannot hold them to that."""
    if not live.sandbox.gates:
        told = f"this needs the network ({', '.join(hosts)}), and {live.sandbox.name} cannot hold it to that"
        raise CannotRun(told, "install bubblewrap, or run the command in a terminal")
    before = live.confinement
    live.confine(replace(before, network=False, hosts=tuple(dict.fromkeys((*before.hosts, *hosts)))))
    try:
        yield
    finally:
        now = live.confinement
        live.confine(replace(now, network=before.network, hosts=before.hosts))


@contextmanager
def put_in_place(live: LiveSession, installation: Installation, top: Path) -> Iterator[None]:
    """In a session over the operator's tree: the folders of the installation are made beside it and put in place after
    the block, when it ended well. Raises `CannotRun` when one of them is a link."""
    staged: dict[Path, Path] = {}
    root = live.confinement.scratch / "made"
    for number, place in enumerate((*installation.made, *installation.updated)):
        target, fresh = top / place, root / str(number)
        _refuse_links(top, place)
        if place in installation.updated and installation.kind in _KEPT:
            shutil.copytree(target, fresh, symlinks=True)
        else:
            fresh.mkdir(parents=True)
        staged[target] = fresh
        if not target.parent.exists():  # to be mounted on, it has to be there
            (live.confinement.layers / "upper" / place).parent.mkdir(parents=True, exist_ok=True)
    if installation.cache:
        (live.confinement.caches / installation.cache).mkdir(exist_ok=True)
    live.confine(replace(live.confinement, placed=tuple(staged.items())))
    yield
    live.processes.end(grace=0)  # nobody writes into them any more
    for target, fresh in staged.items():
        if any(fresh.iterdir()):
            _swap(fresh, target)
        else:
            _remove(target)  # the tool wants nothing there any more


def _refuse_links(top: Path, place: str) -> None:
    step = top
    for part in Path(place).parts:
        step /= part
        if step.is_symlink() or (os.path.lexists(step) and not step.is_dir()):
            told = f"{place} is no folder of your tree: {step.relative_to(top)} is a link or a file"
            raise CannotRun(told, "nothing outside of your tree is changed; run the command in a terminal")


def _swap(fresh: Path, target: Path) -> None:
    """Put a folder in place of another, or of none. They may lie on different disks."""
    if not os.path.lexists(target) and not os.path.lexists(fresh / ".gitignore"):
        (fresh / ".gitignore").write_text(IGNORED)
    target.parent.mkdir(parents=True, exist_ok=True)
    near = target.with_name(f".{target.name}.clawpy-new")
    _remove(near)
    shutil.move(fresh, near)  # a copy where it is another disk; from here on it is two renames
    if target.exists():
        old = target.with_name(f".{target.name}.clawpy-old")
        _remove(old)
        target.rename(old)
        near.rename(target)
        _remove(old)
    else:
        near.rename(target)


def _remove(folder: Path) -> None:
    if os.path.lexists(folder):
        remove_folder(folder)


def failure(command: Sequence[str], done: CommandResult, hosts: Sequence[str]) -> FlowUnable:
    """Why an installation did not come to its end: a host that was not reached, or what the tool said last."""
    line = shlex.join(command)
    if refused := list(_NETWORK.finditer(done.output)):
        unreached = next((one for one in refused if one[2] == "cannot be reached" and one[1] in hosts), None)
        if unreached is not None:
            return NotBegun(f"{unreached[1]} cannot be reached{unreached[3]}", "look at your network, then try again")
        host = refused[0][1]
        return CannotRun(
            f"`{line}` asked for {host}, which is none of its registries ({', '.join(hosts)})",
            "if the project is to have packages from there, add it to `hosts` of this workspace: clawpy config",
        )
    said = [text for text in done.output.splitlines() if text.strip()]
    last = next((text for text in reversed(said) if re.search(r"(?i)\berr", text)), said[-1] if said else "nothing")
    return FlowUnable(f"`{line}` ended with exit code {done.exit_code}: {sanitise(last.strip())[:300]}")
