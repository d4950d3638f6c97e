"""Detects the package managers, test runners and linters of one folder, by the rows of `tools.toml`.

It runs no program of the folder.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path

from engine.execution.runners.toolchains import python_projects
from engine.execution.runners.toolchains.project_tools import Linter, Placeholders, Toolchain, fill_command
from engine.execution.runners.toolchains.python_projects import ON_PATH
from engine.execution.runners.toolchains.tool_table import (
    FALLBACK,
    LINTERS,
    PACKAGE_MANAGERS,
    TEST_RUNNERS,
    LinterRow,
    PackageManagerRow,
    TestRunnerRow,
    ToolRow,
    folders_up_to,
    read_text,
)
from engine.execution.sandbox.host_paths import which
from engine.frozen import frozen


@dataclass
class ProjectFolder:
    """One folder in which tools are searched."""

    folder: Path
    workspace: Path
    """The same folder in the operator's tree. It is different from `folder` if that is in a worktree."""
    root: Path
    """The top of the files."""
    top: Path
    """The top of the operator's repository, in which the tools are installed."""
    pytest_by_interpreter: dict[Path, bool] = field(default_factory=dict)
    """Whether each interpreter has pytest. The folders of one search share it."""
    searched: list[str] = field(default_factory=list)
    """The places where tools were searched, in words."""
    missing: list[tuple[str, str]] = field(default_factory=list)
    """(language, name) of each tool that was not found."""
    _texts: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of_operator(cls, folder: Path, top: Path) -> ProjectFolder:
        """A folder of the operator's own tree."""
        return cls(folder, folder, top, top)

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of files and links in the folder."""
        try:
            with os.scandir(self.folder) as entries:
                return frozenset(entry.name for entry in entries if not entry.is_dir(follow_symlinks=False))
        except OSError:
            return frozenset()

    def with_folders_above(self) -> Iterator[ProjectFolder]:
        """This folder and those above it, up to the top of the files."""
        yield self
        for folder in folders_up_to(self.folder, self.root)[1:]:
            workspace = self.top / folder.relative_to(self.root)
            yield ProjectFolder(folder, workspace, self.root, self.top, self.pytest_by_interpreter)

    def find_files(self, patterns: Sequence[str]) -> list[str]:
        """The existing files that match `patterns`, in which `*` matches anything but `/`."""
        names: list[str] = []
        for pattern in patterns:
            if "/" in pattern:
                names += [str(file.relative_to(self.folder)) for file in sorted(self.folder.glob(pattern))]
            elif "*" in pattern:
                names += sorted(name for name in self.names if fnmatch(name, pattern))
            elif pattern in self.names:
                names.append(pattern)
        return names

    def read_file(self, name: str) -> str:
        """The text of a file of the folder; "" if it cannot be read."""
        if name not in self._texts:
            self._texts[name] = read_text(self.folder / name)
        return self._texts[name]

    def search_files(self, files: Sequence[str], pattern: str) -> re.Match[str] | None:
        """The first match of `pattern` in `files`, or None."""
        matches = (re.search(pattern, self.read_file(name), re.MULTILINE) for name in files[:20])
        return next((match for match in matches if match is not None), None)

    def shows(self, evidence: str) -> bool:
        """Whether the folder has the file that `evidence` names. `evidence` is `name`, or `name:regular expression`,
        which must then match the text of the file."""
        name, _, pattern = evidence.partition(":")
        files = self.find_files((name,))
        return bool(files) and (not pattern or self.search_files(files, pattern) is not None)

    @cached_property
    def interpreters(self) -> list[tuple[str, Path]]:
        interpreters = python_projects.find_interpreters(self.workspace, self.top)
        if self.folder != self.workspace:  # a worktree that was prepared has an environment of its own
            own = self.folder / ".venv" / "bin" / "python"
            interpreters = [*([(".venv of the worktree", own)] if own.exists() else []), *interpreters]
        return interpreters

    @cached_property
    def scripts(self) -> dict[str, str]:
        """The scripts of package.json; {} if it cannot be read, because npm will report that."""
        try:
            scripts = json.loads(self.read_file("package.json")).get("scripts", {})
            return {str(name): str(script) for name, script in scripts.items()}
        except (ValueError, AttributeError):
            return {}

    def has_pytest(self, where: str, interpreter: Path) -> bool:
        if interpreter not in self.pytest_by_interpreter:
            self.pytest_by_interpreter[interpreter] = python_projects.has_pytest(
                interpreter, operators=where.endswith(ON_PATH)
            )
        return self.pytest_by_interpreter[interpreter]

    def find_program(self, name: str, *, own: Iterable[Path] = ()) -> str | None:
        """A program in one of the folders `own`, or else on the operator's PATH."""
        return first_executable(own, name) or which(name, project=self.top)


