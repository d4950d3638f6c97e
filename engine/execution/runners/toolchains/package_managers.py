"""Finds the package managers of a folder, and the commands that install what a project needs."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from engine.execution.runners.toolchains import python_projects
from engine.execution.runners.toolchains.project_folder import ProjectFolder
from engine.execution.runners.toolchains.project_tools import fill_command
from engine.execution.runners.toolchains.tool_table import PACKAGE_MANAGERS, PackageManagerRow, read_text
from engine.frozen import frozen


@frozen
class PackageSetup:
    """The package manager of a project and its commands. Paths are relative to the top of the repository."""

    manager: str
    kind: str
    """The language."""
    folder: str
    """The folder in which the commands run."""
    lock: str
    """The lock file; "" for none."""
    commands: tuple[tuple[str, ...], ...]
    """The commands that install the packages, in order."""
    hosts: tuple[str, ...]
    """The hosts that the commands need."""
    installed: bool = True
    """False if the packages are certainly not installed."""
    environment: str = ""
    """The environment of Python into which pip installs; "" for another manager."""

    @property
    def install(self) -> str:
        """The commands as the operator would type them in `folder`."""
        return join_commands(self.commands)


def join_commands(commands: Iterable[Sequence[str]]) -> str:
    """The commands as one line for a shell."""
    return " && ".join(map(shlex.join, commands))


def detect_packages(folder: ProjectFolder) -> tuple[PackageSetup, ...]:
    """The package setup of each language of a folder. The nearest lock file that applies to it decides, or else its
    manifest."""
    rows_by_language: dict[str, list[PackageManagerRow]] = {}
    for row in PACKAGE_MANAGERS.values():
        if folder.find_files(row.manifests):
            rows_by_language.setdefault(row.kind, []).append(row)
    return tuple(_choose_manager(folder, rows) for rows in rows_by_language.values())


def _choose_manager(folder: ProjectFolder, rows: Sequence[PackageManagerRow]) -> PackageSetup:
    for here in folder.with_folders_above():
        holding = rows if here is folder else [row for row in rows if here.shows(row.workspace_sign)]
        for row in holding:
            if locks := here.find_files(row.lock_files):
                return _make_setup(here, row, locks[0])
        if holding and here is not folder:
            return _make_setup(here, _named_manager(here, holding), "")
    return _make_setup(folder, _named_manager(folder, rows), "")


def _named_manager(folder: ProjectFolder, rows: Sequence[PackageManagerRow]) -> PackageManagerRow:
    """The manager that the manifest names, or else the usual one."""
    for row in rows:
        if not row.manifest_pattern:
            continue
        is_named = folder.search_files(folder.find_files(row.manifests), row.manifest_pattern) is not None
        if is_named and not (row.name == "uv" and _is_pip_used_instead(folder)):
            return row
    return next((row for row in rows if not row.manifest_pattern), rows[0])


def _make_setup(folder: ProjectFolder, row: PackageManagerRow, lock: str) -> PackageSetup:
    path = "" if folder.folder == folder.root else folder.folder.relative_to(folder.root).as_posix()
    setup = PackageSetup(
        manager=row.name,
        kind=row.kind,
        folder=path,
        lock=f"{path}/{lock}" if path and lock else lock,
        commands=_install_commands(folder, row, lock),
        hosts=row.hosts,
        installed=_is_installed(folder, row),
    )
    if row.name != "pip":
        return setup
    environment = python_projects.find_environment(folder.workspace, folder.top) or folder.workspace / ".venv"
    commands = _pip_commands(folder, "pytest", *_pip_needs(folder))
    return replace(setup, commands=commands, environment=os.path.relpath(environment, folder.top))


def _install_commands(folder: ProjectFolder, row: PackageManagerRow, lock: str) -> tuple[tuple[str, ...], ...]:
    words = {
        "where": tuple(python_projects.pytest_group_option(folder.folder).split()) if row.name == "uv" else (),
        "wrapper": (f"./{row.wrapper}" if row.wrapper in folder.names else row.program,),
    }
    if row.name == "yarn" and lock and ".yarnrc.yml" in folder.names:  # yarn 2 and later name it anew
        return (("yarn", "install", "--immutable"),)
    command = fill_command(row.install_command if lock else row.unlocked_install_command, words)
    return (command,) if command else ()


def _is_pip_used_instead(folder: ProjectFolder) -> bool:
    """Whether a manifest has dependency groups, as those for uv have, but pip made the environment of the project."""
    if "[tool.uv" in folder.read_file("pyproject.toml"):
        return False
    environment = python_projects.find_environment(folder.workspace, folder.top)
    return environment is not None and (environment / "bin" / "pip").exists() and not _is_made_by_uv(environment)


def _is_made_by_uv(environment: Path) -> bool:
    return "uv = " in read_text(environment / "pyvenv.cfg")


def _pip_commands(folder: ProjectFolder, *packages: str) -> tuple[tuple[str, ...], ...]:
    """The commands that install into the environment of the project, or of a folder above it. If there is none, it is
    made. An environment may have no pip: uv makes it without, and installs into it by itself."""
    environment = python_projects.find_environment(folder.workspace, folder.top) or folder.workspace / ".venv"
    place = os.path.relpath(environment, folder.workspace)
    install = (f"{place}/bin/pip", "install", *packages)
    if (environment / "bin" / "pip").exists():
        return (install,)
    if not (environment / "bin" / "python").exists():
        return (("python3", "-m", "venv", place), install)
    if _is_made_by_uv(environment) and folder.find_program("uv"):
        return (("uv", "pip", "install", "--python", place, *packages),)
    python = f"{place}/bin/python"
    return ((python, "-m", "ensurepip"), (python, "-m", "pip", "install", *packages))


def _pip_needs(folder: ProjectFolder) -> list[str]:
    """Arguments of `pip install` for the project itself."""
    needs = [word for name in folder.find_files(("requirements*.txt",)) for word in ("-r", name)]
    if "[project]" not in folder.read_file("pyproject.toml") and "setup.py" not in folder.names:
        return needs
    # pip knows groups only since 25.1
    option, _, name = python_projects.pytest_group_option(folder.folder).strip().partition(" ")
    return [*needs, "-e", f".[{name}]" if option == "--extra" else "."]


_PYTEST_REQUIREMENT = r"""["']pytest\b|^pytest\s*="""
"""Matches pytest among the requirements of a project, but not `[tool.pytest.ini_options]`, which does not install
it."""


def _python_setup(folder: ProjectFolder) -> PackageSetup:
    own = next((setup for setup in detect_packages(folder) if setup.kind == "python"), None)
    return own or _make_setup(folder, PACKAGE_MANAGERS["pip"], "")


def environment_command(folder: Path, top: Path) -> str:
    """The command that makes an environment with pytest for the Python project in `folder` of the repository `top`."""
    files = ProjectFolder.of_operator(folder, top)
    setup = _python_setup(files)
    requires = files.search_files(files.find_files(("pyproject.toml", "Pipfile")), _PYTEST_REQUIREMENT)
    return setup.install if setup.manager == "pip" or requires else add_package_command(folder, top, "pytest")


def add_package_command(folder: Path, top: Path, tool: str) -> str:
    """The command that adds `tool` to the environment of the Python project in `folder` of the repository `top`."""
    files = ProjectFolder.of_operator(folder, top)
    add = shlex.split(PACKAGE_MANAGERS[_python_setup(files).manager].add_command)
    return join_commands([(*add, tool)] if add else _pip_commands(files, tool))


def _is_installed(folder: ProjectFolder, row: PackageManagerRow) -> bool:
    if row.kind == "python":
        return bool(folder.environments)
    if row.kind == "node" and not re.search(
        r'"(?:dev|optional)?[dD]ependencies"\s*:\s*\{\s*"', folder.read_file("package.json")
    ):
        return True
    return not row.package_folders or any((folder.workspace / name).exists() for name in row.package_folders)
