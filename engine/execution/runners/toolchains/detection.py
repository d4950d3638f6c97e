"""Detects the tools of one folder, by the rows of `tools.toml`: its test runners, linters and package managers.

`projects` does that for each folder with a manifest. No program of the folder is run.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

from engine.execution.runners.toolchains import (
    FALLBACK,
    LINTERS,
    PACKAGE_MANAGERS,
    TEST_RUNNERS,
    LinterRow,
    PackageManagerRow,
    TestRunnerRow,
    ToolRow,
    list_folders_up_to,
    python_projects,
    read_text,
)
from engine.execution.runners.toolchains.project_folder import ProjectFolder, find_executable
from engine.execution.runners.toolchains.project_tools import Linter, Placeholders, Toolchain, fill_command
from engine.execution.runners.toolchains.python_projects import ON_PATH
from engine.execution.sandbox.host_paths import which
from engine.frozen import frozen, group_pairs

_NODE_DEPENDENCY = re.compile(r'"(?:dev|optional)?[dD]ependencies"\s*:\s*\{\s*"')
"""Matches the first dependency in a package.json."""

_PYTEST_REQUIREMENT = r"""["']pytest\b|^pytest\s*="""
"""Matches pytest among the requirements of a project, but not `[tool.pytest.ini_options]`, which does not install
it."""


@frozen
class DetectedTests:
    """The tools for the tests of a folder."""

    tools: tuple[Toolchain, ...]
    """One for each language, in the order of the table."""
    searched_places: tuple[str, ...]
    """The places where tools were searched, in words."""
    missing: tuple[tuple[str, str], ...]
    """(language, name) of each tool that was not found."""


@frozen
class _Search:
    """The search for one test runner."""

    placeholders: Placeholders | None = None
    """Those of its commands; None if the folder does not have or use it."""
    searched_places: tuple[str, ...] = ()
    """The places where it was searched, in words."""
    missing: str = ""
    """The name of the program that was not found; "" if none is missing."""


def detect_test_tools(folder: ProjectFolder) -> DetectedTests:
    """The test tools of a folder. A fallback such as make is used only if there is no other tool."""
    tools: dict[str, Toolchain] = {}
    searched: list[str] = []
    missing: list[tuple[str, str]] = []
    for row in TEST_RUNNERS:
        if row.language in tools or (row.language == FALLBACK and tools):
            continue
        search = _search_runner(folder, row)
        searched += search.searched_places
        if search.missing:
            missing.append((row.language, search.missing))
        if search.placeholders is not None:
            tools[row.language] = _make_toolchain(folder, row, search.placeholders)
    return DetectedTests(tuple(tools.values()), tuple(searched), tuple(missing))


def _make_toolchain(folder: ProjectFolder, row: TestRunnerRow, placeholders: Placeholders) -> Toolchain:
    """The tool of a test runner that was found with these placeholders."""
    placeholders["workspace"] = ("--workspace",) if row.member_sign and folder.shows(row.member_sign) else ()
    environments = {str(interpreter.program): interpreter.where for interpreter in folder.environments}
    is_operators = "python" in placeholders and placeholders["python"][0] not in environments
    title = row.title or (f"{placeholders['run'][0]} test" if "run" in placeholders else row.program)
    if "target" in placeholders:
        title = f"{row.program} {placeholders['target'][0]}"
    return Toolchain(
        row=row,
        folder=folder.folder,
        workspace=folder.workspace,
        title=title,
        environment_without_tool=next(iter(environments.values()), "") if is_operators else "",
        placeholders=placeholders,
    )


def _search_runner(folder: ProjectFolder, row: TestRunnerRow) -> _Search:
    """Search a test runner, if the folder uses it by its manifests."""
    files = folder.find_files(row.manifests)
    if not files:
        return _Search()
    if row.manifest_pattern and folder.search_files(files, row.manifest_pattern) is None:
        is_fallback = row.language == FALLBACK
        return _Search(searched_places=(f"a `test` or `check` target in the {files[0]}",) if is_fallback else ())
    match row.detected_by:
        case "module":
            return _search_pytest(folder)
        case "unittest":
            return _Search(_find_unittest(folder, files))
        case "script":
            return _search_script(folder, row)
        case "wrapper" if wrapper := _find_wrapper(folder, row):
            return _Search({"program": (wrapper,)})
        case "bundle" if _is_bundled(folder, row):
            return _Search({"program": ("bundle", "exec", row.program)})
    searched = (f"{row.program}{ON_PATH}",)
    program = folder.find_program(row.program, own=_list_program_folders(folder, row))
    if program is None:
        return _Search(searched_places=searched, missing=row.program)
    placeholders: Placeholders = {"program": (program,)}
    if row.detected_by == "target" and (target := folder.search_files(files, row.manifest_pattern)):
        placeholders["target"] = (target["target"],)
    return _Search(placeholders, searched)


def _search_pytest(folder: ProjectFolder) -> _Search:
    """Search the first interpreter that has pytest."""
    searched: list[str] = []
    for interpreter in folder.interpreters:
        searched.append(f"pytest in {interpreter.where}")
        if folder.has_pytest(interpreter):
            return _Search({"python": (str(interpreter.program),)}, tuple(searched))
    return _Search(searched_places=tuple(searched), missing="pytest")


def _find_unittest(folder: ProjectFolder, files: Sequence[str]) -> Placeholders | None:
    """The interpreter for unittest; None if something shows that the project uses pytest."""
    settings = folder.find_files(("pyproject.toml", "setup.cfg", "tox.ini", "Pipfile", "requirements*.txt"))
    uses_pytest = folder.search_files(settings, "pytest") or folder.search_files(files, r"^\s*(?:import|from) pytest\b")
    if uses_pytest or not folder.interpreters:
        return None
    start = next((name for name in ("tests", "test") if any(file.startswith(f"{name}/") for file in files)), ".")
    is_package = start != "." and (folder.folder / start / "__init__.py").is_file()
    return {"python": (str(folder.interpreters[0].program),), "start": ("." if is_package else start,)}


def _search_script(folder: ProjectFolder, row: ToolRow) -> _Search:
    """Search the script `test` of package.json. It must start the runner of this row and nothing else. A row without a
    program accepts any script, except that of `npm init`, which runs no tests."""
    script = folder.scripts.get("test", "")
    if not script or "no test specified" in script:
        return _Search(searched_places=("a test script in package.json",))
    arguments = [script]
    if runner_words := row.program.split():
        try:
            script_words = shlex.split(script)
        except ValueError:
            return _Search()
        is_compound = any(operator in script for operator in ("&&", "||", ";", "|"))
        if is_compound or script_words[: len(runner_words)] != runner_words:
            return _Search()
        arguments = script_words[len(runner_words) :]
    manager = _choose_node_manager(folder)
    if not folder.find_program(manager):
        return _Search(searched_places=(f"{manager}{ON_PATH}",), missing=manager)
    return _Search({**_make_script_placeholders(manager), "script": tuple(arguments)})


def _choose_node_manager(folder: ProjectFolder) -> str:
    """The package manager of Node: npm, pnpm, yarn or bun. The lock file of the folder or of one above it decides."""
    return next((package.manager for package in detect_packages(folder) if package.language == "node"), "npm")


def _make_script_placeholders(manager: str) -> Placeholders:
    """The words by which a package manager of Node runs a script."""
    run = {"npm": ("npm", "run", "--silent"), "pnpm": ("pnpm", "--silent", "run")}.get(manager, (manager, "run"))
    return {"run": run, "--": ("--",) if manager == "npm" else ()}


def _find_wrapper(folder: ProjectFolder, row: ToolRow) -> str:
    """The wrapper script of Gradle or Maven, "" for none. It runs in the sandbox, like every program of the project."""
    for folder_above in list_folders_up_to(folder.workspace, folder.top):
        if os.access(folder_above / row.wrapper, os.X_OK):
            path = os.path.relpath(folder_above / row.wrapper, folder.workspace)
            return path.replace(row.wrapper, f"./{row.wrapper}", 1)
    return ""


def _is_bundled(folder: ProjectFolder, row: ToolRow) -> bool:
    """Whether the folder's bundle has a tool of Ruby."""
    return row.program in folder.read_file("Gemfile") and folder.find_program("bundle") is not None


def _list_program_folders(folder: ProjectFolder, row: ToolRow) -> list[Path]:
    """The folders with the programs of the project's own packages."""
    match row.language:
        case "node":
            return [above / "node_modules" / ".bin" for above in list_folders_up_to(folder.workspace, folder.top)]
        case "php":
            return [folder.workspace / "vendor" / "bin"]
        case "python" if isinstance(row, LinterRow):
            homes = [interpreter.home for interpreter in folder.environments]
            return [home / "bin" for home in homes if (home / "pyvenv.cfg").exists()]
        case "python":
            return [interpreter.program.parent for interpreter in folder.interpreters]
    return []


def detect_linters(folder: ProjectFolder) -> tuple[Linter, ...]:
    """The linters and type checkers that the project uses and that are installed, one for each group. A lint target of
    a Makefile is used only if there is no other linter."""
    linters: list[Linter] = []
    has_python = bool(folder.find_files(("*.py", "pyproject.toml", "setup.py", "requirements.txt", "tests/*.py")))
    is_one_configured = any(row.runs_unconfigured and _is_configured(folder, row) for row in LINTERS)
    for row in LINTERS:
        if _is_superseded(row, linters) or (row.language == "python" and not has_python):
            continue
        is_configured = _is_configured(folder, row)
        if not is_configured and (is_one_configured or not row.runs_unconfigured):
            continue
        placeholders = _find_linter(folder, row, is_configured=is_configured)
        if placeholders is not None:
            placeholders |= _find_formatter(folder, row, placeholders)
            linters.append(Linter(row=row, folder=folder.folder, workspace=folder.workspace, placeholders=placeholders))
    return tuple(linters)


def _is_superseded(row: LinterRow, linters: Sequence[Linter]) -> bool:
    """Whether one of `linters` is used instead of this one."""
    if row.language == FALLBACK:
        return bool(linters)
    return bool(row.group) and any((used.row.language, used.row.group) == (row.language, row.group) for used in linters)


def _find_linter(folder: ProjectFolder, row: LinterRow, *, is_configured: bool) -> Placeholders | None:
    """The placeholders of a linter's commands; None if the folder does not have it. One of the operator is used only if
    the project is configured for it, and never for Node."""
    if row.detected_by == "lint script":
        return _make_script_placeholders(_choose_node_manager(folder)) if "lint" in folder.scripts else None
    if row.detected_by == "bundle" and _is_bundled(folder, row):
        return {"program": ("bundle", "exec", row.program)}
    folders = _list_program_folders(folder, row)
    if is_configured and row.language != "node":
        program = folder.find_program(row.program, own=folders)
    else:
        program = find_executable(folders, row.program)
    return None if program is None else {"program": (program,)}


def _is_configured(folder: ProjectFolder, row: LinterRow) -> bool:
    """Whether a file in the folder configures the linter. If the linter uses parent settings, the folders above are
    searched, too."""
    folders = folder.walk_upwards() if row.uses_parent_settings else [folder]
    return any(candidate.shows(evidence) for candidate in folders for evidence in row.configured)


def _find_formatter(folder: ProjectFolder, row: LinterRow, placeholders: Placeholders) -> Placeholders:
    """The placeholders of a formatter. For Node this is prettier or the script `format`. For Python it is black if the
    project is configured for it, else ruff if the project is linted with ruff."""
    if row.language == "node":
        prettier = find_executable(_list_program_folders(folder, row), "prettier")
        if prettier:
            return {"prettier": (prettier,)}
        return {"format": ()} if "format" in folder.scripts else {}
    if row.language != "python":
        return {}
    if folder.search_files(folder.find_files(("pyproject.toml",)), r"^\[tool\.black\b"):
        black = folder.find_program("black", own=_list_program_folders(folder, row))
        if black:
            return {"formatter": (black, "--quiet")}
    return {"formatter": (*placeholders["program"], "format", "--force-exclude")} if row.name == "ruff" else {}


@frozen
class PackageSetup:
    """The package manager of a project and its commands. Paths are relative to the top of the repository."""

    manager: str
    language: str
    folder: str
    """The folder in which the commands run."""
    lock: str
    """The lock file; "" for none."""
    commands: tuple[tuple[str, ...], ...]
    """The commands that install the packages, in order."""
    hosts: tuple[str, ...]
    """The hosts that the commands need."""
    may_be_installed: bool = True
    """False if the packages are certainly not installed."""
    environment: str = ""
    """The environment of Python into which pip installs; "" for another manager."""

    @property
    def install_line(self) -> str:
        """The commands as the operator would type them in `folder`."""
        return join_commands(self.commands)


def find_missing_program(commands: Iterable[Sequence[str]], top: Path) -> str:
    """The first program of these commands that is not installed; "" if all are. `top` is the top of the repository.
    Programs with a path belong to the project, and a command before them may make them."""
    programs = (command[0] for command in commands if "/" not in command[0])
    return next((program for program in programs if which(program, project=top) is None), "")


def join_commands(commands: Iterable[Sequence[str]]) -> str:
    """The commands as one line for a shell."""
    return " && ".join(map(shlex.join, commands))


def detect_packages(folder: ProjectFolder) -> tuple[PackageSetup, ...]:
    """The package setup of each language of a folder. The nearest lock file that applies to it decides, or else its
    manifest."""
    used_rows = (row for row in PACKAGE_MANAGERS.values() if folder.find_files(row.manifests))
    rows_by_language = group_pairs((row.language, row) for row in used_rows)
    return tuple(_choose_manager(folder, rows) for rows in rows_by_language.values())


def _choose_manager(folder: ProjectFolder, rows: Sequence[PackageManagerRow]) -> PackageSetup:
    """The setup by the lock file of the folder. Without one, that of the nearest folder above whose workspace it is in,
    or else the one by its manifest."""
    if setup := _find_locked_setup(folder, rows):
        return setup
    for above in islice(folder.walk_upwards(), 1, None):
        if workspace_rows := [row for row in rows if above.shows(row.workspace_sign)]:
            return _find_locked_setup(above, workspace_rows) or _make_setup(
                above, _choose_named_manager(above, workspace_rows), ""
            )
    return _make_setup(folder, _choose_named_manager(folder, rows), "")


def _find_locked_setup(folder: ProjectFolder, rows: Sequence[PackageManagerRow]) -> PackageSetup | None:
    """The setup of the first manager whose lock file is in the folder."""
    for row in rows:
        if lock_files := folder.find_files(row.lock_files):
            return _make_setup(folder, row, lock_files[0])
    return None


def _choose_named_manager(folder: ProjectFolder, rows: Sequence[PackageManagerRow]) -> PackageManagerRow:
    """The manager that the manifest names, or else the usual one."""
    for row in rows:
        if not row.manifest_pattern:
            continue
        is_named = folder.search_files(folder.find_files(row.manifests), row.manifest_pattern) is not None
        if is_named and not (row.name == "uv" and _is_pip_used_instead(folder)):
            return row
    return next((row for row in rows if not row.manifest_pattern), rows[0])


def _make_setup(folder: ProjectFolder, row: PackageManagerRow, lock: str) -> PackageSetup:
    """The setup of a folder with this manager. `lock` is its lock file, "" for none."""
    path = "" if folder.folder == folder.root else folder.folder.relative_to(folder.root).as_posix()
    return PackageSetup(
        manager=row.name,
        language=row.language,
        folder=path,
        lock=f"{path}/{lock}" if path and lock else lock,
        commands=_make_install_commands(folder, row, lock),
        hosts=row.hosts,
        may_be_installed=_may_be_installed(folder, row),
        environment=os.path.relpath(_choose_pip_environment(folder), folder.top) if row.name == "pip" else "",
    )


def _make_install_commands(folder: ProjectFolder, row: PackageManagerRow, lock: str) -> tuple[tuple[str, ...], ...]:
    """The commands by which a manager installs the packages of a folder."""
    if row.name == "pip":
        return _make_pip_commands(folder, "pytest", *_make_pip_arguments(folder))
    if row.name == "yarn" and lock and ".yarnrc.yml" in folder.file_names:  # yarn 2 and later name it anew
        return (("yarn", "install", "--immutable"),)
    placeholders = {
        "where": tuple(python_projects.find_pytest_group_option(folder.folder).split()) if row.name == "uv" else (),
        "wrapper": (f"./{row.wrapper}" if row.wrapper in folder.file_names else row.program,),
    }
    command = fill_command(row.install_command if lock else row.unlocked_install_command, placeholders)
    return (command,) if command else ()


def _is_pip_used_instead(folder: ProjectFolder) -> bool:
    """Whether a manifest has dependency groups, which both know, and pip made the environment of the project, or uv
    is not installed."""
    if "[tool.uv" in folder.read_file("pyproject.toml"):
        return False
    environment = _choose_pip_environment(folder)
    if _is_made_by_uv(environment):
        return False
    return (environment / "bin" / "pip").exists() or which("uv", project=folder.top) is None


def _is_made_by_uv(environment: Path) -> bool:
    """Whether uv made an environment of Python."""
    return "uv = " in read_text(environment / "pyvenv.cfg")


def _choose_pip_environment(folder: ProjectFolder) -> Path:
    """The environment into which pip installs. It may not exist yet."""
    return python_projects.find_environment(folder.workspace, folder.top) or folder.workspace / ".venv"


def _make_pip_commands(folder: ProjectFolder, *packages: str) -> tuple[tuple[str, ...], ...]:
    """The commands that install into the environment of the project, or of a folder above it. If there is none, it is
    made. An environment may have no pip: uv makes it without, and installs into it by itself."""
    environment = _choose_pip_environment(folder)
    environment_path = os.path.relpath(environment, folder.workspace)
    install = (f"{environment_path}/bin/pip", "install", *packages)
    if (environment / "bin" / "pip").exists():
        return (install,)
    if not (environment / "bin" / "python").exists():
        return (("python3", "-m", "venv", environment_path), install)
    if _is_made_by_uv(environment):
        return (("uv", "pip", "install", "--python", environment_path, *packages),)
    python = f"{environment_path}/bin/python"
    return ((python, "-m", "ensurepip"), (python, "-m", "pip", "install", *packages))


def _make_pip_arguments(folder: ProjectFolder) -> list[str]:
    """Arguments of `pip install` for the project itself."""
    needs = [word for name in folder.find_files(("requirements*.txt",)) for word in ("-r", name)]
    if "[project]" not in folder.read_file("pyproject.toml") and "setup.py" not in folder.file_names:
        return needs
    # pip knows groups only since 25.1
    option, _, name = python_projects.find_pytest_group_option(folder.folder).strip().partition(" ")
    return [*needs, "-e", f".[{name}]" if option == "--extra" else "."]


def _make_python_setup(folder: ProjectFolder) -> PackageSetup:
    """The setup for Python of a folder, which is that of pip if no manager is detected."""
    detected = next((setup for setup in detect_packages(folder) if setup.language == "python"), None)
    return detected or _make_setup(folder, PACKAGE_MANAGERS["pip"], "")


def make_environment_command(folder: Path, top: Path) -> str:
    """The command that makes an environment with pytest for the Python project in `folder` of the repository `top`."""
    files = ProjectFolder(folder, top, top)
    setup = _make_python_setup(files)
    requires = files.search_files(files.find_files(("pyproject.toml", "Pipfile")), _PYTEST_REQUIREMENT)
    return setup.install_line if setup.manager == "pip" or requires else add_package_command(folder, top, "pytest")


def add_package_command(folder: Path, top: Path, tool: str) -> str:
    """The command that adds `tool` to the environment of the Python project in `folder` of the repository `top`."""
    files = ProjectFolder(folder, top, top)
    add = shlex.split(PACKAGE_MANAGERS[_make_python_setup(files).manager].add_command)
    return join_commands([(*add, tool)] if add else _make_pip_commands(files, tool))


def _may_be_installed(folder: ProjectFolder, row: PackageManagerRow) -> bool:
    """False if the packages of a manager are certainly not installed."""
    if row.language == "python":
        return bool(folder.environments)
    if row.language == "node" and _NODE_DEPENDENCY.search(folder.read_file("package.json")) is None:
        return True
    return not row.package_folders or any((folder.workspace / name).exists() for name in row.package_folders)