def first_executable(folders: Iterable[Path], name: str) -> str | None:
    """The first program with this name in `folders`; None if there is none."""
    return next((str(folder / name) for folder in folders if os.access(folder / name, os.X_OK)), None)


# -- Package managers ------------------------------------------------------------------------------------------------


@frozen
class PackageSetup:
    """The package manager of a project and its commands. Paths are relative to the top of the repository."""

    manager: str
    kind: str
    """The language."""
    folder: str
    """The folder in which the commands run."""
    manifest: str
    lock: str
    """The lock file; "" for none."""
    commands: tuple[tuple[str, ...], ...]
    """The commands that install the packages, in order."""
    hosts: tuple[str, ...]
    """The hosts that the commands need."""
    installed: bool = True
    """False if the packages are certainly not installed."""

    @property
    def install(self) -> str:
        """The command as the operator would type it in `folder`."""
        return " && ".join(shlex.join(command) for command in self.commands)


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
    patterned = [row for row in rows if row.manifest_pattern]
    named = [row for row in patterned if folder.search_files(folder.find_files(row.manifests), row.manifest_pattern)]
    if named and named[0].name == "uv" and "[tool.uv" not in folder.read_file("pyproject.toml") and _has_pip(folder):
        named = named[1:]  # the manifest has dependency groups, but pip made the environment
    return next(iter([*named, *(row for row in rows if not row.manifest_pattern)]), rows[0])


def _make_setup(folder: ProjectFolder, row: PackageManagerRow, lock: str) -> PackageSetup:
    path = "" if folder.folder == folder.root else folder.folder.relative_to(folder.root).as_posix()
    manifest = next(iter(folder.find_files(row.manifests)), "")

    def from_top(name: str) -> str:
        return f"{path}/{name}" if path and name else name

    commands = (
        _pip_commands(folder, "pytest", *_pip_needs(folder))
        if row.name == "pip"
        else _install_commands(folder, row, lock)
    )
    return PackageSetup(
        row.name, row.kind, path, from_top(manifest), from_top(lock), commands, row.hosts, _is_installed(folder, row)
    )


def _install_commands(folder: ProjectFolder, row: PackageManagerRow, lock: str) -> tuple[tuple[str, ...], ...]:
    words = {
        "where": tuple(python_projects.pytest_group_option(folder.folder).split()) if row.name == "uv" else (),
        "wrapper": (f"./{row.wrapper}" if row.wrapper in folder.names else row.program,),
    }
    if row.name == "yarn" and lock and ".yarnrc.yml" in folder.names:  # yarn 2 and later name it anew
        return (("yarn", "install", "--immutable"),)
    command = fill_command(row.install_command if lock else row.unlocked_install_command, words)
    return (command,) if command else ()


def _own_pip(folder: ProjectFolder) -> str:
    """The folder of the project's own environment with pip; "" for none."""
    names = python_projects.ENVIRONMENTS
    return next((name for name in names if (folder.workspace / name / "bin" / "pip").exists()), "")


def _has_pip(folder: ProjectFolder) -> bool:
    """Whether the project has an environment that `python3 -m venv` made."""
    own = _own_pip(folder)
    return bool(own) and "uv = " not in read_text(folder.workspace / own / "pyvenv.cfg")


def _pip_commands(folder: ProjectFolder, *packages: str) -> tuple[tuple[str, ...], ...]:
    own = _own_pip(folder)
    install = (f"{own or '.venv'}/bin/pip", "install", *packages)
    return (install,) if own else (("python3", "-m", "venv", ".venv"), install)


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
    commands = ((*add, tool),) if add else _pip_commands(files, tool)
    return " && ".join(shlex.join(command) for command in commands)


def _is_installed(folder: ProjectFolder, row: PackageManagerRow) -> bool:
    if row.kind == "python":
        return any(not where.endswith(ON_PATH) for where, _ in folder.interpreters)
    if row.kind == "node" and not re.search(
        r'"(?:dev|optional)?[dD]ependencies"\s*:\s*\{\s*"', folder.read_file("package.json")
    ):
        return True
    return not row.package_folders or any((folder.workspace / name).exists() for name in row.package_folders)


# -- Test runners and linters ----------------------------------------------------------------------------------------


