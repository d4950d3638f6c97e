"""Detects the test runners and linters of one folder, by the rows of `tools.toml`. No program of the folder is run."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from engine.execution.runners.toolchains.package_managers import detect_packages
from engine.execution.runners.toolchains.project_folder import ProjectFolder, first_executable
from engine.execution.runners.toolchains.project_tools import Linter, Placeholders, Toolchain
from engine.execution.runners.toolchains.python_projects import ON_PATH
from engine.execution.runners.toolchains.tool_table import (
    FALLBACK,
    LINTERS,
    TEST_RUNNERS,
    LinterRow,
    TestRunnerRow,
    ToolRow,
    folders_up_to,
)

# -- Test runners ----------------------------------------------------------------------------------------------------


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
        words = _find_runner(folder, row, files)
        if words is not None:
            tools[row.kind] = _make_toolchain(folder, row, words)
    return tuple(tools.values())


def _make_toolchain(folder: ProjectFolder, row: TestRunnerRow, words: Placeholders) -> Toolchain:
    if row.kind == "rust":
        words["workspace"] = ("--workspace",) if folder.shows(r"Cargo.toml:^\[workspace\]") else ()
    title = f"{row.program} {words['target'][0]}" if "target" in words else row.title or f"{words['run'][0]} test"
    return Toolchain(
        row=row,
        folder=folder.folder,
        workspace=folder.workspace,
        title=title,
        environment_without_tool=_environment_without_tool(folder, words),
        placeholders=words,
    )


def _environment_without_tool(folder: ProjectFolder, words: Placeholders) -> str:
    """The project's own environment where the operator's interpreter runs the tests instead, "" for none."""
    environments = {str(interpreter.program): interpreter.where for interpreter in folder.environments}
    is_operators = "python" in words and words["python"][0] not in environments
    return next(iter(environments.values()), "") if is_operators else ""


def _find_runner(folder: ProjectFolder, row: TestRunnerRow, files: Sequence[str]) -> Placeholders | None:
    """The placeholders of a test runner's commands; None if the folder does not have it. `files` are its manifests."""
    match row.detected_by:
        case "module":
            return _find_pytest(folder)
        case "unittest":
            return _find_unittest(folder, files)
        case "script":
            return _find_script(folder, row)
        case "wrapper" if wrapper := _find_wrapper(folder, row):
            return {"program": (wrapper,)}
        case "bundle" if _is_bundled(folder, row):
            return {"program": ("bundle", "exec", row.program)}
    program = folder.find_program(row.program, own=_program_folders(folder, row))
    folder.searched.append(f"{row.program}{ON_PATH}")
    if program is None:
        folder.missing.append((row.kind, row.program))
        return None
    target = folder.search_files(files, row.manifest_pattern) if row.detected_by == "target" else None
    return {"program": (program,), **({"target": (target["target"],)} if target else {})}


def _find_pytest(folder: ProjectFolder) -> Placeholders | None:
    """The first interpreter that has pytest."""
    for interpreter in folder.interpreters:
        folder.searched.append(f"pytest in {interpreter.where}")
        if folder.has_pytest(interpreter):
            return {"python": (str(interpreter.program),)}
    folder.missing.append(("python", "pytest"))
    return None


def _find_unittest(folder: ProjectFolder, files: Sequence[str]) -> Placeholders | None:
    """The interpreter for unittest; None if something shows that the project uses pytest."""
    settings = folder.find_files(("pyproject.toml", "setup.cfg", "tox.ini", "Pipfile", "requirements*.txt"))
    wants = folder.search_files(settings, "pytest") or folder.search_files(files, r"^\s*(?:import|from) pytest\b")
    if wants or not folder.interpreters:
        return None
    start = next((name for name in ("tests", "test") if any(file.startswith(f"{name}/") for file in files)), ".")
    inside = start != "." and (folder.folder / start / "__init__.py").is_file()
    return {"python": (str(folder.interpreters[0].program),), "start": ("." if inside else start,)}


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


def _find_wrapper(folder: ProjectFolder, row: ToolRow) -> str:
    """The wrapper script of Gradle or Maven, "" for none. It runs in the sandbox, like every program of the project."""
    for above in folders_up_to(folder.workspace, folder.top):
        if os.access(above / row.wrapper, os.X_OK):
            path = os.path.relpath(above / row.wrapper, folder.workspace)
            return path.replace(row.wrapper, f"./{row.wrapper}", 1)
    return ""


def _is_bundled(folder: ProjectFolder, row: ToolRow) -> bool:
    return row.program in folder.read_file("Gemfile") and folder.find_program("bundle") is not None


def _program_folders(folder: ProjectFolder, row: ToolRow) -> list[Path]:
    """The folders with the programs of the project's own packages."""
    match row.kind:
        case "node":
            return [above / "node_modules" / ".bin" for above in folders_up_to(folder.workspace, folder.top)]
        case "php":
            return [folder.workspace / "vendor" / "bin"]
        case "python" if isinstance(row, LinterRow):
            homes = [interpreter.home for interpreter in folder.environments]
            return [home / "bin" for home in homes if (home / "pyvenv.cfg").exists()]
        case "python":
            return [interpreter.program.parent for interpreter in folder.interpreters]
    return []


# -- Linters ---------------------------------------------------------------------------------------------------------


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
        is_configured = _is_configured(folder, row)
        if not is_configured and not (row.runs_unconfigured and not chosen):
            continue
        words = _find_linter(folder, row, is_configured=is_configured)
        if words is not None:
            groups.add((row.kind, row.group))
            words |= _find_formatter(folder, row, words)
            linters.append(Linter(row=row, folder=folder.folder, workspace=folder.workspace, placeholders=words))
    return tuple(linters)


def _find_linter(folder: ProjectFolder, row: LinterRow, *, is_configured: bool) -> Placeholders | None:
    """The placeholders of a linter's commands; None if the folder does not have it. One of the operator is used only if
    the project is configured for it, and never for Node."""
    if row.detected_by == "lint script":
        return _script_words(_node_manager(folder)) if "lint" in folder.scripts else None
    if row.detected_by == "bundle" and _is_bundled(folder, row):
        return {"program": ("bundle", "exec", row.program)}
    own = _program_folders(folder, row)
    is_operators_used = is_configured and row.kind != "node"
    program = folder.find_program(row.program, own=own) if is_operators_used else first_executable(own, row.program)
    return None if program is None else {"program": (program,)}


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
