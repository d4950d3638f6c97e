"""Detects the package managers of a folder by the table, with the commands that install its packages."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from engine.execution.runners.toolchains import python_environments
from engine.execution.runners.toolchains.project_folder import ProjectFolder
from engine.execution.runners.toolchains.project_tools import fill_command
from engine.execution.runners.toolchains.python_environments import ON_PATH
from engine.execution.runners.toolchains.tool_table import PACKAGE_MANAGERS, PackageManagerRow
from engine.frozen import frozen


@frozen
class PackageSetup:
    """The package manager of a project and its commands. Paths are relative to the top of the repository."""

    manager: str
    kind: str
    """The language."""
    folder: str
    """Where the commands run."""
    manifest: str
    lock: str
    """The lock file, "" for none."""
    commands: tuple[tuple[str, ...], ...]
    """Commands that install the packages, one after the other."""
    hosts: tuple[str, ...]
    """The hosts that they need."""
    installed: bool = True
    """False when the packages are visibly not there."""

    @property
    def install(self) -> str:
        """The command as the operator would type it in `folder`."""
        return " && ".join(shlex.join(command) for command in self.commands)


def detect_packages(folder: ProjectFolder) -> tuple[PackageSetup, ...]:
    """The package setup of each language of a folder: by the nearest lock file that applies to it, else by its
    manifest."""
    rows_by_language: dict[str, list[PackageManagerRow]] = {}
    for row in PACKAGE_MANAGERS.values():
        if folder.find_files(row.manifests):
            rows_by_language.setdefault(row.kind, []).append(row)
    return tuple(_choose_manager(folder, rows) for rows in rows_by_language.values())


def _choose_manager(folder: ProjectFolder, rows: Sequence[PackageManagerRow]) -> PackageSetup:
    for here in folder.with_folders_above():
        holding = rows if here is folder else [row for row in rows if _is_workspace_of(here, row)]
        for row in holding:
            if locks := here.find_files(row.lock_files):
                return _make_setup(here, row, locks[0])
        if holding and here is not folder:
            return _make_setup(here, _named_manager(here, holding), "")
    return _make_setup(folder, _named_manager(folder, rows), "")


def _is_workspace_of(above: ProjectFolder, row: PackageManagerRow) -> bool:
    name, _, pattern = row.workspace_sign.partition(":")
    return name in above.names and (not pattern or above.search_files((name,), pattern) is not None)


def _named_manager(folder: ProjectFolder, rows: Sequence[PackageManagerRow]) -> PackageManagerRow:
    """The manager that the manifest names, else the usual one."""
    patterned = [row for row in rows if row.manifest_pattern]
    named = [row for row in patterned if folder.search_files(folder.find_files(row.manifests), row.manifest_pattern)]
    if named and named[0].name == "uv" and python_environments.package_manager_of(folder.folder) != "uv":
        named = named[1:]  # groups of dependencies, in a project whose environment pip made
    return next(iter([*named, *(row for row in rows if not row.manifest_pattern)]), rows[0])


def _make_setup(folder: ProjectFolder, row: PackageManagerRow, lock: str) -> PackageSetup:
    path = "" if folder.folder == folder.root else folder.folder.relative_to(folder.root).as_posix()
    manifest = next(iter(folder.find_files(row.manifests)), "")

    def from_top(name: str) -> str:
        return f"{path}/{name}" if path and name else name

    commands = _pip_commands(folder) if row.name == "pip" else _install_commands(folder, row, lock)
    return PackageSetup(
        row.name, row.kind, path, from_top(manifest), from_top(lock), commands, row.hosts, _is_installed(folder, row)
    )


def _install_commands(folder: ProjectFolder, row: PackageManagerRow, lock: str) -> tuple[tuple[str, ...], ...]:
    wrapper = next((f"./{name}" for name in ("gradlew", "mvnw") if name in folder.names), "")
    words = {
        "where": tuple(python_environments.pytest_group_option(folder.folder).split()) if row.name == "uv" else (),
        "wrapper": (wrapper or ("gradle" if row.name == "gradle" else "mvn"),),
    }
    if row.name == "yarn" and lock and ".yarnrc.yml" in folder.names:  # yarn 2 and later name it anew
        return (("yarn", "install", "--immutable"),)
    command = fill_command(row.install_command if lock else row.unlocked_install_command, words)
    return (command,) if command else ()


def _pip_commands(folder: ProjectFolder) -> tuple[tuple[str, ...], ...]:
    own = next(
        (name for name in python_environments.ENVIRONMENTS if (folder.workspace / name / "bin" / "pip").exists()), ""
    )
    needs = [word for need in python_environments.pip_arguments(folder.folder) for word in shlex.split(need)]
    install = (f"{own or '.venv'}/bin/pip", "install", "pytest", *needs)
    return (install,) if own else (("python3", "-m", "venv", ".venv"), install)


def _is_installed(folder: ProjectFolder, row: PackageManagerRow) -> bool:
    if row.kind == "python":
        return any(not where.endswith(ON_PATH) for where, _ in folder.interpreters)
    if row.kind == "node" and not re.search(
        r'"(?:dev|optional)?[dD]ependencies"\s*:\s*\{\s*"', folder.read_file("package.json")
    ):
        return True
    return not row.package_folders or any((folder.workspace / name).exists() for name in row.package_folders)