def _find_tool(folder: ProjectFolder, row: ToolRow, files: Sequence[str]) -> Placeholders | None:
    """The placeholders of a tool's commands; None if the folder does not have the tool. `files` are the manifests of a
    test runner, or the files that configure a linter."""
    match row.detected_by:
        case "module":
            return _find_pytest(folder, row)
        case "unittest":
            return _find_unittest(folder, files)
        case "script":
            return _find_script(folder, row)
        case "lint script":
            return _script_words(_node_manager(folder)) if "lint" in folder.scripts else None
        case "wrapper":
            return _find_wrapper(folder, row) or _find_program(folder, row, files)
        case "bundle" if row.program in folder.read_file("Gemfile") and folder.find_program("bundle"):
            return {"program": ("bundle", "exec", row.program)}
        case _:
            return _find_program(folder, row, files)


def _find_pytest(folder: ProjectFolder, row: ToolRow) -> Placeholders | None:
    """The first interpreter that has pytest."""
    for where, interpreter in folder.interpreters:
        folder.searched.append(f"{row.program} in {where}")
        if folder.has_pytest(where, interpreter):
            return {"python": (str(interpreter),)}
    folder.missing.append((row.kind, "pytest"))
    return None


def _environment_without_tool(folder: ProjectFolder, words: Placeholders) -> str:
    """The project's own environment where the operator's interpreter runs the tests instead, "" for none."""
    if "python" not in words:
        return ""
    own = [where for where, _ in folder.interpreters if not where.endswith(ON_PATH)]
    used = next(where for where, interpreter in folder.interpreters if str(interpreter) == words["python"][0])
    return own[0] if own and used.endswith(ON_PATH) else ""


def _find_wrapper(folder: ProjectFolder, row: ToolRow) -> Placeholders | None:
    """The wrapper script of Gradle or Maven. It runs in the sandbox, like every program of the project."""
    for above in folders_up_to(folder.workspace, folder.top):
        if os.access(above / row.wrapper, os.X_OK):
            path = os.path.relpath(above / row.wrapper, folder.workspace)
            return {"program": (path.replace(row.wrapper, f"./{row.wrapper}", 1),)}
    return None


def _find_program(folder: ProjectFolder, row: ToolRow, files: Sequence[str]) -> Placeholders | None:
    """A program from the packages of the project, or else from the operator's PATH. A linter of the operator is used
    only if the project is configured for it, and never for Node."""
    own = _program_folders(folder, row)
    is_own = row.detected_by == "program" and (row.kind == "node" or not files)
    program = first_executable(own, row.program) if is_own else folder.find_program(row.program, own=own)
    if isinstance(row, TestRunnerRow):
        folder.searched.append(f"{row.program}{ON_PATH}")
        folder.missing += [] if program else [(row.kind, row.program)]
    if program is None:
        return None
    target = folder.search_files(files, row.manifest_pattern) if row.detected_by == "target" else None
    return {"program": (program,), **({"target": (target["target"],)} if target else {})}


def _find_unittest(folder: ProjectFolder, files: Sequence[str]) -> Placeholders | None:
    """The interpreter for unittest; None if something shows that the project uses pytest."""
    settings = folder.find_files(("pyproject.toml", "setup.cfg", "tox.ini", "Pipfile", "requirements*.txt"))
    wants = folder.search_files(settings, "pytest") or folder.search_files(files, r"^\s*(?:import|from) pytest\b")
    if wants or not folder.interpreters:
        return None
    start = next((name for name in ("tests", "test") if any(file.startswith(f"{name}/") for file in files)), ".")
    inside = start != "." and (folder.folder / start / "__init__.py").is_file()
    return {"python": (str(folder.interpreters[0][1]),), "start": ("." if inside else start,)}


def _program_folders(folder: ProjectFolder, row: ToolRow) -> list[Path]:
    """The folders with the programs of the project's own packages."""
    if row.kind == "node":
        return [above / "node_modules" / ".bin" for above in folders_up_to(folder.workspace, folder.top)]
    if row.kind == "php":
        return [folder.workspace / "vendor" / "bin"]
    homes = [(where, interpreter.parent) for where, interpreter in folder.interpreters if row.kind == "python"]
    if isinstance(row, LinterRow):
        homes = [pair for pair in homes if not pair[0].endswith(ON_PATH) and (pair[1].parent / "pyvenv.cfg").exists()]
    return [home for _, home in homes]


