"""Installs the packages of projects, in the operator's tree or in the worktree of an agent.

It finds the project's own commands that install packages or update the lock file, with the hosts that they need and the
folders that they change. A flow runs the commands for the operator's tree; those for a worktree are run here.

Packages that belong in the tree (`.venv`, `node_modules`, `vendor`) are put there. Packages that tools keep outside of
a project (Go modules, crates, Maven's repository) go into the cache that checks of the same line of commits share.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from engine.execution.live_session import LiveSession
from engine.execution.runners import CannotRun, CommandResult, RetryLater, WorkFailed
from engine.execution.runners.toolchains import LANGUAGES, PACKAGE_MANAGERS
from engine.execution.runners.toolchains.detection import PackageSetup, join_commands
from engine.execution.runners.toolchains.projects import find_packages
from engine.execution.sandbox.host_paths import HOST_TABLES
from engine.files import TEMPORARY_PREFIX, remove_folder
from engine.frozen import frozen
from engine.text import sanitise
from engine.wording import join_names

_YARN_2_LOCK = "yarn install --mode=update-lockfile --no-immutable"
"""The command that updates a lock file of yarn 2 and later."""

_NETWORK_REPORT = re.compile(
    r"^network: (\S+?)(?::443)? (is not one of the allowed hosts|resolves to|cannot be reached)([^\n]*)", re.MULTILINE
)
"""A line that the gate of the sandbox writes about a host: the host, what happened, why."""

PackagesByPath = Mapping[str, Sequence[PackageSetup]]
"""The package setups of each folder, by its path from the top of the repository; see `find_packages`."""

GITIGNORE = "*\n"
"""The `.gitignore` inside an installed folder, for a project that does not ignore it."""


# -- commands


@frozen
class Installation:
    """The commands that install the packages of one project, or update its lock file. All paths are relative to the top
    of the repository."""

    packages: PackageSetup
    commands: tuple[tuple[str, ...], ...]
    """The arguments of each command, in the order in which they run."""
    created_folders: tuple[str, ...] = ()
    """Folders of packages that do not exist in the tree yet."""
    updated_folders: tuple[str, ...] = ()
    """Folders of packages that exist in the tree."""
    updates_lock: bool = False
    """Whether the commands update the lock file and install nothing."""

    @property
    def cache_name(self) -> str:
        """The name of the cache for the packages; "" if they are put into the tree."""
        return str(HOST_TABLES["cached_packages"].get(self.packages.manager, {}).get("folder", ""))

    @property
    def command_lines(self) -> list[str]:
        """The commands as the operator would type them. They are the parameter `command` of the flow."""
        return [shlex.join(command) for command in self.commands]

    @property
    def command(self) -> str:
        """The commands in one line."""
        return join_commands(self.commands)

    @property
    def effects(self) -> str:
        """The change to the operator's tree, in words."""
        effects = self._describe_changes("creates {} in your tree", "updates your {}")
        return ", ".join(effects) or "stores the packages in Clawpy's cache; your tree is not touched"

    @property
    def summary(self) -> str:
        """The text of a card: the command, the network that it needs, and the change to the operator's tree."""
        where = f" in {self.packages.folder}" if self.packages.folder else ""
        after = f"the diff of {self.packages.lock} waits for you" if self.updates_lock else self.effects
        return sanitise(f"`{self.command}`{where}; network: {', '.join(self.packages.hosts)}; {after}")

    @property
    def outcome(self) -> str:
        """The change to the operator's tree after a success, in words."""
        return " and ".join(self._describe_changes("made {}", "updated {}")) or "stored them in Clawpy's cache"

    @property
    def undo_note(self) -> str:
        """How to undo it, in words."""
        if self.updated_folders:
            folders = " ".join(shlex.quote(folder) for folder in (*self.created_folders, *self.updated_folders))
            return f"{self.effects}; the previous contents are lost. To start over: rm -r {folders}, then install again"
        if self.created_folders:
            return f"{self.effects}; to undo: rm -r {' '.join(map(shlex.quote, self.created_folders))}"
        return f"{self.effects}; nothing to undo"

    def find_own_environment(self, top: Path) -> str:
        """The folder of packages from which this program itself runs, if the installation would change it; else "".

        That folder must not be replaced while the program uses it. `top` is the top of the repository.
        """
        running = Path(sys.prefix).resolve()
        return next((place for place in self.updated_folders if running.is_relative_to((top / place).resolve())), "")

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables for the commands."""
        return dict(LANGUAGES[self.packages.language].install_environment)

    def _describe_changes(self, creation: str, update: str) -> list[str]:
        """The changed folders in words. Each text has `{}` for the names of folders."""
        changes = ((creation, self.created_folders), (update, self.updated_folders))
        return [text.format(join_names(folders, 1)) for text, folders in changes if folders]


def find_installations(top: Path, packages_by_path: PackagesByPath, path: str = "") -> tuple[Installation, ...]:
    """The installations of the project at `path` of the repository `top`, one for each language with a known
    command."""
    installations = []
    for packages in packages_by_path.get(path, ()):
        if packages.commands:
            folders = _find_package_folders(packages, packages_by_path, top)
            present = tuple(folder for folder in folders if os.path.lexists(top / folder))
            # Every tool but pnpm keeps the packages of a whole workspace at its top.
            expected = folders if packages.manager == "pnpm" else folders[:1]
            created = tuple(folder for folder in expected if folder not in present)
            installations.append(Installation(packages, packages.commands, created, present))
    return tuple(installations)


def _find_package_folders(packages: PackageSetup, packages_by_path: PackagesByPath, top: Path) -> list[str]:
    """The folders that may contain the packages, that of the project first."""
    if packages.environment:
        return [packages.environment]
    folders = [packages.folder]
    if packages.language == "node":  # a member of a workspace may have packages of its own
        members = (
            path
            for path, setups in packages_by_path.items()
            if any(setup.folder == packages.folder for setup in setups)
        )
        folders += [path for path in members if (top / path / "package.json").is_file()]
    names = LANGUAGES[packages.language].package_folders
    return [f"{folder}/{name}".removeprefix("/") for folder in dict.fromkeys(folders) for name in names]


def list_possible_locks(packages: PackageSetup) -> list[str]:
    """The paths of the lock files that its package manager may write."""
    names = PACKAGE_MANAGERS[packages.manager].lock_files
    return [f"{packages.folder}/{name}".removeprefix("/") for name in names]


def find_lock_updates(top: Path, packages_by_path: PackagesByPath, path: str) -> tuple[Installation, ...]:
    """The commands that update the lock files of the project at `path`, or make the first ones, one for each language
    with lock files."""
    updates = []
    for packages in packages_by_path.get(path, ()):
        update = PACKAGE_MANAGERS[packages.manager].update_lock_command
        if update:
            packages = replace(packages, lock=packages.lock or next(iter(list_possible_locks(packages)), ""))
            is_yarn_2 = packages.manager == "yarn" and (top / packages.folder / ".yarnrc.yml").is_file()
            command = tuple(shlex.split(_YARN_2_LOCK if is_yarn_2 else update))
            updates.append(Installation(packages, (command,), updates_lock=True))
    return tuple(updates)


def choose_installation(installations: Sequence[Installation], command: Sequence[str], purpose: str) -> Installation:
    """The one of `installations` whose commands are exactly the lines of `command`. Raises `WorkFailed`, which names
    the accepted commands, and `CannotRun` if `installations` is empty."""
    for installation in installations:
        # A command that the operator typed comes word by word.
        if installation.command_lines == list(command) or installation.command == " ".join(command):
            return installation
    if not installations:
        raise CannotRun(f"no known command {purpose}", "install what the project needs in a terminal")
    requested = sanitise(" && ".join(command))
    known_commands = " or ".join(f"`{sanitise(installation.command)}`" for installation in installations)
    raise WorkFailed(f"`{requested}` is not the command that {purpose}", f"use {known_commands}")


def make_installation_error(command: Sequence[str], result: CommandResult, hosts: Sequence[str]) -> WorkFailed:
    """The error of an installation that failed. It names a host that was not reached, or else the last error that the
    tool printed."""
    line = shlex.join(command)
    own_lines = [text for text in result.output.splitlines() if text.strip() and not _NETWORK_REPORT.match(text)]
    for host, ending, why in _NETWORK_REPORT.findall(result.output):
        if ending == "cannot be reached":
            return RetryLater(f"{host} {ending}{why}", "check your network, then try again")
        if any(host in text for text in own_lines):
            return CannotRun(
                f"`{line}` asked for {host}, which is not one of its registries ({', '.join(hosts)})",
                "if the project needs packages from there, add it to `hosts` of this workspace: clawpy config",
            )
    errors = [text for text in own_lines if re.search(r"(?i)\berr", text) and "complete log of this run" not in text]
    error = next(reversed(errors or own_lines), "it printed nothing")
    return WorkFailed(f"`{line}` ended with exit code {result.exit_code}: {sanitise(error.strip())[:300]}")


# -- into the worktree of an agent


def install_into_worktree(live: LiveSession, folder: Path) -> None:
    """Install the project's packages into the worktree `folder` of an agent. A failure is noted and is not fatal,
    because the agent may need none of them."""
    packages = find_packages(folder)
    needed = [installation for path in packages for installation in find_installations(folder, packages, path)]
    for installation in dict.fromkeys(needed):  # members of a workspace are installed with it
        hosts = installation.packages.hosts
        live.write("note", f"prepare: {installation.command}; network: {', '.join(hosts)}")
        try:
            with live.commands.allow_hosts(hosts):
                (live.confinement.caches / installation.cache_name).mkdir(parents=True, exist_ok=True)
                for command in installation.commands:
                    working_folder = folder / installation.packages.folder
                    result = live.execute(command, cwd=working_folder, env=installation.environment)
                    if not result.ok:
                        raise make_installation_error(command, result, hosts)
                for place in installation.created_folders:
                    keep_out_of_git(folder, place)
        except WorkFailed as error:
            live.write("error", f"not prepared: {error}")
    if (folder / ".venv" / "bin" / "python").exists():
        live.commands.confine(prepared=True)


# -- into the tree


@contextmanager
def install_into_tree(live: LiveSession, installation: Installation, top: Path) -> Iterator[None]:
    """Make the folders of an installation outside of the operator's tree. If the block succeeds, put them into the
    tree. Raises `CannotRun` if one of them is a link, or if all of them stay empty.

    The commands see a folder of packages at its final path, although it is in the session's scratch folder. Everything
    else that they write is discarded. After a failure the tree is unchanged.
    """
    root = live.confinement.scratch / "made"
    places = (*installation.created_folders, *installation.updated_folders)
    staged = {top / place: root / str(number) for number, place in enumerate(places)}
    for place, (target, fresh) in zip(places, staged.items(), strict=True):
        _refuse_links(top, place)
        _restore_old_folder(target)
        if place in installation.updated_folders and installation.packages.language == "python":
            shutil.copytree(target, fresh, symlinks=True)
        else:  # the folders of other languages start empty
            fresh.mkdir(parents=True)
        if not target.parent.exists():  # a mount point must exist
            (live.confinement.layers / "upper" / place).parent.mkdir(parents=True, exist_ok=True)
    (live.confinement.caches / installation.cache_name).mkdir(parents=True, exist_ok=True)
    live.commands.confine(bind_mounts=tuple(staged.items()))
    yield
    live.processes.end(grace=0)  # no process writes into them any more
    filled = {target for target, fresh in staged.items() if any(fresh.iterdir())}
    if staged and not filled:
        message = f"`{installation.command}` put nothing into {', '.join(places)}, so nothing was changed"
        raise CannotRun(message, "run it in a terminal: it stores its packages elsewhere")
    for target, fresh in staged.items():
        _refuse_links(top, target.relative_to(top).as_posix())
        if target in filled:
            _put_in_place(fresh, target)
        else:
            _remove_if_present(target)  # the tool left it empty


def keep_out_of_git(top: Path, place: str = "") -> None:
    """Make git ignore the folder `place` below `top`, if it exists. Raises `CannotRun` if it is a link."""
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
    """Move a folder to its place, even from another disk. A folder that is there is replaced."""
    if not os.path.lexists(target):
        keep_out_of_git(fresh)
    _drop_set_bits(fresh)
    target.parent.mkdir(parents=True, exist_ok=True)
    near, old = _make_temporary_path(target, "new"), _make_temporary_path(target, "old")
    _remove_if_present(near)
    shutil.move(fresh, near)  # copies from another disk; after this there are only two renames
    if target.exists():
        _remove_if_present(old)
        target.rename(old)
        near.rename(target)
        _remove_if_present(old)
    else:
        near.rename(target)


def _make_temporary_path(target: Path, prefix: str) -> Path:
    return target.with_name(f"{TEMPORARY_PREFIX}{prefix}-{target.name}")


def _restore_old_folder(target: Path) -> None:
    """Restore the old folder after a crash between the two renames of `_put_in_place`."""
    if not os.path.lexists(target) and _make_temporary_path(target, "old").is_dir():
        _make_temporary_path(target, "old").rename(target)


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
