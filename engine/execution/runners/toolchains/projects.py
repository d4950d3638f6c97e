"""The projects of a repository: a folder with a manifest each, and which tools of the table each has (SPEC 3.9).

Looking runs no program of a repository: manifests are read as files, environments are looked at, git lists the files,
and only the operator's own Python is asked whether it has pytest.

Which project runs which tests, in a repository that holds several (a monorepo):

- A runner that collects the tests of the folders below by itself runs them all, and those folders have no tests of
  their own: `cargo test` and Maven, Gradle, mix and .NET of a workspace, jest, vitest and `node --test` at the top,
  pytest for the folders that its `testpaths` name.
- A script that only hands on to the members (`npm test --workspaces`, `pnpm -r test`, turbo, nx, lerna) is not
  offered: each member is, which is quicker and names single tests.
- Otherwise every folder runs its own tests, and pytest at the top leaves those of the projects below out.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from engine.clock import Clock
from engine.execution.runners.toolchains import python
from engine.execution.runners.toolchains.detection import (
    Packages,
    ProjectFolder,
    detect_linters,
    detect_packages,
    detect_test_tools,
)
from engine.execution.runners.toolchains.project_tools import Linter, Toolchain
from engine.execution.runners.toolchains.tool_table import MANIFESTS, PACKAGE_MANAGERS, TEST_RUNNERS, read_text
from engine.frozen import frozen
from engine.git import Git
from engine.git.repository import find
from engine.model import sanitise

MAX_DEPTH = 4
"""Folders below the top of a repository that are looked at."""

MAX_PROJECTS = 200
"""Projects of one repository that are looked at."""

IGNORED_FOLDERS = frozenset(
    {"node_modules", "vendor", "third_party", "test", "tests", "testdata", "__tests__", "spec", "specs", "fixtures",
     "__fixtures__", "fixture", "templates", "target", "dist", "build", "site-packages"}
)  # fmt: skip
"""Folders whose manifests are somebody else's, or what a test works on."""

CHANGELOGS = ("CHANGELOG.md", "CHANGES.md", "HISTORY.md", "NEWS.md", "CHANGELOG.rst", "CHANGES.rst", "HISTORY.rst")
_DELEGATING_SCRIPT = re.compile(
    r"--workspaces\b|(?:^|\s)-ws\b|(?:^|\s)(?:pnpm|bun)\b.*(?:\s-r\b|--recursive|--filter)|\b(?:turbo|nx|lerna|wsrun)\b"
    r"|workspaces (?:foreach|run)"
)


@frozen
class Project:
    """A folder of a repository with a manifest of its own. `path` is "" for the top, else relative to it.

    `tools` run its tests, one a language, the first is the main one; () when it has no tests, cannot run them or
    another project does. `tested_by` is the path of the project that runs them. `lacks` names what its tests need and
    do not find, "" when nothing; `looked` says where it was looked. `changelog` is relative to the top.
    """

    path: str = ""
    name: str = ""
    tools: tuple[Toolchain, ...] = ()
    linters: tuple[Linter, ...] = ()
    packages: tuple[Packages, ...] = ()
    changelog: str = ""
    tested_by: str | None = None
    lacks: str = ""
    looked: tuple[str, ...] = ()

    @property
    def tool(self) -> Toolchain | None:
        """What runs its tests, None when nothing does."""
        return self.tools[0] if self.tools else None

    @property
    def untested(self) -> str:
        """Why nothing runs its tests, in words; "" when something does."""
        if self.tools:
            return ""
        if self.tested_by is not None:
            return f"its tests run with those of {self.tested_by or 'the top folder'}"
        return f"its tests need {self.lacks}" if self.lacks else "it has no tests"

    @property
    def install(self) -> str:
        """The command that installs its packages, "" when none is known."""
        return self.packages[0].install if self.packages else ""

    @property
    def lock(self) -> str:
        """Its lock file, relative to the top, "" when it has none."""
        return self.packages[0].lock if self.packages else ""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Endings of files whose change matters to its tests; () when any may."""
        return tuple(suffix for tool in self.tools for suffix in tool.row.suffixes)

    def within(self, path: str) -> str | None:
        """`path`, relative to the top, as it is in this project's folder; None when it lies elsewhere."""
        if not self.path:
            return path
        return path.removeprefix(f"{self.path}/") if path.startswith(f"{self.path}/") else None

    def tests(self, path: str) -> bool:
        """Whether a change of `path` (relative to the top) can change what its tests say."""
        return self.within(path) is not None and any(tool.takes(path) for tool in self.tools)

    def lints(self, path: str) -> bool:
        """Whether one of its linters reads `path` (relative to the top)."""
        return self.within(path) is not None and any(linter.takes(path) for linter in self.linters)