def _find_script(folder: ProjectFolder, row: ToolRow) -> Placeholders | None:
    """The script `test` of package.json, if it starts the runner of this row and nothing else. A row without a program
    accepts any script, except that of `npm init`, which runs no tests."""
    script = folder.scripts.get("test", "")
    if not script or "no test specified" in script:
        folder.searched.append("a test script in package.json")
        return None
    rest = [script]
    if begin := row.program.split():
        try:
            words = shlex.split(script)
        except ValueError:
            return None
        if words[: len(begin)] != begin or any(operator in script for operator in ("&&", "||", ";", "|")):
            return None
        rest = words[len(begin) :]
    manager = _node_manager(folder)
    if not folder.find_program(manager):
        folder.searched.append(f"{manager}{ON_PATH}")
        folder.missing.append((row.kind, manager))
        return None
    return {**_script_words(manager), "script": tuple(rest)}


def _node_manager(folder: ProjectFolder) -> str:
    """The package manager of Node: npm, pnpm, yarn or bun. The lock file of the folder or of one above it decides."""
    return next((package.manager for package in detect_packages(folder) if package.kind == "node"), "npm")


def _script_words(manager: str) -> Placeholders:
    run = {"npm": ("npm", "run", "--silent"), "pnpm": ("pnpm", "--silent", "run")}.get(manager, (manager, "run"))
    return {"run": run, "--": ("--",) if manager == "npm" else ()}


def detect_test_tools(folder: ProjectFolder) -> tuple[Toolchain, ...]:
    """One tool for each language of the folder, in the order of the table. A fallback such as make is used only if
    there is no other tool."""
    tools: dict[str, Toolchain] = {}
    for row in TEST_RUNNERS:
        files = [] if row.kind in tools or (row.kind == FALLBACK and tools) else folder.find_files(row.manifests)
        if not files:
            continue
        if row.manifest_pattern and not folder.search_files(files, row.manifest_pattern):
            if row.kind == FALLBACK:
                folder.searched.append(f"a `test` or `check` target in the {files[0]}")
            continue
        words = _find_tool(folder, row, files)
        if words is None:
            continue
        if row.kind == "rust":
            words["workspace"] = ("--workspace",) if folder.search_files(files, r"^\[workspace\]") else ()
        title = f"{row.program} {words['target'][0]}" if "target" in words else row.title or f"{words['run'][0]} test"
        tools[row.kind] = Toolchain(
            row=row,
            folder=folder.folder,
            workspace=folder.workspace,
            top=folder.top,
            title=title,
            environment_without_tool=_environment_without_tool(folder, words),
            placeholders=words,
        )
    return tuple(tools.values())


def detect_linters(folder: ProjectFolder) -> tuple[Linter, ...]:
    """The linters and type checkers that the project uses and that are installed, one for each group. A lint target of
    a Makefile is used only if there is no other linter."""
    linters: list[Linter] = []
    python_here = bool(folder.find_files(("*.py", "pyproject.toml", "setup.py", "requirements.txt", "tests/*.py")))
    chosen = {row.name for row in LINTERS if row.runs_unconfigured and _is_configured(folder, row)}
    groups: set[tuple[str, str]] = set()
    for row in LINTERS:
        is_taken = bool(row.group) and (row.kind, row.group) in groups
        if is_taken or (row.kind == FALLBACK and linters) or (row.kind == "python" and not python_here):
            continue
        configured = _is_configured(folder, row)
        if not configured and not (row.runs_unconfigured and not chosen):
            continue
        words = _find_tool(folder, row, ["configured"] if configured else [])
        if words is not None:
            groups.add((row.kind, row.group))
            words |= _find_formatter(folder, row, words)
            linters.append(Linter(row=row, folder=folder.folder, workspace=folder.workspace, placeholders=words))
    return tuple(linters)


def _is_configured(folder: ProjectFolder, row: LinterRow) -> bool:
    """Whether a file in the folder configures the linter. If the linter uses parent settings, the folders above are
    searched, too."""
    folders = folder.with_folders_above() if row.uses_parent_settings else [folder]
    return any(here.shows(evidence) for here in folders for evidence in row.configured)


def _find_formatter(folder: ProjectFolder, row: LinterRow, words: Placeholders) -> Placeholders:
    """The placeholders of a formatter. For Node this is prettier or the script `format`. For Python it is black if the
    project is configured for it, else ruff if the project is linted with ruff."""
    if row.kind == "node":
        prettier = first_executable(_program_folders(folder, row), "prettier")
        if prettier:
            return {"prettier": (prettier,)}
        return {"format": ()} if "format" in folder.scripts else {}
    if row.kind != "python":
        return {}
    if folder.search_files(folder.find_files(("pyproject.toml",)), r"^\[tool\.black\b"):
        black = folder.find_program("black", own=_program_folders(folder, row))
        if black:
            return {"formatter": (black, "--quiet")}
    return {"formatter": (*words["program"], "format", "--force-exclude")} if row.name == "ruff" else {}
