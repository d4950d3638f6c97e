"""Detects the test runners and linters of one folder by the table. Runs no program of the folder."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.execution.runners.toolchains.package_managers import detect_packages
from engine.execution.runners.toolchains.project_folder import ProjectFolder, first_executable
from engine.execution.runners.toolchains.project_tools import Linter, Placeholders, Toolchain
from engine.execution.runners.toolchains.python_environments import ON_PATH
from engine.execution.runners.toolchains.tool_table import (
    FALLBACK,
    LINTERS,
    TEST_RUNNERS,
    LinterRow,
    TestRunnerRow,
    folders_up_to,
)


def _detect_module(folder: ProjectFolder, row: TestRunnerRow, files: Sequence[str]) -> Placeholders | None:
    for where, interpreter in folder.interpreters:
        folder.searched.append(f"{row.program} in {where}")
        if folder.has_pytest(where, interpreter):
            return {"python": (str(interpreter),)}
    folder.missing.append((row.kind, "pytest"))
    return None


def _detect_unittest(folder: ProjectFolder, row: TestRunnerRow, files: Sequence[str]) -> Placeholders | None:
    """Only where nothing says that the project wants pytest."""
    wants = folder.search_files(
        folder.find_files(("pyproject.toml", "setup.cfg", "tox.ini", "Pipfile", "requirements*.txt")), "pytest"
    )
    if wants or folder.search_files(files, r"^\s*(?:import|from) pytest\b") or not folder.interpreters:
        return None
    start = next((name for name in ("tests", "test") if any(file.startswith(f"{name}/") for file in files)), ".")
    inside = start != "." and (folder.folder / start / "__init__.py").is_file()
    return {"python": (str(folder.interpreters[0][1]),), "start": ("." if inside else start,)}


def _detect_program(folder: ProjectFolder, row: TestRunnerRow | LinterRow, files: Sequence[str]) -> Placeholders | None:
    """A program among the project's own packages, else the operator's. The operator's linter only where the project is
    configured for it, and never one that belongs to the packages of Node."""
    bins = _program_folders(folder, row)
    if row.kind == "node" or not files:
        return _note_program(folder, row, first_executable(bins, row.program))
    return _note_program(folder, row, folder.find_program(row.program, own=bins))


def _program_folders(folder: ProjectFolder, row: TestRunnerRow | LinterRow) -> list[Path]:
    """The folders with the programs of the project's own packages."""
    if row.kind == "node":
        return [above / "node_modules" / ".bin" for above in folders_up_to(folder.workspace, folder.top)]
    if row.kind == "php":
        return [folder.workspace / "vendor" / "bin"]
    if row.kind != "python":
        return []
    interpreters = folder.interpreters
    if isinstance(row, LinterRow):
        interpreters = [pair for pair in interpreters if not pair[0].endswith(ON_PATH)]
        interpreters = [pair for pair in interpreters if (pair[1].parent.parent / "pyvenv.cfg").exists()]
    return [interpreter.parent for _, interpreter in interpreters]


def _note_program(folder: ProjectFolder, row: TestRunnerRow | LinterRow, program: str | None) -> Placeholders | None:
    if isinstance(row, TestRunnerRow):
        folder.searched.append(f"{row.program}{ON_PATH}")
        if program is None:
            folder.missing.append((row.kind, row.program))
    return None if program is None else {"program": (program,)}


def _detect_wrapper(folder: ProjectFolder, row: TestRunnerRow, files: Sequence[str]) -> Placeholders | None:
    """gradlew or mvnw of the project; it runs in the sandbox like every other program of the project."""
    name = {"gradle": "gradlew", "mvn": "mvnw"}[row.program]
    for above in folders_up_to(folder.workspace, folder.top):
        if os.access(above / name, os.X_OK):
            return {"program": (os.path.relpath(above / name, folder.workspace).replace(name, f"./{name}", 1),)}
    return _note_program(folder, row, folder.find_program(row.program))


def _detect_bundle(folder: ProjectFolder, row: TestRunnerRow | LinterRow, files: Sequence[str]) -> Placeholders | None:
    if "Gemfile" in folder.names and row.program in folder.read_file("Gemfile") and folder.find_program("bundle"):
        return {"program": ("bundle", "exec", row.program)}
    return _note_program(folder, row, folder.find_program(row.program))


def _detect_script(folder: ProjectFolder, row: TestRunnerRow, files: Sequence[str]) -> Placeholders | None:
    """The script `test` of package.json, when it is this row's runner and nothing more; the row without a program takes
    any other. The script that `npm init` writes is no test."""
    script = folder.scripts.get("test", "")
    if not script or "no test specified" in script:
        folder.searched.append("a test script in package.json")
        return None
    rest = _script_arguments(script, row.program)
    if rest is None:
        return None
    manager = _node_manager(folder)
    if not folder.find_program(manager):
        folder.searched.append(f"{manager}{ON_PATH}")
        folder.missing.append((row.kind, manager))
        return None
    return {**_manager_placeholders(manager), "script": tuple(rest)}


