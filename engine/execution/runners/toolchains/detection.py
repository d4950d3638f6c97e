"""Looking at one folder: which tools of the table it has, and what installs its packages. Nothing of it is run."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from typing import Any

from engine.execution.runners.toolchains import python
from engine.execution.runners.toolchains.project_tools import Linter, Placeholders, Toolchain, fill_command
from engine.execution.runners.toolchains.tool_table import (
    FALLBACK,
    LINTERS,
    PACKAGE_MANAGERS,
    TEST_RUNNERS,
    LinterRow,
    PackageManagerRow,
    TestRunnerRow,
    read_text,
)
from engine.execution.sandbox.environment import which
from engine.frozen import frozen


@frozen
class Packages:
    """What installs a project's packages. `folder`, `manifest` and `lock` are paths from the top of the repository
    (`folder` "" is the top; `lock` "" where there is none); `commands` are run in `folder`, one after the other.
    `installed` is False when it can be seen that they are not there. `hosts` are what it needs of the network."""

    manager: str
    kind: str
    folder: str
    manifest: str
    lock: str
    commands: tuple[tuple[str, ...], ...]
    hosts: tuple[str, ...]
    installed: bool = True

    @property
    def install(self) -> str:
        """The command as the operator would type it in `folder`."""
        return " && ".join(shlex.join(command) for command in self.commands)


@dataclass
class ProjectFolder:
    """One folder that is looked at. `root` is the top of the files, `top` that of the operator's repository, in which
    the tools are; `asked` remembers what interpreters said, for one look at a repository."""

    folder: Path
    workspace: Path
    root: Path
    top: Path
    pytest_by_interpreter: dict[Path, bool] = field(default_factory=dict)
    looked: list[str] = field(default_factory=list)
    missing: list[tuple[str, str]] = field(default_factory=list)  # the kind, and what was not there
    _texts: dict[str, str] = field(default_factory=dict)

    @cached_property
    def names(self) -> frozenset[str]:
        """The files and links of the folder itself."""
        try:
            with os.scandir(self.folder) as entries:
                return frozenset(entry.name for entry in entries if not entry.is_dir(follow_symlinks=False))
        except OSError:
            return frozenset()

    def above(self, folder: Path) -> ProjectFolder:
        """Another folder of the same repository, one above this."""
        workspace = self.top / folder.relative_to(self.root) if folder.is_relative_to(self.root) else folder
        return ProjectFolder(folder, workspace, self.root, self.top, self.pytest_by_interpreter)

    def files(self, patterns: Sequence[str]) -> list[str]:
        """The files that are there of those named; `*` stands for anything but `/`."""
        names: list[str] = []
        for pattern in patterns:
            if "/" in pattern:
                names += [str(file.relative_to(self.folder)) for file in sorted(self.folder.glob(pattern))]
            elif "*" in pattern:
                names += sorted(name for name in self.names if fnmatch(name, pattern))
            elif pattern in self.names:
                names.append(pattern)
        return names

    def text(self, name: str) -> str:
        """What is in a file of the folder, "" when it cannot be read."""
        if name not in self._texts:
            self._texts[name] = read_text(self.folder / name)
        return self._texts[name]

    def says(self, files: Sequence[str], pattern: str) -> re.Match[str] | None:
        """Where one of `files` says what `pattern` asks for."""
        matches = (re.search(pattern, self.text(name), re.MULTILINE) for name in files[:20])
        return next((match for match in matches if match is not None), None)

    @cached_property
    def interpreters(self) -> list[tuple[str, Path]]:
        interpreters = python.interpreters(self.workspace, self.top)
        if self.folder != self.workspace:  # a worktree that was prepared has an environment of its own
            own = self.folder / ".venv" / "bin" / "python"
            interpreters = [*([(".venv of the worktree", own)] if own.exists() else []), *interpreters]
        return interpreters

    @cached_property
    def scripts(self) -> dict[str, str]:
        """The scripts of package.json; {} when it cannot be read, npm will say why in its own words."""
        try:
            scripts = json.loads(self.text("package.json")).get("scripts", {})
            return {str(name): str(script) for name, script in scripts.items()}
        except (ValueError, AttributeError):
            return {}

    def has_pytest(self, where: str, interpreter: Path) -> bool:
        if interpreter not in self.pytest_by_interpreter:
            self.pytest_by_interpreter[interpreter] = python.has_pytest(
                interpreter, operators=where.endswith(" on the PATH")
            )
        return self.pytest_by_interpreter[interpreter]

    def program(self, name: str, *, own: Iterable[Path] = ()) -> str | None:
        """A program of one of the folders `own`, else the operator's."""
        here = next((str(folder / name) for folder in own if os.access(folder / name, os.X_OK)), None)
        return here or which(name, project=self.top)