def project_of(projects: Sequence[Project], path: str) -> Project | None:
    """The innermost of `found` that holds `path`, a file relative to the top of the repository."""
    holding = [project for project in projects if project.within(path) is not None]
    return max(holding, key=lambda project: len(project.path), default=None)


def project_at(folder: Path, workspace: Path | None = None) -> Project:
    """The project in `folder` alone, without a look at git or at the folders below. `workspace` is where the tools are
    installed when `folder` is a worktree."""
    installed = workspace or folder
    return _inspect_folder(ProjectFolder(folder, installed, folder, installed), "", lambda kind: True)


def projects(folder: Path, workspace: Path | None = None, *, git: Git | None = None) -> tuple[Project, ...]:
    """Every project of the repository whose top is `folder`, the top first, then by path; see the top of this module
    for which of them run their tests.

    `workspace` is the operator's repository when `folder` is a worktree of it. Takes some tens of milliseconds, since
    the operator's interpreter is asked whether it has pytest. Where git cannot be asked there is only the top.
    """
    installed = workspace or folder
    tracked, files = _list_files(git or Git(folder))
    tests = _TestFiles(files)
    pytest_by_interpreter: dict[Path, bool] = {}
    every: list[Project] = []
    for path in ["", *_manifest_folders(tracked)]:
        inspected = ProjectFolder(folder / path, installed / path, folder, installed, pytest_by_interpreter)
        if not path or inspected.files(MANIFESTS):
            every.append(_inspect_folder(inspected, path, partial(tests.has, path)))
    divided = _without_member_tests(every)
    return tuple(_without_nested_tests(project, divided, tests) for project in divided)


def all_packages(folder: Path) -> dict[str, tuple[Packages, ...]]:
    """What installs the packages of each folder with a manifest, by its path from the top `folder` of a repository. One
    look at git and at files: quicker than `projects`, for nothing is asked about tests."""
    tracked, _ = _list_files(Git(folder))
    folders = {
        path: ProjectFolder(folder / path, folder / path, folder, folder) for path in ["", *_manifest_folders(tracked)]
    }
    return {path: detect_packages(folder) for path, folder in folders.items()}


def _list_files(git: Git) -> tuple[list[str], list[str]]:
    """The files that git tracks, and those with the ones not yet tracked that no rule ignores; none in a folder
    that is no repository. Raises `Refusal` when git cannot tell: "no project below" would be a guess."""
    if find(git.folder) is None:
        return [], []
    output = git.output("ls-files", "-z", "-t", "--cached", "--others", "--exclude-standard")
    entries = [os.fsdecode(entry) for entry in output.split(b"\0") if entry]
    return [entry[2:] for entry in entries if not entry.startswith("? ")], [entry[2:] for entry in entries]


def _manifest_folders(tracked: Iterable[str]) -> list[str]:
    """The folders below the top that hold a manifest which git tracks, in order."""
    exact = {name for name in MANIFESTS if "*" not in name}
    endings = tuple(name.removeprefix("*") for name in MANIFESTS if "*" in name)
    folders: set[str] = set()
    for path in tracked:
        folder, _, name = path.rpartition("/")
        if folder and (name in exact or name.endswith(endings)) and folder not in folders:
            parts = folder.split("/")
            if len(parts) <= MAX_DEPTH and not IGNORED_FOLDERS.intersection(parts) and sanitise(folder) == folder:
                folders.add(folder)
    return sorted(folders)[:MAX_PROJECTS]


