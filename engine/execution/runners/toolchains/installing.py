"""Finds the commands that install a project's packages or update its lock file, with the network that they need and the
folders that they change. Reads the disk; starts nothing.

Packages that lie in the tree (`.venv`, `node_modules`, `vendor`) go there. What tools keep outside of a project (Go
modules, crates, Maven's repository) goes into the cache that checks of the same line of commits share.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from engine.execution.runners.flow import CannotRun, CommandResult, FlowError, Job, RetryLater
from engine.execution.runners.toolchains.detection import PackageSetup
from engine.execution.runners.toolchains.project_tools import ProjectTool
from engine.execution.runners.toolchains.tool_table import PACKAGE_MANAGERS, folders_up_to, language_of
from engine.execution.sandbox.host_paths import CACHED_PACKAGES
from engine.frozen import frozen
from engine.model import sanitise

_PER_PACKAGE_FOLDERS = frozenset({"pnpm"})
"""Tools that give each package of a workspace a folder of its own."""

_YARN_2_LOCK = "yarn install --mode=update-lockfile --no-immutable"
"""The command that updates a lock file of yarn 2 and later."""

_NETWORK_REPORT = re.compile(
    r"^network: (\S+?)(?::443)? (is not one of the allowed hosts|resolves to|cannot be reached)([^\n]*)", re.MULTILINE
)


@frozen
class Installation:
    """The commands that install the packages of one project, or update its lock file. All paths are relative to the top
    of the repository."""

    folder: str
    """Where the commands run."""
    commands: tuple[tuple[str, ...], ...]
    hosts: tuple[str, ...]
    """The hosts that they need."""
    made: tuple[str, ...] = ()
    """Folders of packages that the tree does not have yet."""
    updated: tuple[str, ...] = ()
    """Folders of packages that the tree has."""
    cache: str = ""
    """The name of the cache that the packages go to; "" when they go into the tree."""
    kind: str = ""
    """The language."""
    lock: str = ""
    """The lock file."""
    updates_lock: bool = False
    """The commands update the lock file and install nothing."""

    @property
    def lines(self) -> list[str]:
        """The commands as the operator would type them: the parameter `command` of the flow."""
        return [shlex.join(command) for command in self.commands]

    @property
    def command(self) -> str:
        """The commands in one line."""
        return " && ".join(self.lines)

    @property
    def effects(self) -> str:
        """The change to the operator's tree, in words."""
        words = self._in_words("creates {} in your tree", "updates your {}")
        return ", ".join(words) or "stores the packages in Clawpy's cache; your tree is not touched"

    @property
    def summary(self) -> str:
        """The text of a card: the command, the network that it needs, and the change to the operator's tree."""
        where = f" in {self.folder}" if self.folder else ""
        after = f"the diff of {self.lock} waits for you" if self.updates_lock else self.effects
        return sanitise(f"`{self.command}`{where}; network: {', '.join(self.hosts)}; {after}")

    @property
    def outcome(self) -> str:
        """The change to the operator's tree after a success, in words."""
        return " and ".join(self._in_words("made {}", "updated {}")) or "stored them in Clawpy's cache"

    def _in_words(self, made: str, updated: str) -> list[str]:
        changes = ((made, self.made), (updated, self.updated))
        return [words.format(_join_names(folders)) for words, folders in changes if folders]

    @property
    def undo_note(self) -> str:
        """How to undo it, in words."""
        if self.updated:
            folders = " ".join(shlex.quote(folder) for folder in (*self.made, *self.updated))
            return f"{self.effects}; the previous contents are lost. To start over: rm -r {folders}, then install again"
        if self.made:
            return f"{self.effects}; to undo: rm -r {' '.join(map(shlex.quote, self.made))}"
        return f"{self.effects}; nothing to undo"

    @property
    def environment(self) -> dict[str, str]:
        """Variables for the commands."""
        return dict(language_of(self.kind).install_environment)


def _join_names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def find_installations(
    top: Path, packages_by_path: Mapping[str, Sequence[PackageSetup]], path: str = ""
) -> tuple[Installation, ...]:
    """The installations of the project at `path` of the repository `top`, one for each language; () when no command is
    known. `packages_by_path` is from `find_packages`."""
    return tuple(
        _make_installation(packages, packages_by_path, top)
        for packages in packages_by_path.get(path, ())
        if packages.commands
    )


