"""Finds the projects of a repository, which are folders with a manifest, and the tools of each (SPEC 3.9).

The search runs no program of the repository. Manifests and environments are read as files, git lists the files, and
only the operator's own Python is asked whether it has pytest.

A repository with several projects (a monorepo) has these rules for their tests:

- Some runners collect the tests of the folders below by themselves: `cargo test`, Maven, Gradle, mix and .NET in a
  workspace; jest, vitest and `node --test` at the top; pytest for the folders in its `testpaths`. Such a runner runs
  all these tests, and the folders below have none of their own.
- A script that only calls the scripts of its members (`npm test --workspaces`, `pnpm -r test`, turbo, nx, lerna) is
  not used. Each member runs its own tests, which is faster and gives the names of single tests.
- Otherwise every folder runs its own tests, and pytest at the top leaves out those of the projects below.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from engine.clock import Clock
from engine.execution.runners.toolchains import MANIFESTS, PACKAGE_MANAGERS, PROGRAM_FIXES, TEST_RUNNERS, TOOL_TABLES
from engine.execution.runners.toolchains.detection import (
    PackageSetup,
    detect_linters,
    detect_packages,
    detect_test_tools,
    find_missing_program,
    make_environment_command,
)
from engine.execution.runners.toolchains.project_folder import ProjectFolder
from engine.execution.runners.toolchains.project_tools import Linter, Toolchain
from engine.execution.runners.toolchains.python_projects import Interpreter, is_collected
from engine.frozen import frozen
from engine.git import Git
from engine.git.repository import find_repository
from engine.text import sanitise

MAX_PROJECT_DEPTH = 4
"""Maximum depth of a project's folder below the top of its repository."""

MAX_PROJECTS = 200
"""Maximum number of projects of one repository."""

_IGNORED_FOLDERS = frozenset(TOOL_TABLES["ignored_folders"])
"""Names of folders below which no project is searched."""

_MANIFEST_NAMES = frozenset(name for name in MANIFESTS if "*" not in name)
_MANIFEST_ENDINGS = tuple(name.removeprefix("*") for name in MANIFESTS if "*" in name)
"""The endings of manifests that may have any name."""

_PACKAGE_FOLDERS = {row.name: row.package_folders[0] for row in PACKAGE_MANAGERS.values() if row.package_folders}
"""The folder of packages that each manager makes."""

REFRESH_S = 60.0
"""Seconds after which the projects of a workspace are searched again."""

_DELEGATING_SCRIPT = re.compile(
    r"--workspaces\b|(?:^|\s)-ws\b|(?:^|\s)(?:pnpm|bun)\b.*(?:\s-r\b|--recursive|--filter)|\b(?:turbo|nx|lerna|wsrun)\b"
    r"|workspaces (?:foreach|run)"
)
"""Matches a script that calls the scripts of the members of a workspace."""


# -- projects


@frozen
class Project:
    """A folder of a repository with a manifest of its own."""

    path: str = ""
    """Relative to the top of the repository; "" is the top."""
    tools: tuple[Toolchain, ...] = ()
    """The tools that run its tests, one for each language, the main one first. Empty if it has no tests, if they cannot
    run, or if another project runs them."""
    linters: tuple[Linter, ...] = ()
    packages: tuple[PackageSetup, ...] = ()
    changelog: str = ""
    """The file of its change log; "" for none, and for a project below the top."""
    tested_by: str | None = None
    """The path of the project that runs its tests."""
    missing_tool: str = ""
    """The program or folder that its tests need and that does not exist; "" for none."""
    searched_places: tuple[str, ...] = ()
    """The places where tools were searched, in words."""

    @property
    def tool(self) -> Toolchain | None:
        """The main tool that runs its tests; None if there is none."""
        return self.tools[0] if self.tools else None

    @property
    def untested_reason(self) -> str:
        """Why the project has no tool for its tests; "" if it has one."""
        if self.tools:
            return ""
        if self.tested_by is not None:
            return f"its tests run with those of {self.tested_by or 'the top folder'}"
        return self.lacking_reason or "it has no tests"

    @property
    def lacking_reason(self) -> str:
        """What its tests need and how to install it, in words; "" if nothing is missing."""
        fix = PROGRAM_FIXES.get(self.missing_tool, "")
        fix_clause = f"; {fix}" if fix else ""
        return f"its tests need {self.missing_tool}, which is not installed{fix_clause}" if self.missing_tool else ""

    def path_inside(self, path: str) -> str | None:
        """The path relative to this project, for a `path` relative to the top; None if it is outside of the project."""
        if not self.path:
            return path
        return path.removeprefix(f"{self.path}/") if path.startswith(f"{self.path}/") else None

    def tests(self, path: str) -> bool:
        """Whether a change of `path` (relative to the top) can change the result of its tests."""
        return self.path_inside(path) is not None and any(tool.covers(path) for tool in self.tools)

    def lints(self, path: str) -> bool:
        """Whether one of its linters reads `path` (relative to the top)."""
        return self.path_inside(path) is not None and any(linter.covers(path) for linter in self.linters)