class _TestFiles:
    """Which files of a repository hold tests, by the names that the tools of each language go by."""

    def __init__(self, files: Sequence[str]) -> None:
        self._files = files
        self._matching: dict[str, list[str]] = {}

    def of(self, kind: str) -> list[str] | None:
        """The test files of a language in order, None when names do not tell."""
        rows = [row for row in TEST_RUNNERS if row.kind == kind]
        if not self._files or not rows or not all(row.test_files for row in rows):
            return None
        if kind not in self._matching:
            endings = tuple(suffix for row in rows for suffix in row.suffixes)
            pattern = re.compile("|".join(dict.fromkeys(row.test_files for row in rows)))
            self._matching[kind] = sorted(
                file for file in self._files if file.endswith(endings) and pattern.search(file)
            )
        return self._matching[kind]

    def has(self, path: str, kind: str) -> bool:
        """Whether there are any in the folder `path`; True when names do not tell."""
        files = self.of(kind)
        if files is None or not path:
            return files is None or bool(files)
        begin = bisect_left(files, f"{path}/")
        return begin < len(files) and files[begin].startswith(f"{path}/")


def _inspect_folder(folder: ProjectFolder, path: str, has_tests: Callable[[str], bool]) -> Project:
    """What one folder has, whatever the others have."""
    packages = detect_packages(folder)
    detected = detect_test_tools(folder)
    tools = [tool for tool in detected if has_tests(tool.row.kind)]
    if detected and not tools:
        folder.looked[:] = [f"files that {detected[0].title} treats as tests"]
    linters = detect_linters(folder)
    installs = {package.kind: package.install for package in packages}
    if "python" in {tool.row.kind for tool in tools} | {linter.row.kind for linter in linters}:
        installs["python"] = python.environment_command(folder.workspace)
    kinds = {tool.row.kind for tool in tools}
    lacking = [name for kind, name in folder.missing if kind not in kinds and has_tests(kind)]
    lacking += [
        PACKAGE_FOLDERS[package.manager]
        for package in packages
        if package.kind in kinds - {"python"} and not package.installed
    ]
    changelog = next((name for name in CHANGELOGS if name in folder.names), "")
    return Project(
        path=path,
        name=_project_name(folder),
        tools=tuple(replace(tool, install=installs.get(tool.row.kind, "")) for tool in tools),
        linters=tuple(replace(linter, install=installs.get(linter.row.kind, "")) for linter in linters),
        packages=packages,
        changelog=f"{path}/{changelog}" if path and changelog else changelog,
        lacks=next(iter(lacking), ""),
        looked=tuple(dict.fromkeys(folder.looked)),
    )


PACKAGE_FOLDERS = {row.name: row.package_folders[0] for row in PACKAGE_MANAGERS.values() if row.package_folders}
"""The folder of packages that each manager makes."""


def _project_name(folder: ProjectFolder) -> str:
    manifests = [name for name in ("pyproject.toml", "package.json", "Cargo.toml") if name in folder.names]
    match = folder.says(manifests, r'^\s*"?name"?\s*[=:]\s*"([^"\n]{1,100})"')
    return sanitise(match[1] if match else folder.workspace.name)


def _without_member_tests(projects: Sequence[Project]) -> list[Project]:
    """Each project without the tests that one above it runs; `found` has the top first."""
    done: list[Project] = []
    for project in projects:
        tools, tested_by = project.tools, None
        for above in done:
            inside = above.within(project.path)
            if inside and inside != "":
                runs = {tool.row.kind for tool in above.tools if _runs_tests_of(tool, inside)}
                if any(tool.row.kind in runs for tool in tools):
                    tested_by = above.path
                tools = tuple(tool for tool in tools if tool.row.kind not in runs)
        done.append(replace(project, tools=tools, tested_by=None if tools else tested_by))
    return done