def _script_arguments(script: str, runner: str) -> list[str] | None:
    """The words of a script after its runner; None when it starts another program, or more than one."""
    if not runner:
        return [script]
    try:
        words = shlex.split(script)
    except ValueError:
        return None
    begin = runner.split()
    alone = not any(sign in script for sign in ("&&", "||", ";", "|"))
    return words[len(begin) :] if alone and words[: len(begin)] == begin else None


def _node_manager(folder: ProjectFolder) -> str:
    """npm, pnpm, yarn or bun: by the lock file of the package, or of a folder above it."""
    return next((package.manager for package in detect_packages(folder) if package.kind == "node"), "npm")


def _manager_placeholders(name: str) -> Placeholders:
    run = {"npm": ("npm", "run", "--silent"), "pnpm": ("pnpm", "--silent", "run")}.get(name, (name, "run"))
    return {"run": run, "--": ("--",) if name == "npm" else ()}


def _detect_target(folder: ProjectFolder, row: TestRunnerRow, files: Sequence[str]) -> Placeholders | None:
    match = folder.search_files(files, row.manifest_pattern)
    words = _note_program(folder, row, folder.find_program(row.program))
    return None if match is None or words is None else {**words, "target": (match["target"],)}


def _detect_lint_script(folder: ProjectFolder, row: LinterRow, files: Sequence[str]) -> Placeholders | None:
    return _manager_placeholders(_node_manager(folder)) if "lint" in folder.scripts else None


DETECTORS: Mapping[str, Callable[[ProjectFolder, Any, Sequence[str]], Placeholders | None]] = {
    "module": _detect_module,
    "unittest": _detect_unittest,
    "program": _detect_program,
    "wrapper": _detect_wrapper,
    "bundle": _detect_bundle,
    "script": _detect_script,
    "target": _detect_target,
    "lint script": _detect_lint_script,
}
"""The functions that detect a tool, by the value of `detected_by` in the table. Each gets the folder, the row and the
matching manifests, and returns the placeholders of the tool's commands, None when the folder does not have the tool."""


def detect_test_tools(folder: ProjectFolder) -> tuple[Toolchain, ...]:
    """One tool for each language of the folder, in the order of the table; make and the like only without any other."""
    tools: dict[str, Toolchain] = {}
    for row in TEST_RUNNERS:
        files = [] if row.kind in tools or (row.kind == FALLBACK and tools) else folder.find_files(row.manifests)
        if not files:
            continue
        if row.manifest_pattern and not folder.search_files(files, row.manifest_pattern):
            if row.kind == FALLBACK:
                folder.searched.append(f"a `test` or `check` target in the {files[0]}")
            continue
        words = DETECTORS[row.detected_by](folder, row, files)
        if words is None:
            continue
        if row.kind == "rust":
            words["workspace"] = ("--workspace",) if folder.search_files(files, r"^\[workspace\]") else ()
        title = _tool_title(row, words)
        tools[row.kind] = Toolchain(
            row=row, folder=folder.folder, workspace=folder.workspace, top=folder.top, title=title, words=words
        )
    return tuple(tools.values())


def _tool_title(row: TestRunnerRow, words: Placeholders) -> str:
    if row.detected_by == "target":
        return f"{row.program} {words['target'][0]}"
    return row.title or f"{words['run'][0]} test"


def detect_linters(folder: ProjectFolder) -> tuple[Linter, ...]:
    """The linters and type checkers that the project uses and that are installed, one for each group; a lint target of
    a Makefile only without any other."""
    linters: list[Linter] = []
    python_here = bool(folder.find_files(("*.py", "pyproject.toml", "setup.py", "requirements.txt", "tests/*.py")))
    chosen = {row.name for row in LINTERS if row.runs_unconfigured and _is_configured(folder, row)}
    for row in LINTERS:
        same_group = [
            linter for linter in linters if row.group and (linter.row.kind, linter.row.group) == (row.kind, row.group)
        ]
        if same_group or (row.kind == FALLBACK and linters) or (row.kind == "python" and not python_here):
            continue
        configured = _is_configured(folder, row)
        if not configured and not (row.runs_unconfigured and not chosen):
            continue
        words = DETECTORS[row.detected_by](folder, row, ["configured"] if configured else [])
        if words is not None:
            words |= _find_formatter(folder, row, words)
            linters.append(Linter(row=row, folder=folder.folder, workspace=folder.workspace, words=words))
    return tuple(linters)


def _is_configured(folder: ProjectFolder, row: LinterRow) -> bool:
    """Whether a file in the folder configures the linter; where it reads parent settings, also in a folder above."""
    for sign in row.configured:
        name, _, pattern = sign.partition(":")
        for here in folder.with_folders_above() if row.uses_parent_settings else [folder]:
            files = here.find_files((name,))
            if files and (not pattern or here.search_files(files, pattern)):
                return True
    return False


def _find_formatter(folder: ProjectFolder, row: LinterRow, words: Placeholders) -> Placeholders:
    """The placeholders of a formatter: prettier, or the script `format`; black where the project is configured for it,
    else ruff where it lints with ruff."""
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