def _module(folder: ProjectFolder, row: TestRunnerRow, files: Sequence[str]) -> Placeholders | None:
    for where, interpreter in folder.interpreters:
        folder.looked.append(f"{row.program} in {where}")
        if folder.has_pytest(where, interpreter):
            return {"python": (str(interpreter),)}
    folder.missing.append((row.kind, "pytest"))
    return None


def _unittest(folder: ProjectFolder, row: TestRunnerRow, files: Sequence[str]) -> Placeholders | None:
    """Only where nothing says that the project wants pytest."""
    wants = folder.says(
        folder.files(("pyproject.toml", "setup.cfg", "tox.ini", "Pipfile", "requirements*.txt")), "pytest"
    )
    if wants or folder.says(files, r"^\s*(?:import|from) pytest\b") or not folder.interpreters:
        return None
    start = next((name for name in ("tests", "test") if any(file.startswith(f"{name}/") for file in files)), ".")
    inside = start != "." and (folder.folder / start / "__init__.py").is_file()
    return {"python": (str(folder.interpreters[0][1]),), "start": ("." if inside else start,)}


def _program(folder: ProjectFolder, row: TestRunnerRow | LinterRow, files: Sequence[str]) -> Placeholders | None:
    bins = [interpreter.parent for where, interpreter in folder.interpreters] if row.kind == "python" else []
    program = folder.program(row.program, own=bins)
    return _note_program(folder, row, program)


def _note_program(folder: ProjectFolder, row: TestRunnerRow | LinterRow, program: str | None) -> Placeholders | None:
    if isinstance(row, TestRunnerRow):
        folder.looked.append(f"{row.program} on the PATH")
        if program is None:
            folder.missing.append((row.kind, row.program))
    return None if program is None else {"program": (program,)}


def _wrapper(folder: ProjectFolder, row: TestRunnerRow, files: Sequence[str]) -> Placeholders | None:
    """gradlew or mvnw, which the project brings along; it runs in the sandbox like everything else of it."""
    name = {"gradle": "gradlew", "mvn": "mvnw"}[row.program]
    for above in python.folders_up_to(folder.workspace, folder.top):
        if os.access(above / name, os.X_OK):
            return {"program": (os.path.relpath(above / name, folder.workspace).replace(name, f"./{name}", 1),)}
    return _note_program(folder, row, folder.program(row.program))


def _bundle(folder: ProjectFolder, row: TestRunnerRow | LinterRow, files: Sequence[str]) -> Placeholders | None:
    if "Gemfile" in folder.names and row.program in folder.text("Gemfile") and folder.program("bundle"):
        return {"program": ("bundle", "exec", row.program)}
    return _note_program(folder, row, folder.program(row.program))


def _vendor(folder: ProjectFolder, row: TestRunnerRow | LinterRow, files: Sequence[str]) -> Placeholders | None:
    return _note_program(folder, row, folder.program(row.program, own=[folder.workspace / "vendor" / "bin"]))


def _script(folder: ProjectFolder, row: TestRunnerRow, files: Sequence[str]) -> Placeholders | None:
    """The script `test` of package.json, when it is this row's runner and nothing more; the row without a program
    takes any other. What `npm init` writes into it is no test."""
    script = folder.scripts.get("test", "")
    if not script or "no test specified" in script:
        folder.looked.append("a test script in package.json")
        return None
    rest = _script_arguments(script, row.program)
    if rest is None:
        return None
    manager = _node_manager(folder)
    if not folder.program(manager):
        folder.looked.append(f"{manager} on the PATH")
        folder.missing.append((row.kind, manager))
        return None
    return {**_manager_placeholders(manager), "script": tuple(rest)}


def _script_arguments(script: str, runner: str) -> list[str] | None:
    """The words of a script after its runner; None when it is another, or more than that runner."""
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
    """Which of npm, pnpm, yarn and bun a package is kept with: by its lock file, or by that of a folder above it."""
    packages = detect_packages(folder)
    return next((package.manager for package in packages if package.kind == "node"), "npm")


def _manager_placeholders(name: str) -> Placeholders:
    run = {"npm": ("npm", "run", "--silent"), "pnpm": ("pnpm", "--silent", "run")}.get(name, (name, "run"))
    return {"run": run, "--": ("--",) if name == "npm" else ()}


def _target(folder: ProjectFolder, row: TestRunnerRow, files: Sequence[str]) -> Placeholders | None:
    match = folder.says(files, row.manifest_pattern)
    words = _note_program(folder, row, folder.program(row.program))
    return None if match is None or words is None else {**words, "target": (match["target"],)}