def _runs_tests_of(tool: Toolchain, inside: str) -> bool:
    """Whether a tool runs the tests of the folder `inside` below its own by itself."""
    match tool.row.name:
        case "cargo":
            return bool(tool.words["workspace"])
        case "maven":
            return "<module>" in read_text(tool.folder / "pom.xml")
        case "gradle":
            return not any(
                (tool.folder / inside / name).exists() for name in ("settings.gradle", "settings.gradle.kts")
            )
        case "mix":
            return "apps_path" in read_text(tool.folder / "mix.exs")
        case "dotnet":
            return any(tool.folder.glob("*.sln*"))
        case "jest" | "vitest" | "node:test" | "bun":
            return all(word.startswith("-") or word == "run" for word in tool.words["script"])
        case "pytest":
            return python.is_collected(tool.folder, inside)
    return False


def _without_nested_tests(project: Project, every: Sequence[Project], tests: _TestFiles) -> Project:
    """A project without the tests of those below it, which run them themselves."""
    below = [(other, inside) for other in every if (inside := project.within(other.path)) and other is not project]
    tools: list[Toolchain] = []
    for tool in project.tools:
        same = [inside for other, inside in below if any(theirs.row.kind == tool.row.kind for theirs in other.tools)]
        if tool.row.name == "script" and same and _DELEGATING_SCRIPT.search(" ".join(tool.words["script"])):
            continue
        if tool.row.kind == "python" and same:
            others = tuple(f"{project.path}/{inside}/" if project.path else f"{inside}/" for inside in same)
            mine = [file for file in tests.of("python") or () if project.within(file) and not file.startswith(others)]
            if not mine:
                continue
            tools.append(replace(tool, below=tuple(same)))
            continue
        tools.append(tool)
    return replace(project, tools=tuple(tools), lacks=project.lacks if tools or not project.tools else "")


log = logging.getLogger(__name__)

REFRESH_SECONDS = 60.0
"""A project's tools are looked for again after so long."""

QUICK_LOOK_SECONDS = 0.25
"""A look for projects that took less than so long may be repeated while a cycle waits."""


class ProjectCache:
    """Remembers the projects of workspaces: to look for them means to read many files, and to start an interpreter.

    What was found is given at once and, after a minute, looked for again in the background. Where something was lacking
    and the look is quick, every question looks again, so that a tool just installed is seen.
    """

    def __init__(self, clock: Clock, find: Callable[[Path], tuple[Project, ...]]) -> None:
        self._clock = clock
        self._find = find
        self._lock = threading.Lock()
        self._cache: dict[str, tuple[float, float, tuple[Project, ...]]] = {}
        self._looking: dict[str, threading.Thread] = {}

    def of(self, workspace: str) -> tuple[Project, ...]:
        """The projects of `workspace`, the top first. Raises what `find` raises when nothing is known yet."""
        with self._lock:
            if workspace not in self._cache:
                cached = None
            else:
                asked_at, took, cached = self._cache[workspace]
                lacking = not any(project.tools for project in cached) or any(project.lacks for project in cached)
                if lacking and took < QUICK_LOOK_SECONDS:
                    cached = None
                elif self._clock.monotonic() - asked_at >= REFRESH_SECONDS and workspace not in self._looking:
                    thread = threading.Thread(target=self._refresh, args=(workspace,), name="projects", daemon=True)
                    self._looking[workspace] = thread
                    thread.start()
        return self._look(workspace) if cached is None else cached

    def settle(self, timeout: float | None = None) -> None:
        """Wait until every background look is over, each at most `timeout` seconds."""
        with self._lock:
            looking = list(self._looking.values())
        for thread in looking:
            thread.join(timeout)

    def _look(self, workspace: str) -> tuple[Project, ...]:
        began = time.perf_counter()
        projects = self._find(Path(workspace))
        with self._lock:
            self._cache[workspace] = (self._clock.monotonic(), time.perf_counter() - began, projects)
        return projects

    def _refresh(self, workspace: str) -> None:
        try:
            self._look(workspace)
        except Exception:  # forgotten, so that the next question asks itself and tells the error
            log.exception("looking for the projects of %s failed", workspace)
            with self._lock:
                self._cache.pop(workspace, None)
        finally:
            with self._lock:
                del self._looking[workspace]