def find_innermost_project(projects: Sequence[Project], path: str) -> Project | None:
    """The innermost of `projects` that contains `path`, which is relative to the top of the repository."""
    holding = [project for project in projects if project.path_inside(path) is not None]
    return max(holding, key=lambda project: len(project.path), default=None)


def read_project(folder: Path, workspace: Path | None = None) -> Project:
    """The project in `folder`, without looking at git or at the folders below. If `folder` is a worktree, `workspace`
    is the folder in which the tools are installed."""
    return _inspect_folder(ProjectFolder(folder, folder, workspace or folder), "", lambda language: True)


def find_projects(folder: Path, workspace: Path | None = None, *, git: Git | None = None) -> tuple[Project, ...]:
    """All projects of the repository with the top `folder`: the top first, then the others by path. The docstring of
    the module says which of them run their tests.

    If `folder` is a worktree, `workspace` is the operator's repository. In a folder without git, there is only the top.
    It takes some tens of milliseconds, because the operator's interpreter is asked whether it has pytest.
    """
    files = _list_files(git or Git(folder))
    tests = _TestFiles(files.tracked + files.untracked)
    pytest_by_interpreter: dict[Interpreter, bool] = {}
    projects: list[Project] = []
    for path in ["", *_find_manifest_folders(files.tracked)]:
        inspected = ProjectFolder(folder / path, folder, workspace or folder, pytest_by_interpreter)
        if not path or inspected.find_files(MANIFESTS):
            projects.append(_inspect_folder(inspected, path, partial(tests.has, path)))
    divided = _remove_member_tests(projects)
    return tuple(_remove_nested_tests(project, divided, tests) for project in divided)


def find_packages(folder: Path) -> dict[str, tuple[PackageSetup, ...]]:
    """The package setups of each folder with a manifest, by its path from the top `folder` of a repository. This is
    faster than `find_projects`, which also searches for tests."""
    return {
        path: detect_packages(ProjectFolder(folder / path, folder, folder))
        for path in ["", *_find_manifest_folders(_list_files(Git(folder)).tracked)]
    }


# -- reading a repository


class _RepositoryFiles(NamedTuple):
    """The files of a repository, by their paths from its top. Both lists are empty in a folder without git."""

    tracked: list[str]
    untracked: list[str]
    """Without those that git ignores."""


def _list_files(git: Git) -> _RepositoryFiles:
    """List the files of a repository. Raises `GitError` if git fails, because it is then not known which projects there
    are."""
    files = _RepositoryFiles([], [])
    if find_repository(git.folder) is None:
        return files
    for entry in git.output("ls-files", "-z", "-t", "--cached", "--others", "--exclude-standard").split(b"\0"):
        tag, _, path = os.fsdecode(entry).partition(" ")
        if path:
            (files.untracked if tag == "?" else files.tracked).append(path)
    return files


def _find_manifest_folders(tracked: Iterable[str]) -> list[str]:
    """The folders below the top that contain a tracked manifest, sorted."""
    paths = (path.rpartition("/") for path in tracked)
    folders = {folder for folder, _, name in paths if name in _MANIFEST_NAMES or name.endswith(_MANIFEST_ENDINGS)}
    return sorted(filter(_is_project_folder, folders))[:MAX_PROJECTS]


def _is_project_folder(folder: str) -> bool:
    """Whether a folder can be that of a project below the top: not too deep, not ignored, with a plain name."""
    parts = folder.split("/")
    return (
        bool(folder)
        and len(parts) <= MAX_PROJECT_DEPTH
        and _IGNORED_FOLDERS.isdisjoint(parts)
        and sanitise(folder) == folder
    )


@dataclass
class _TestFiles:
    """The files of a repository that contain tests, by the naming rules of each language's tools."""

    files: Sequence[str]
    _matching: dict[str, list[str] | None] = field(default_factory=dict)

    def find_by_language(self, language: str) -> list[str] | None:
        """The test files of a language, sorted; None if their names do not show it."""
        if language not in self._matching:
            self._matching[language] = self._find(language)
        return self._matching[language]

    def _find(self, language: str) -> list[str] | None:
        rows = [row for row in TEST_RUNNERS if row.language == language]
        if not self.files or not rows or not all(row.test_files for row in rows):
            return None
        pattern = re.compile("|".join(dict.fromkeys(row.test_files for row in rows)))
        endings = tuple(suffix for row in rows for suffix in row.suffixes)
        return sorted(file for file in self.files if file.endswith(endings) and pattern.search(file))

    def has(self, path: str, language: str) -> bool:
        """Whether the folder `path` has test files of a language. True if their names do not show it."""
        files = self.find_by_language(language)
        prefix = f"{path}/" if path else ""
        return files is None or any(file.startswith(prefix) for file in files)


