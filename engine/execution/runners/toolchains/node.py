"""npm: a package's scripts `test`, `lint` and `format`, and eslint and prettier from its own node_modules."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.execution.runners.toolchains.base import (
    Command,
    Finding,
    Linter,
    LintResult,
    Toolchain,
    operand,
    read,
    uncounted,
)
from engine.execution.runners.toolchains.missing import INSTALL_PROGRAM, Missing, fix_for
from engine.execution.runners.toolchains.words import read_words
from engine.values import CheckResult

SUFFIXES = (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts", ".vue", ".svelte", "package.json")
NO_TESTS = "no test specified"
"""What `npm init` writes into the script; it is no test."""

INSTALL = "npm install"

ESLINT_CONFIGS = ("eslint.config.js", "eslint.config.mjs", "eslint.config.cjs", "eslint.config.ts", ".eslintrc")
_TEST_FILE = re.compile(r"(?:\.(?:test|spec)\.[cm]?[jt]sx?|(?:^|/)(?:test|tests|__tests__)/[^/]+\.[cm]?[jt]sx?)$")
_STYLISH = re.compile(r"^ +(?P<line>\d+):\d+ +(?:error|warning) +(?P<message>.+?)(?:  +(?P<rule>[@\w/-]+))?$")
_ENVIRONMENT = {"CI": "1", "NO_COLOR": "1", "FORCE_COLOR": "0", "npm_config_update_notifier": "false"}


class Npm(Toolchain):
    """`npm test`. Single tests can be asked for when the script is one known runner; ids are then full test names."""

    name = "npm"
    title = "npm test"
    suffixes = SUFFIXES

    def __init__(self, folder: Path, workspace: Path, scripts: Mapping[str, str]) -> None:
        super().__init__(folder, workspace)
        self.scripts = scripts
        self.runner = runner_of(scripts.get("test", ""))
        self.exact = bool(self.runner)

    def test_command(self, tests: Sequence[str], report: Path) -> Command:
        return Command((*self._argv(tests),), _ENVIRONMENT, codes=tuple(range(124)))

    def _argv(self, tests: Sequence[str]) -> list[str]:
        whole = ["npm", "test", "--silent"]
        if not tests or not self.runner:
            return whole
        pattern = f"^({'|'.join(map(_escape, tests))})$"
        if self.runner == "node":  # its options stand before the files, npm can only append
            words = shlex.split(self.scripts["test"])
            return ["node", "--test", f"--test-name-pattern={pattern}", *words[2:]]
        options = {"jest": ["-t", pattern], "vitest": ["--run", "-t", pattern], "mocha": ["--grep", pattern]}
        return [*whole, "--", *options[self.runner]]

    def parse(self, report: Path, output: str, exit_code: int) -> CheckResult:
        return read_words("npm", output, exit_code) or uncounted("npm", self.title, exit_code)

    def believes(self, missing: Missing) -> bool:
        return believes(self.workspace, missing)

    def fix(self, missing: Missing) -> str:
        return fix(self.workspace, missing)

    def tests_for(self, paths: Sequence[str]) -> dict[str, list[str]]:
        return {path: [] for path in paths}  # the script decides what it runs

    def linter(self) -> Linter | None:
        return node_linter(self.folder, self.workspace, self.scripts)

    def borrows(self) -> tuple[str, ...]:
        return ("node_modules",)


def fix(workspace: Path, missing: Missing) -> str:
    """Without installed packages a program that a script calls comes with them."""
    alone = missing.kind == "program" and not (workspace / "node_modules").exists()
    return INSTALL if alone and missing.what not in INSTALL_PROGRAM else fix_for(missing, INSTALL)


def believes(workspace: Path, missing: Missing) -> bool:
    """A package that package.json does not name, where the others are installed, is a mistake in the project."""
    if missing.kind != "package" or not (workspace / "node_modules").exists():
        return True
    return f'"{missing.what}"' in read(workspace / "package.json")


def runner_of(script: str) -> str:
    """The test runner that a script is, alone: node, jest, vitest, mocha, or "" when it is more or something else."""
    if any(sign in script for sign in ("&&", "||", ";", "|")):
        return ""
    try:
        words = shlex.split(script)
    except ValueError:
        return ""
    if words[:2] == ["node", "--test"]:
        return "node"
    return words[0] if words[:1] in (["jest"], ["vitest"], ["mocha"]) else ""


def _escape(name: str) -> str:
    """A test name as a JavaScript regular expression."""
    return re.sub(r"([.*+?^${}()|\[\]\\/])", r"\\\1", name)


def is_test_file(path: str) -> bool:
    """Whether a file is a test by the usual names."""
    return bool(_TEST_FILE.search(path))


class NodeLinter(Linter):
    """eslint with prettier beside it, or the package's own scripts."""

    suffixes = (*SUFFIXES[:-1],)

    def __init__(
        self, workspace: Path, *, eslint: str | None, prettier: str | None, scripts: Mapping[str, str]
    ) -> None:
        self.workspace = workspace
        self.eslint = eslint
        self.prettier = prettier
        self.scripts = scripts
        self.name = "eslint" if eslint else "npm run lint" if "lint" in scripts else "prettier"
        self.only_looks = self.name != "npm run lint"

    def lint(self, paths: Sequence[str], scratch: Path) -> Command:
        targets = tuple(map(operand, paths)) or (".",)
        if self.eslint:
            return Command((self.eslint, "--format", "stylish", "--no-color", *targets), _ENVIRONMENT)
        if "lint" in self.scripts:
            return Command(("npm", "run", "--silent", "lint"), _ENVIRONMENT, codes=tuple(range(124)))
        return Command((self.prettier or "prettier", "--check", *targets), _ENVIRONMENT)

    def parse(self, output: str, exit_code: int) -> LintResult:
        if self.name == "prettier":
            names = re.findall(r"^\[warn\] (\S+\.\w+)$", output, re.M)
            return LintResult(self.name, tuple(Finding(name, 0, "format", "is not formatted") for name in names))
        found = tuple(read_stylish(output))
        return LintResult(self.name, found)

    def fix(self, missing: Missing) -> str:
        return fix(self.workspace, missing)

    def believes(self, missing: Missing) -> bool:
        return believes(self.workspace, missing)

    def fixes(self, paths: Sequence[str]) -> list[Command]:
        targets = tuple(map(operand, paths)) or (".",)
        commands: list[Command] = []
        if self.prettier:
            commands.append(Command((self.prettier, "--write", "--ignore-unknown", *targets), _ENVIRONMENT, (0,)))
        if self.eslint:
            commands.append(Command((self.eslint, "--fix", "--no-color", *targets), _ENVIRONMENT))
        if not commands and "format" in self.scripts:
            commands.append(Command(("npm", "run", "--silent", "format"), _ENVIRONMENT, (0,)))
        return commands


