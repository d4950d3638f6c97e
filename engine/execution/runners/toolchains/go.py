"""go test, go vet and gofmt."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from engine.execution.runners.toolchains.base import Command, Finding, Linter, LintResult, Toolchain, operand, result
from engine.values import CheckResult

_TEST = re.compile(r"^ *--- (?P<what>PASS|FAIL|SKIP): (?P<name>.+) \((?P<seconds>[\d.]+)s\)$")
_PACKAGE = re.compile(r"^(?P<what>ok|FAIL)\s+(?P<package>\S+)(?:\s+(?P<seconds>[\d.]+)s)?(?:\s+[\[(].*)?$")
_VET = re.compile(r"^(?:vet: )?(?:\./)?(?P<path>[^:\s]+\.go):(?P<line>\d+)(?::\d+)?: (?P<message>.*)$")


class Go(Toolchain):
    """A Go module. Ids are `package::TestName`; a changed file has the tests of its package."""

    name = "go"
    title = "go test"
    suffixes = (".go", "go.mod")

    def test_command(self, tests: Sequence[str], report: Path) -> Command:
        packages = list(dict.fromkeys(operand(test.partition("::")[0]) for test in tests)) or ["./..."]
        names = [test.partition("::")[2] for test in tests]
        argv = ["go", "test", "-v", "-count=1"]  # its text, not -json: the operator reads along
        if names and all(names):
            argv.append(f"-run={_pattern(names)}")
        return Command((*argv, *packages))

    def parse(self, report: Path, output: str, exit_code: int) -> CheckResult:
        return read_go(output, exit_code)

    def tests_for(self, paths: Sequence[str]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path in paths:
            folder = PurePosixPath(path).parent
            has_tests = path.endswith(".go") and any((self.folder / folder).glob("*_test.go"))
            found[path] = ["./" if str(folder) == "." else f"./{folder}"] if has_tests else []
        return found

    def linter(self) -> Linter | None:
        return GoVet()


def _pattern(names: Sequence[str]) -> str:
    """One `-run` expression: exact for a test and its subtests, any of several by their top name."""
    if len(names) == 1:
        return "/".join(f"^{re.escape(part)}$" for part in names[0].split("/"))
    tops = dict.fromkeys(name.split("/")[0] for name in names)
    return f"^({'|'.join(map(re.escape, tops))})$"


def read_go(output: str, exit_code: int) -> CheckResult:
    """The text of `go test -v` as a result. A package's tests are the lines before its own `ok` or `FAIL` line."""
    durations: dict[str, float] = {}
    outcome: dict[str, str] = {}
    broken: list[str] = []
    seconds = 0.0
    tests: list[re.Match[str]] = []
    for line in output.splitlines():
        if match := _TEST.match(line):
            tests.append(match)
        elif match := _PACKAGE.match(line):
            package = match["package"]
            for test in tests:
                outcome[f"{package}::{test['name']}"] = test["what"]
                durations[f"{package}::{test['name']}"] = float(test["seconds"])
            if match["what"] == "FAIL" and not any(test["what"] == "FAIL" for test in tests):
                broken.append(package)
            seconds += float(match["seconds"] or 0)
            tests = []
    parents = {name.rpartition("/")[0] for name in outcome if "/" in name.partition("::")[2]}
    leaves = {name: what for name, what in outcome.items() if name not in parents}
    failing = [name for name, what in leaves.items() if what == "FAIL"]
    failing += [name for name in sorted(parents) if outcome.get(name) == "FAIL" and not _below(name, failing)]
    if exit_code != 0 and not failing and not broken:
        broken.append(next((line for line in output.splitlines() if line.strip()), "go test broke"))
    return result(
        "go",
        passed=sum(what == "PASS" for what in leaves.values()),
        failed=len(failing),
        skipped=sum(what == "SKIP" for what in leaves.values()),
        errors=len(broken),
        seconds=seconds,
        failing=[*failing, *broken],
        durations={name: durations[name] for name in leaves},
    )


def _below(name: str, failing: Sequence[str]) -> bool:
    return any(other.startswith(f"{name}/") for other in failing)


class GoVet(Linter):
    """go vet looks at packages; gofmt mends files."""

    name = "go vet"
    suffixes = (".go",)

    def lint(self, paths: Sequence[str], scratch: Path) -> Command:
        folders = sorted({str(PurePosixPath(path).parent) for path in paths})
        packages = [f"./{folder}" if folder != "." else "." for folder in folders] or ["./..."]
        return Command(("go", "vet", *packages), codes=(0, 1, 2))

    def parse(self, output: str, exit_code: int) -> LintResult:
        found = [
            Finding(match["path"], int(match["line"]), "vet", match["message"])
            for match in map(_VET.match, output.splitlines())
            if match
        ]
        return LintResult(self.name, tuple(found))

    def fixes(self, paths: Sequence[str]) -> list[Command]:
        return [Command(("gofmt", "-w", *(map(operand, paths) if paths else (".",))), codes=(0,))]


def find_go(folder: Path, workspace: Path, looked: list[str]) -> Go | None:
    """go, when there is a go.mod."""
    if not (folder / "go.mod").is_file():
        return None
    looked.append("go on the PATH")
    return Go(folder, workspace) if shutil.which("go") else None
