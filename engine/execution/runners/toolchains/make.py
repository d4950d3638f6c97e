"""make test: what is left when no tool is recognised but the project says how it is tested."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from engine.execution.runners.toolchains.base import (
    Command,
    Finding,
    Linter,
    LintResult,
    Toolchain,
    read,
    uncounted,
)
from engine.execution.runners.toolchains.words import read_words
from engine.values import CheckResult

MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
SOURCE = (
    ".py", ".pyi", ".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".vue", ".svelte", ".go", ".rs", ".c", ".h", ".cc",
    ".cpp", ".hpp", ".java", ".kt", ".scala", ".rb", ".php", ".ex", ".exs", ".cs", ".swift", ".lua", ".sh", ".bash",
    ".pl", ".hs", ".ml", ".zig", ".dart", ".sql", ".css", ".scss",
)  # fmt: skip
"""Files that people write and linters read; not lock files, snapshots or settings."""

_PLACE = re.compile(r"^(?P<path>[^:\s]+):(?P<line>\d+):(?:\d+:)? (?P<message>.+)$")


def targets(folder: Path) -> set[str]:
    """The plain targets of a Makefile."""
    text = next((read(folder / name) for name in MAKEFILES if (folder / name).is_file()), "")
    return set(re.findall(r"^([A-Za-z0-9][\w-]*)\s*::?(?!=)", text, re.M))


class Make(Toolchain):
    """`make test` or `make check`. Only the exit code is certain; counts are read where the output is a known one."""

    name = "make"
    suffixes = ("",)
    exact = False

    def __init__(self, folder: Path, workspace: Path, target: str) -> None:
        super().__init__(folder, workspace)
        self.target = target
        self.title = f"make {target}"

    def test_command(self, tests: Sequence[str], report: Path) -> Command:
        return Command(("make", self.target), {"PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1"}, codes=(0, 1, 2))

    def parse(self, report: Path, output: str, exit_code: int) -> CheckResult:
        return read_words("make", output, exit_code) or uncounted("make", self.title, exit_code)

    def tests_for(self, paths: Sequence[str]) -> dict[str, list[str]]:
        return {path: [] for path in paths}

    def linter(self) -> Linter | None:
        return MakeLint() if "lint" in targets(self.folder) else None


class MakeLint(Linter):
    """`make lint`; lines that name a file and a line are findings."""

    name = "make lint"
    only_looks = False
    suffixes = SOURCE

    def lint(self, paths: Sequence[str], scratch: Path) -> Command:
        return Command(("make", "lint"), {"NO_COLOR": "1"}, codes=(0, 1, 2))

    def parse(self, output: str, exit_code: int) -> LintResult:
        found = [
            Finding(match["path"], int(match["line"]), "lint", match["message"])
            for match in map(_PLACE.match, output.splitlines())
            if match and exit_code != 0
        ]
        return LintResult(self.name, tuple(found))

    def fixes(self, paths: Sequence[str]) -> list[Command]:
        return []


def find_make(folder: Path, workspace: Path, looked: list[str]) -> Make | None:
    """make, when a Makefile has a target `test` or `check`."""
    if not any((folder / name).is_file() for name in MAKEFILES):
        return None
    known = targets(folder)
    target = next((name for name in ("test", "tests", "check") if name in known), None)
    looked.append("a target `test` or `check` in the Makefile" if target is None else "make on the PATH")
    return Make(folder, workspace, target) if target and shutil.which("make") else None
