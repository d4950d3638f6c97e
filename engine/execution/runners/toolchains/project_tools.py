"""Rows of the table bound to one project: command lines to run, and what came of them read."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from engine.execution.runners.toolchains import output_readers, python
from engine.execution.runners.toolchains.missing_tools import PROGRAM_FIXES, Missing, missing_fix
from engine.execution.runners.toolchains.tool_table import (
    FALLBACK,
    Command,
    Finding,
    FinishedRun,
    LinterRow,
    TestRunnerRow,
    ToolRow,
    as_operand,
    language_of,
    read_text,
)
from engine.model import CheckResult

MAX_REPORT_CHARACTERS = 50_000_000
"""Characters of a report that are read."""

Placeholders = dict[str, tuple[str, ...]]
"""What stands for each word in braces of a command."""

_BRACES = re.compile(r"\{(-*\w*)\}")


def fill_command(template: str, words: Placeholders) -> tuple[str, ...] | None:
    """A command of the table with its words filled in; None when one of them is not there."""
    argv: list[str] = []
    for word in shlex.split(template):
        if any(name not in words for name in _BRACES.findall(word)):
            return None
        if (whole := _BRACES.fullmatch(word)) is not None:
            argv += words[whole[1]]
        else:
            argv.append(_fill_text(word, words))
    return tuple(argv)


def _fill_text(text: str, words: Placeholders) -> str:
    return _BRACES.sub(lambda match: " ".join(words[match[1]]), text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectTool:
    """A row of the table bound to one project.

    `folder` holds the project's files, `workspace` is the same folder in the operator's tree, in which the tools are
    installed; they differ in a worktree. `words` stand for the words in braces, `install` is the command that installs
    the project's packages.
    """

    row: ToolRow
    folder: Path
    workspace: Path
    words: Placeholders = field(default_factory=dict, hash=False)
    install: str = ""

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Endings of files whose change matters to it; () when any may."""
        return self.row.suffixes

    def is_missing(self, missing: Missing) -> bool:
        """Whether what the output calls missing is not there, and no mistake in the project itself."""
        if missing.kind != "package":
            return True
        if self.row.kind == "python":
            return python.is_external_module(missing.name, self.folder, self.workspace)
        if self.row.kind == "node" and (self.workspace / "node_modules").exists():
            # A package that package.json does not name, where the others are installed, is a mistake in the project.
            return f'"{missing.name}"' in read_text(self.workspace / "package.json")
        return True

    def fix(self, missing: Missing) -> str:
        """What brings it. Without installed packages a program that a script calls comes with them."""
        comes_along = missing.kind == "program" and missing.name not in PROGRAM_FIXES
        if comes_along and self.row.kind == "node" and not (self.workspace / "node_modules").exists():
            return self.install
        return missing_fix(missing, self.install or "install what the project needs")

    def _command(self, template: str, words: Placeholders) -> Command | None:
        """A command of the row with its words filled in, None when one of them is not there."""
        words = {**self.words, **words}
        argv = fill_command(template, words)
        environment = {name: _fill_text(value, words) for name, value in self.row.environment.items()}
        return None if argv is None else Command(argv, environment, self.row.exit_codes, makes=self.row.created_files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain(ProjectTool):
    """What runs one project's tests. `top` is the top of the operator's repository; `below` are folders whose tests
    another project runs."""

    row: TestRunnerRow
    top: Path
    title: str
    below: tuple[str, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether single tests can be asked for by id."""
        return bool(self.row.single)

    @property
    def where(self) -> str:
        """The interpreter that runs the tests, "" where there is only one."""
        return self.words.get("python", ("",))[0]

    def test_command(self, tests: Sequence[str], report: Path) -> Command:
        """The command that runs `tests` (ids, files or packages; none = the whole suite). `report` is a file in the
        session's scratch folder which the tool may write."""
        name, text = self.row.extra_file
        extra = report.parent / name
        if name:
            extra.write_text(text, encoding="utf-8")
        paths = {"folder": self.folder, "report": report, "scratch": report.parent, "extra": extra}
        words = _test_placeholders(self.row, tests) | {name: (str(place),) for name, place in paths.items()}
        command = self._command(self.row.single if tests else self.row.test_command, words)
        if command is None:
            raise ValueError(f"{self.row.name}: its command contains an unknown placeholder")
        argv, environment = command.argv, dict(command.environment)
        if not tests and "pytest" in argv:
            argv += tuple(f"--ignore={folder}" for folder in self.below)
        if self.row.kind == "python":
            start = [str(self.folder / name) for name in self.words.get("start", ())]
            environment["PYTHONPATH"] = os.pathsep.join([*start, *python.import_roots(self.folder)])
        return replace(command, argv=argv, environment=environment, report=report if self._reports else None)

    def parse(self, report: Path, output: str, exit_code: int) -> CheckResult:
        """What a finished run said. Failing ids can be handed to `test_command`; a run that broke before any test
        ran has `errors` ≥ 1 and nothing passed."""
        result = output_readers.read_result(self.row.output_format, self._finished(report, output, exit_code))
        return result or output_readers.uncounted_result(self.row.name, self.title, exit_code)

    def failure_texts(self, report: Path, output: str, failing: tuple[str, ...]) -> Mapping[str, str]:
        """What a finished run said about each of `failing`, "" where nothing is known."""
        return output_readers.failure_texts(self._finished(report, output, 1), failing)

    @property
    def _reports(self) -> bool:
        return "{report}" in self.row.test_command

    def _finished(self, report: Path, output: str, exit_code: int) -> FinishedRun:
        text = read_text(report, MAX_REPORT_CHARACTERS) if self._reports else ""
        return FinishedRun(self.row.name, self.title, output, exit_code, text, self.folder)

    def takes(self, path: str) -> bool:
        """Whether a changed file concerns it."""
        return not self.row.suffixes or path.endswith(self.row.suffixes)

    def tests_for(self, paths: Sequence[str]) -> dict[str, list[str]]:
        """For each changed file (relative to `folder`) its tests, as `test_command` takes them; [] when none are
        known."""
        if self.row.output_format == "junit":
            return python.related_tests(
                paths, python.read_test_files(self.folder), python.reexported_modules(self.folder, paths)
            )
        if self.row.kind == "go":
            return {path: _go_package(self.folder, path) for path in paths}
        named_by_file = self.row.name in ("rspec", "mix")  # of all others only the compiler or the script knows
        return {path: [path] if named_by_file and re.search(self.row.test_files, path) else [] for path in paths}

    def present(self, tests: Sequence[str]) -> list[str]:
        """What to run so that those of `tests` run that exist in this state of the files; [] when none does."""
        if self.row.output_format != "junit":
            return list(tests)
        files = dict.fromkeys(test.partition("::")[0] for test in tests)  # pytest stops at the first id it lacks
        return [file for file in files if (self.folder / file).is_file()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Linter(ProjectTool):
    """What looks at one project's source files."""

    row: LinterRow

    def lint(self, paths: Sequence[str], scratch: Path) -> Command:
        """The command that looks at `paths` (relative to `folder`), at everything when there are none; what it must
        write it writes under `scratch`."""
        return self._over(self.row.lint_command, paths, scratch) or Command(())

    def parse(self, output: str, exit_code: int) -> list[Finding]:
        """The findings in what `lint` printed. A tool that broke has no findings and an exit code not in `codes`."""
        found = (
            output_readers.findings(self.row.output_format, output) if exit_code or self.row.kind != FALLBACK else []
        )
        prefix = f"{self.folder}/"
        return [replace(finding, path=finding.path.removeprefix(prefix)) for finding in found]

    def fixes(self, paths: Sequence[str], scratch: Path) -> list[Command]:
        """Formatter and safe fixes, in order; [] when it mends nothing."""
        commands = (self._over(template, paths, scratch) for template in self.row.fix_commands)
        return [command for command in commands if command is not None]

    def _over(self, template: str, paths: Sequence[str], scratch: Path) -> Command | None:
        folders = sorted({str(PurePosixPath(path).parent) for path in paths})
        words = {
            "paths": tuple(map(as_operand, paths)) or (".",), "scratch": (str(scratch),),
            "packages": tuple(f"./{folder}" if folder != "." else "." for folder in folders) or ("./...",),
        }  # fmt: skip
        return self._command(template, words)

    def takes(self, path: str) -> bool:
        """Whether a file is a source file of a kind that it reads."""
        return path.endswith(self.row.suffixes) and "__snapshots__" not in path


def _test_placeholders(row: TestRunnerRow, tests: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Single tests in each of the forms that commands take."""
    if row.kind == "go":
        names = [test.partition("::")[2] for test in tests]
        packages = tuple(dict.fromkeys(as_operand(test.partition("::")[0]) for test in tests))
        return {"packages": packages, "pattern": (f"-run={_go_pattern(names)}",) if names and all(names) else ()}
    plain = [test for test in tests if not test.startswith("-")] if row.kind == "rust" else list(map(as_operand, tests))
    pattern = f"^({'|'.join(map(_escape_name, tests))})$"
    return {
        "tests": tuple(plain),
        "pattern": (pattern,),
        "name": (shlex.quote(f"--name=/{pattern}/"),),
        "each": tuple(word for test in tests for word in ("--tests", test)),
        "commas": (",".join(tests),),
        "alternatives": ("|".join(f"FullyQualifiedName={test}" for test in tests),),
    }


def _escape_name(name: str) -> str:
    """The name of a test as a regular expression that every language reads the same."""
    return re.sub(r"([.*+?^${}()|\[\]\\/])", r"\\\1", name)


def _go_pattern(names: Sequence[str]) -> str:
    """One `-run` expression: exact for a test and its subtests, any of several by their top name."""
    if len(names) == 1:
        return "/".join(f"^{re.escape(part)}$" for part in names[0].split("/"))
    tops = dict.fromkeys(name.split("/")[0] for name in names)
    return f"^({'|'.join(map(re.escape, tops))})$"


def _go_package(folder: Path, path: str) -> list[str]:
    place = PurePosixPath(path).parent
    has_tests = path.endswith(".go") and any((folder / place).glob("*_test.go"))
    return ["./" if str(place) == "." else f"./{place}"] if has_tests else []


@contextmanager
def linked_packages(tools: Sequence[Toolchain | Linter], folder: Path, workspace: Path) -> Iterator[None]:
    """For the time of a run, folders which only the operator's tree has (`node_modules`) are linked into the worktree
    `folder`, for the projects of `tools` and for the folders above them.

    The links are gone afterwards, so that they can be part of no change set.
    """
    used: list[Toolchain | Linter] = list(tools) if folder != workspace else []
    folders = {above for tool in used for above in python.folders_up_to(tool.folder, folder)}
    names = {name for tool in used for name in language_of(tool.row.kind).linked_folders}
    links: list[Path] = []
    for place in sorted(folders):
        for name in sorted(names):
            link, source = place / name, workspace / place.relative_to(folder) / name
            if source.is_dir() and not os.path.lexists(link) and place.is_dir():
                links.append(link)
                link.symlink_to(source, target_is_directory=True)
    try:
        yield
    finally:
        for link in links:
            link.unlink(missing_ok=True)