def _python_bins(folder: ProjectFolder) -> list[Path]:
    """The programs of the project's own Python environments."""
    own = [interpreter for where, interpreter in folder.interpreters if not where.endswith(" on the PATH")]
    return [interpreter.parent for interpreter in own if (interpreter.parent.parent / "pyvenv.cfg").exists()]


def _first_executable(folders: Iterable[Path], name: str) -> str | None:
    return next((str(folder / name) for folder in folders if os.access(folder / name, os.X_OK)), None)


def _node_bins(folder: ProjectFolder) -> list[Path]:
    return [above / "node_modules" / ".bin" for above in python.folders_up_to(folder.workspace, folder.top)]


def _environment(folder: ProjectFolder, row: LinterRow, files: Sequence[str]) -> Placeholders | None:
    """A program of the project's Python environment; the operator's only where the project is configured for it."""
    bins = _python_bins(folder)
    return _note_program(
        folder, row, folder.program(row.program, own=bins) if files else _first_executable(bins, row.program)
    )


def _node_module(folder: ProjectFolder, row: LinterRow, files: Sequence[str]) -> Placeholders | None:
    return _note_program(folder, row, _first_executable(_node_bins(folder), row.program))


def _lint_script(folder: ProjectFolder, row: LinterRow, files: Sequence[str]) -> Placeholders | None:
    return _manager_placeholders(_node_manager(folder)) if "lint" in folder.scripts else None


DETECTORS: Mapping[str, Callable[[ProjectFolder, Any, Sequence[str]], Placeholders | None]] = {
    "module": _module, "unittest": _unittest, "program": _program, "wrapper": _wrapper, "bundle": _bundle,
    "vendor": _vendor, "script": _script, "target": _target, "environment": _environment,
    "node_modules": _node_module, "lint script": _lint_script,
}  # fmt: skip
"""How a tool is looked for, by the word in the table."""


def detect_test_tools(folder: ProjectFolder) -> tuple[Toolchain, ...]:
    """One tool for each language of the folder, in the order of the table; make and the like only when no other."""
    tools: dict[str, Toolchain] = {}
    for row in TEST_RUNNERS:
        files = [] if row.kind in tools or (row.kind == FALLBACK and tools) else folder.files(row.manifests)
        if not files:
            continue
        if row.manifest_pattern and not folder.says(files, row.manifest_pattern):
            if row.kind == FALLBACK:
                folder.looked.append(f"a `test` or `check` target in the {files[0]}")
            continue
        words = DETECTORS[row.detected_by](folder, row, files)
        if words is None:
            continue
        if row.kind == "rust":
            words["workspace"] = ("--workspace",) if folder.says(files, r"^\[workspace\]") else ()
        title = _title(row, words)
        tools[row.kind] = Toolchain(
            row=row, folder=folder.folder, workspace=folder.workspace, top=folder.top, title=title, words=words
        )
    return tuple(tools.values())


def _title(row: TestRunnerRow, words: Placeholders) -> str:
    if row.detected_by == "target":
        return f"{row.program} {words['target'][0]}"
    return row.title or f"{words['run'][0]} test"


def detect_linters(folder: ProjectFolder) -> tuple[Linter, ...]:
    """Every linter and type checker that the project uses and that is installed; of those that do the same the first,
    and a lint target of a Makefile only when there is no other."""
    linters: list[Linter] = []
    python_here = bool(folder.files(("*.py", "pyproject.toml", "setup.py", "requirements.txt", "tests/*.py")))
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
            words |= _formatter(folder, row, words)
            linters.append(Linter(row=row, folder=folder.folder, workspace=folder.workspace, words=words))
    return tuple(linters)


def _is_configured(folder: ProjectFolder, row: LinterRow) -> bool:
    """Whether a file shows it, here or, for a tool that looks upwards itself, in a folder above."""
    for sign in row.configured:
        name, _, pattern = sign.partition(":")
        for path in python.folders_up_to(folder.folder, folder.root) if row.uses_parent_settings else [folder.folder]:
            here = folder if path == folder.folder else folder.above(path)
            files = here.files((name,))
            if files and (not pattern or here.says(files, pattern)):
                return True
    return False


