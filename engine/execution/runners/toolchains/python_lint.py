"""ruff and flake8, which print the same kind of line; formatting by ruff or, where it is configured, black."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from engine.execution.runners.toolchains.base import Command, Finding, Linter, LintResult, operand

_LINE = re.compile(
    r"^(?P<path>[^:\n]+):(?P<line>\d+):(?:\d+:)? (?P<rule>[A-Z]+\d+|invalid-syntax:?|[a-z-]+:?) (?P<message>.*)$"
)
_QUIET = {"RUFF_NO_CACHE": "true", "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1"}


class PythonLinter(Linter):
    """`name` is ruff or flake8, `program` its path, `black` the path of black if the project formats with it."""

    suffixes = (".py", ".pyi")

    def __init__(self, name: str, program: str, *, black: str | None = None) -> None:
        self.name = name
        self.program = program
        self.black = black

    def lint(self, paths: Sequence[str], scratch: Path) -> Command:
        targets = tuple(map(operand, paths)) or (".",)
        if self.name == "ruff":
            argv = (self.program, "check", "--output-format=concise", "--no-fix", "--force-exclude", *targets)
        else:
            argv = (self.program, *targets)
        return Command(argv, _QUIET)

    def parse(self, output: str, exit_code: int) -> LintResult:
        found = [
            Finding(match["path"].removeprefix("./"), int(match["line"]), match["rule"].rstrip(":"), match["message"])
            for match in map(_LINE.match, output.splitlines())
            if match
        ]
        return LintResult(self.name, tuple(found))

    def fixes(self, paths: Sequence[str]) -> list[Command]:
        targets = tuple(map(operand, paths)) or (".",)
        commands: list[Command] = []
        if self.name == "ruff":
            commands.append(Command((self.program, "check", "--fix", "--force-exclude", *targets), _QUIET))
        if self.black:
            commands.append(Command((self.black, "--quiet", *targets), _QUIET, codes=(0,)))
        elif self.name == "ruff":
            commands.append(Command((self.program, "format", "--force-exclude", *targets), _QUIET, codes=(0,)))
        return commands