def _inspect_folder(folder: ProjectFolder, path: str, has_tests: Callable[[str], bool]) -> Project:
    """The project in one folder, without considering the other projects."""
    packages = detect_packages(folder)
    detected = detect_test_tools(folder)
    tools = [tool for tool in detected.tools if has_tests(tool.row.language)]
    searched = detected.searched_places
    if detected.tools and not tools:
        searched = (f"files that {detected.tools[0].title} treats as tests",)
    languages = {tool.row.language for tool in tools}
    missing = [
        (language, name) for language, name in detected.missing if language not in languages and has_tests(language)
    ]
    linters = detect_linters(folder)
    installs = {package.language: package.install_line for package in packages}
    if "python" in languages | {linter.row.language for linter in linters}:
        installs["python"] = make_environment_command(folder.workspace, folder.top)
    return Project(
        path=path,
        tools=tuple(replace(tool, install_command=installs.get(tool.row.language, "")) for tool in tools),
        linters=tuple(replace(linter, install_command=installs.get(linter.row.language, "")) for linter in linters),
        packages=packages,
        changelog="" if path else find_changelog(folder.folder),
        missing_tool=_find_missing_tool(missing, packages, languages, folder.top),
        searched_places=tuple(dict.fromkeys(searched)),
    )


def _find_missing_tool(
    missing: Sequence[tuple[str, str]], packages: Sequence[PackageSetup], languages: set[str], top: Path
) -> str:
    """The first program or folder that the tests need and that does not exist; "" for none. If the package manager that
    would bring it is not installed, it is that. `missing` are the tools that were not found, with their languages, and
    `languages` the languages with a tool."""
    needed = [setup for setup in packages if setup.language in languages - {"python"} and not setup.may_be_installed]
    lacking = [*missing, *((setup.language, _PACKAGE_FOLDERS[setup.manager]) for setup in needed)]
    if not lacking:
        return ""
    lacking_language, name = lacking[0]
    commands = [command for setup in packages if setup.language == lacking_language for command in setup.commands]
    return find_missing_program(commands, top) or name


def find_changelog(folder: Path) -> str:
    """The name of a project's change log; "" for none."""
    return next((name for name in TOOL_TABLES["changelogs"] if os.path.lexists(folder / name)), "")


# -- which project runs which tests


def _remove_member_tests(projects: Sequence[Project]) -> list[Project]:
    """Remove from each project the tools whose tests are run by a project above it. `projects` begins with the top."""
    reduced: list[Project] = []
    for project in projects:
        tools, tested_by = project.tools, project.tested_by
        for above in reduced:
            inside = above.path_inside(project.path)
            tested_languages = {tool.row.language for tool in above.tools if inside and _runs_tests_of(tool, inside)}
            remaining = tuple(tool for tool in tools if tool.row.language not in tested_languages)
            if remaining != tools:
                tools, tested_by = remaining, above.path
        reduced.append(replace(project, tools=tools, tested_by=None if tools else tested_by))
    return reduced


def _runs_tests_of(tool: Toolchain, inside: str) -> bool:
    """Whether a tool also runs the tests of `inside`, a folder below its own."""
    if tool.row.member_sign:
        return ProjectFolder(tool.folder, tool.folder, tool.folder).shows(tool.row.member_sign)
    match tool.row.tests_below:
        case "builds":
            return not any(
                (tool.folder / inside / name).exists() for name in ("settings.gradle", "settings.gradle.kts")
            )
        case "script":
            return all(word.startswith("-") or word == "run" for word in tool.placeholders["script"])
        case "testpaths":
            return is_collected(tool.folder, inside)
    return False


def _remove_nested_tests(project: Project, projects: Sequence[Project], tests: _TestFiles) -> Project:
    """Leave out of a project the tests of the projects below it, which run their own tests."""
    tools: list[Toolchain] = []
    for tool in project.tools:
        testing = (other for other in projects if any(its.row.language == tool.row.language for its in other.tools))
        nested = tuple(inside for other in testing if (inside := project.path_inside(other.path)))
        if nested and tool.row.language == "python":
            below = tuple(f"{project.path}/{inside}/".removeprefix("/") for inside in nested)
            files = tests.find_by_language("python") or ()
            if any(project.path_inside(file) and not file.startswith(below) for file in files):
                tools.append(replace(tool, excluded_folders=nested))
        elif not (nested and tool.row.name == "script" and _DELEGATING_SCRIPT.search(tool.placeholders["script"][0])):
            tools.append(tool)
    has_lost_all = bool(project.tools) and not tools
    return replace(project, tools=tuple(tools), missing_tool="" if has_lost_all else project.missing_tool)


class ProjectCache:
    """Remembers the projects of workspaces for `REFRESH_S`, because a search reads many files and starts an
    interpreter. If a tool is missing, every call searches again, so that a new installation is noticed."""

    def __init__(self, clock: Clock, find: Callable[[Path], tuple[Project, ...]]) -> None:
        self._clock = clock
        self._find = find
        self._cache: dict[str, tuple[float, tuple[Project, ...]]] = {}

    def get_projects(self, workspace: str) -> tuple[Project, ...]:
        """The projects of `workspace`, the top first. Raises as `find` does."""
        found_at, projects = self._cache.get(workspace, (0.0, ()))
        is_complete = any(project.tools for project in projects) and not any(item.missing_tool for item in projects)
        if not is_complete or self._clock.monotonic() - found_at >= REFRESH_S:
            projects = self._find(Path(workspace))
            self._cache[workspace] = self._clock.monotonic(), projects
        return projects