def _formatter(folder: ProjectFolder, row: LinterRow, words: Placeholders) -> Placeholders:
    """prettier, or the script `format`; black where the project formats with it, else ruff where it lints with that."""
    if row.kind == "node":
        prettier = _first_executable(_node_bins(folder), "prettier")
        return {"prettier": (prettier,)} if prettier else {"format": ()} if "format" in folder.scripts else {}
    if row.kind != "python":
        return {}
    if folder.says(folder.files(("pyproject.toml",)), r"^\[tool\.black\b") and (
        black := folder.program("black", own=_python_bins(folder))
    ):
        return {"formatter": (black, "--quiet")}
    return {"formatter": (*words["program"], "format", "--force-exclude")} if row.name == "ruff" else {}


def detect_packages(folder: ProjectFolder) -> tuple[Packages, ...]:
    """What installs the packages of each language of a folder: by the nearest lock file that holds for it, else by
    what its manifest says."""
    chosen: dict[str, Packages] = {}
    for row in PACKAGE_MANAGERS.values():
        if row.kind not in chosen and folder.files(row.manifests):
            rows = [
                other for other in PACKAGE_MANAGERS.values() if other.kind == row.kind and folder.files(other.manifests)
            ]
            chosen[row.kind] = _choose_manager(folder, rows)
    return tuple(chosen.values())


def _choose_manager(folder: ProjectFolder, rows: Sequence[PackageManagerRow]) -> Packages:
    for path in python.folders_up_to(folder.folder, folder.root):
        here = folder if path == folder.folder else folder.above(path)
        holding = rows if here is folder else [row for row in rows if _is_workspace_of(here, row)]
        for row in holding:
            if locks := here.files(row.lock_files):
                return _packages(here, row, locks[0])
        if holding and here is not folder:
            return _packages(here, _named_manager(here, holding), "")
    return _packages(folder, _named_manager(folder, rows), "")


def _is_workspace_of(above: ProjectFolder, row: PackageManagerRow) -> bool:
    name, _, pattern = row.workspace_sign.partition(":")
    return name in above.names and (not pattern or above.says((name,), pattern) is not None)


def _named_manager(folder: ProjectFolder, rows: Sequence[PackageManagerRow]) -> PackageManagerRow:
    """The one that the manifest names, else the usual one."""
    patterned = [row for row in rows if row.manifest_pattern]
    named = [row for row in patterned if folder.says(folder.files(row.manifests), row.manifest_pattern)]
    if named and named[0].name == "uv" and python.package_manager_of(folder.folder) != "uv":
        named = named[1:]  # groups of dependencies, in a project whose environment pip made
    return next(iter([*named, *(row for row in rows if not row.manifest_pattern)]), rows[0])


def _packages(folder: ProjectFolder, row: PackageManagerRow, lock: str) -> Packages:
    path = "" if folder.folder == folder.root else folder.folder.relative_to(folder.root).as_posix()
    manifest = next(iter(folder.files(row.manifests)), "")

    def from_top(name: str) -> str:
        return f"{path}/{name}" if path and name else name

    commands = _pip_commands(folder) if row.name == "pip" else _install_commands(folder, row, lock)
    return Packages(
        row.name, row.kind, path, from_top(manifest), from_top(lock), commands, row.hosts, _is_installed(folder, row)
    )


def _install_commands(folder: ProjectFolder, row: PackageManagerRow, lock: str) -> tuple[tuple[str, ...], ...]:
    wrapper = next((f"./{name}" for name in ("gradlew", "mvnw") if name in folder.names), "")
    words = {
        "where": tuple(python.pytest_group_option(folder.folder).split()) if row.name == "uv" else (),
        "wrapper": (wrapper or ("gradle" if row.name == "gradle" else "mvn"),),
    }
    if row.name == "yarn" and lock and ".yarnrc.yml" in folder.names:  # yarn 2 and later name it anew
        return (("yarn", "install", "--immutable"),)
    command = fill_command(row.install_command if lock else row.unlocked_install_command, words)
    return (command,) if command else ()


def _pip_commands(folder: ProjectFolder) -> tuple[tuple[str, ...], ...]:
    own = next((name for name in python.ENVIRONMENTS if (folder.workspace / name / "bin" / "pip").exists()), "")
    needs = [word for need in python.pip_needs(folder.folder) for word in shlex.split(need)]
    install = (f"{own or '.venv'}/bin/pip", "install", "pytest", *needs)
    return (install,) if own else (("python3", "-m", "venv", ".venv"), install)


def _is_installed(folder: ProjectFolder, row: PackageManagerRow) -> bool:
    if row.kind == "python":
        return any(not where.endswith(" on the PATH") for where, _ in folder.interpreters)
    if row.kind == "node" and not re.search(
        r'"(?:dev|optional)?[dD]ependencies"\s*:\s*\{\s*"', folder.text("package.json")
    ):
        return True
    return not row.package_folders or any((folder.workspace / name).exists() for name in row.package_folders)