def _make_installation(
    packages: PackageSetup, packages_by_path: Mapping[str, Sequence[PackageSetup]], top: Path
) -> Installation:
    names = language_of(packages.kind).package_folders
    if packages.kind == "python":  # pip installs into the environment that is there, whatever its name
        own = re.match(r"(\.?\w+)/bin/", packages.commands[-1][0])
        names = (own[1],) if own else names
    folders = [packages.folder]
    if packages.kind == "node":  # a package of a workspace may have some packages for itself alone
        members = [
            path
            for path, members_packages in packages_by_path.items()
            if any(other.folder == packages.folder for other in members_packages)
        ]
        folders += [path for path in members if (top / path / "package.json").is_file()]
    folders_of_packages = [f"{folder}/{name}".removeprefix("/") for folder in dict.fromkeys(folders) for name in names]
    missing = [place for place in folders_of_packages if not os.path.lexists(top / place)]
    if packages.manager not in _PER_PACKAGE_FOLDERS:  # the tool keeps all packages at the top
        missing = [place for place in missing if place == folders_of_packages[0]]
    return Installation(
        packages.folder,
        packages.commands,
        packages.hosts,
        tuple(missing),
        tuple(place for place in folders_of_packages if os.path.lexists(top / place)),
        _cache_folder(packages),
        packages.kind,
        packages.lock,
    )


def _cache_folder(packages: PackageSetup) -> str:
    return CACHED_PACKAGES[packages.manager][0] if packages.manager in CACHED_PACKAGES else ""


def find_lock_updates(
    top: Path, packages_by_path: Mapping[str, Sequence[PackageSetup]], path: str = ""
) -> tuple[Installation, ...]:
    """The updates of the lock files of the project at `path`, one for each language; as `find_installations`."""
    updates = []
    for packages in packages_by_path.get(path, ()):
        update = PACKAGE_MANAGERS[packages.manager].update_lock_command
        if packages.lock and update:
            is_yarn_2 = packages.manager == "yarn" and (top / packages.folder / ".yarnrc.yml").is_file()
            command = tuple(shlex.split(_YARN_2_LOCK if is_yarn_2 else update))
            updates.append(
                Installation(
                    packages.folder,
                    (command,),
                    packages.hosts,
                    cache=_cache_folder(packages),
                    kind=packages.kind,
                    lock=packages.lock,
                    updates_lock=True,
                )
            )
    return tuple(updates)


def choose_installation(installations: Sequence[Installation], command: Sequence[str], purpose: str) -> Installation:
    """The one of `installations` whose commands are exactly the lines of `command`. Raises `FlowError` that names the
    accepted commands, and `CannotRun` when there is no installation at all."""
    for installation in installations:
        # A command that the operator typed comes word by word.
        if installation.lines == list(command) or installation.command == " ".join(command):
            return installation
    if not installations:
        raise CannotRun(f"no known command {purpose}", "install what the project needs in a terminal")
    requested = sanitise(" && ".join(command))
    known_commands = " or ".join(f"`{sanitise(installation.command)}`" for installation in installations)
    raise FlowError(f"`{requested}` is not the command that {purpose}", f"use {known_commands}")


def installation_failure(command: Sequence[str], done: CommandResult, hosts: Sequence[str]) -> FlowError:
    """The error of an installation that failed: an unreachable host, or the last error that the tool printed."""
    line = shlex.join(command)
    lines = [text for text in done.output.splitlines() if text.strip() and not _NETWORK_REPORT.match(text)]
    for host, ending, why in _NETWORK_REPORT.findall(done.output):
        if ending == "cannot be reached":
            return RetryLater(f"{host} {ending}{why}", "check your network, then try again")
        if any(host in text for text in lines):
            return CannotRun(
                f"`{line}` asked for {host}, which is not one of its registries ({', '.join(hosts)})",
                "if the project needs packages from there, add it to `hosts` of this workspace: clawpy config",
            )
    wrong = [text for text in lines if re.search(r"(?i)\berr", text) and "complete log of this run" not in text]
    last = (wrong or lines or ["it printed nothing"])[-1]
    return FlowError(f"`{line}` ended with exit code {done.exit_code}: {sanitise(last.strip())[:300]}")


# -- Packages that only the operator's tree has, lent to a worktree -------------------------------------------------


@contextmanager
def linked_packages(job: Job, tools: Sequence[ProjectTool]) -> Iterator[None]:
    """Link folders that only the operator's tree has (`node_modules`) into the worktree of `job` during a run, for the
    projects of `tools` and the folders above them. The links are removed afterwards, so no change set has them."""
    used = tools if job.folder != job.workspace else ()
    folders = {above for tool in used for above in folders_up_to(tool.folder, job.folder)}
    names = {name for tool in used for name in language_of(tool.row.kind).linked_folders}
    links: list[Path] = []
    for place in sorted(folders):
        for name in sorted(names):
            link, source = place / name, job.workspace / place.relative_to(job.folder) / name
            if source.is_dir() and not os.path.lexists(link) and place.is_dir():
                links.append(link)
                link.symlink_to(source, target_is_directory=True)
    try:
        yield
    finally:
        for link in links:
            link.unlink(missing_ok=True)