def read_stylish(output: str) -> list[Finding]:
    """eslint's stylish format: a file on its own line, its findings indented below."""
    found: list[Finding] = []
    file = ""
    for line in output.splitlines():
        if match := _STYLISH.match(line):
            found.append(Finding(file, int(match["line"]), match["rule"] or "eslint", match["message"].strip()))
        elif line and not line.startswith((" ", "✖")):
            file = line.strip()
    return found


def node_linter(folder: Path, workspace: Path, scripts: Mapping[str, str]) -> NodeLinter | None:
    """What a package lints with, or None. eslint needs a configuration, else it only complains that it has none."""
    programs = workspace / "node_modules" / ".bin"
    configured = any(file.name.startswith(ESLINT_CONFIGS) for file in folder.iterdir()) or '"eslintConfig"' in read(
        folder / "package.json"
    )
    eslint = str(programs / "eslint") if configured and (programs / "eslint").exists() else None
    prettier = str(programs / "prettier") if (programs / "prettier").exists() else None
    if not (eslint or prettier or "lint" in scripts):
        return None
    return NodeLinter(workspace, eslint=eslint, prettier=prettier, scripts=scripts)


def package_scripts(folder: Path) -> dict[str, str]:
    """The scripts of package.json; {} when it cannot be read, npm will say why in its own words."""
    try:
        package: Any = json.loads(read(folder / "package.json"))
        scripts = package.get("scripts", {})
        return {str(name): str(script) for name, script in scripts.items()}
    except (ValueError, AttributeError):
        return {}


def find_npm(folder: Path, workspace: Path, looked: list[str]) -> Npm | None:
    """npm, when package.json has a test script that is more than npm's own placeholder."""
    if not (folder / "package.json").is_file():
        return None
    scripts = package_scripts(folder)
    if NO_TESTS in scripts.get("test", NO_TESTS):
        looked.append("a test script in package.json")
        return None
    looked.append("npm on the PATH")
    return Npm(folder, workspace, scripts) if shutil.which("npm") else None
