"""The test tools and linters of one project, each a row of `tools.toml` with the folders of the project.

They make their command lines, hand the output of tests to `run_results`, and read the findings of linters.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from engine.execution.runners.toolchains import (
    FALLBACK,
    MISSING_KINDS,
    PACKAGE_MANAGERS,
    PROGRAM_FIXES,
    TOOL_TABLES,
    LinterRow,
    MissingItem,
    TestRunnerRow,
    ToolCommand,
    ToolRow,
    find_usual_fix,
    python_projects,
    read_text,
)
from engine.execution.runners.toolchains.run_results import FinishedRun
from engine.frozen import frozen, frozen_kw_only

MAX_REPORT_CHARS = 50_000_000
"""Maximum number of characters of a report that are read."""

Placeholders = dict[str, tuple[str, ...]]
"""The words that replace each name in braces of a command."""


@frozen_kw_only
class ProjectTool:
    """A tool of one project: a row of the table, and the folders of the project."""

    row: ToolRow
    folder: Path
    """The folder with the project's files."""
    workspace: Path
    """The same folder in the operator's tree, where the tools are installed. In a worktree it is not `folder`."""
    placeholders: Placeholders = field(default_factory=dict, hash=False)
    """The words in its commands that depend on the project."""
    install_command: str = ""
    """The command that installs the project's packages."""

    @property
    def name(self) -> str:
        """The name of its row."""
        return self.row.name

    def is_really_missing(self, missing: MissingItem) -> bool:
        """Whether an item that the output calls missing really is missing, and not a mistake in the project."""
        if missing.kind != "package":
            return True
        if self.row.language == "python":
            return python_projects.is_external_module(missing.name, self.folder, self.workspace)
        if self.row.language == "node" and self._has_node_packages:
            # If package.json does not name this package, that is a mistake in the project.
            return f'"{missing.name}"' in read_text(self.workspace / "package.json")
        return True

    @property
    def _has_node_packages(self) -> bool:
        """Whether the packages of a Node project are installed."""
        return (self.workspace / "node_modules").exists()

    def find_fix(self, missing: MissingItem) -> str:
        """The command for a missing item. If a script of package.json lacks a program and no packages are installed,
        that is the command which installs the packages."""
        is_packaged = missing.kind == "program" and missing.name not in PROGRAM_FIXES
        if is_packaged and self.row.language == "node" and not self._has_node_packages:
            return self.install_command
        registries = {
            host for row in PACKAGE_MANAGERS.values() if row.language == self.row.language for host in row.hosts
        }
        if missing.name in registries and (fix := MISSING_KINDS[missing.kind].get("fix_registry")):
            return str(fix)
        return find_usual_fix(missing, self.install_command or "install what the project needs")

    def _fill_command(self, template: str, placeholders: Placeholders) -> ToolCommand | None:
        """A command of the row with its placeholders replaced; None if one of them is unknown."""
        placeholders = {**self.placeholders, **placeholders}
        argv = fill_command(template, placeholders)
        environment = {name: _fill_text(value, placeholders) for name, value in self.row.environment.items()}
        if argv is None:
            return None
        return ToolCommand(argv, environment, self.row.exit_codes, created_files=self.row.created_files)


@frozen_kw_only
class Toolchain(ProjectTool):
    """A tool that runs one project's tests."""

    row: TestRunnerRow
    title: str
    """The name of its command on screens."""
    environment_without_tool: str = ""
    """The project's environment that lacks the tool, so that the operator's `interpreter` runs it; "" for none."""
    excluded_folders: tuple[str, ...] = ()
    """Folders whose tests other projects run."""

    @property
    def runs_single_tests(self) -> bool:
        """Whether it can run single tests by id."""
        return bool(self.row.single_tests_template)

    @property
    def interpreter(self) -> str:
        """The Python interpreter that runs the tests; "" for other languages."""
        return self.placeholders.get("python", ("",))[0]

    @property
    def substitution(self) -> str:
        """A clause that says which interpreter is used instead of the project's own, "" where none is."""
        if not self.environment_without_tool:
            return ""
        return f"{self.environment_without_tool} has no {self.title}; {self.interpreter} was used instead"

    def test_command(self, tests: Sequence[str], report: Path) -> ToolCommand:
        """The command that runs `tests`, which are ids, files or packages; without any, the whole suite. The tool may
        write to the file `report` in the session's scratch folder."""
        extra_name, extra_text = self.row.extra_file
        extra = report.parent / extra_name
        if extra_name:
            extra.write_text(extra_text, encoding="utf-8")
        paths = {"folder": self.folder, "report": report, "scratch": report.parent, "extra": extra}
        placeholders = _make_test_placeholders(self.row, tests) | {name: (str(path),) for name, path in paths.items()}
        command = self._fill_command(self.row.single_tests_template if tests else self.row.test_command, placeholders)
        if command is None:
            raise ValueError(f"{self.row.name}: its command contains an unknown placeholder")
        argv, environment = command.argv, dict(command.environment)
        if not tests and "pytest" in argv:
            argv += tuple(f"--ignore={folder}" for folder in self.excluded_folders)
        if self.row.language == "python":
            start = [str(self.folder / name) for name in self.placeholders.get("start", ())]
            # The code of the folder is imported, and not that of another tree which is installed as editable.
            roots = [str(self.folder / name) for name in ("src", "") if (self.folder / name).is_dir()]
            paths_of_imports = filter(None, [*start, *roots, os.environ.get("PYTHONPATH")])
            environment["PYTHONPATH"] = os.pathsep.join(paths_of_imports)
        return replace(command, argv=argv, environment=environment, report=report if self._writes_report else None)

    def read_run(self, report: Path, output: str, exit_code: int) -> FinishedRun:
        """A run of `test_command` that ended, with its report. The failing ids in its result can be passed to
        `test_command`."""
        text = read_text(report, MAX_REPORT_CHARS) if self._writes_report else ""
        return FinishedRun(self.row.name, self.title, self.row.output_format, output, exit_code, text, self.folder)

    def covers(self, path: str) -> bool:
        """Whether a changed file can concern the tests, by its suffix."""
        return not self.row.suffixes or path.endswith(self.row.suffixes)

    def find_tests_for(self, paths: Sequence[str]) -> dict[str, list[str]]:
        """For each changed file (relative to `folder`), its tests in the form for `test_command`; [] if none are
        known."""
        if self.row.output_format == "junit":
            return python_projects.find_related_tests(self.folder, paths)
        if self.row.language == "go":
            return {path: _find_go_package(self.folder, path) for path in paths}
        return {path: [path] if self.row.runs_files and re.search(self.row.test_files, path) else [] for path in paths}

    def select_existing_tests(self, tests: Sequence[str]) -> list[str]:
        """Arguments for `test_command` that run those of `tests` whose files exist; [] for none."""
        if self.row.output_format != "junit":
            return list(tests)
        files = dict.fromkeys(test.partition("::")[0] for test in tests)  # pytest stops at an id that does not exist
        return [file for file in files if (self.folder / file).is_file()]

    @property
    def _writes_report(self) -> bool:
        """Whether `test_command` writes a report."""
        return "{report}" in self.row.test_command


@frozen_kw_only
class Linter(ProjectTool):
    """A linter or type checker of one project."""

    row: LinterRow

    def lint_command(self, paths: Sequence[str], scratch: Path) -> ToolCommand:
        """The command that checks `paths` (relative to `folder`); without any, the whole project. It may write to
        `scratch`."""
        return self._fill_paths(self.row.lint_command, paths, scratch) or ToolCommand(())

    def parse(self, output: str, exit_code: int) -> list[Finding]:
        """The findings in the output of `lint_command`. A tool that broke has no findings, and an exit code that is not
        among those of the command."""
        if exit_code == 0 and self.row.language == FALLBACK:
            return []
        findings = read_findings(self.row.output_format, output)
        prefix = f"{self.folder}/"
        return [replace(finding, path=finding.path.removeprefix(prefix)) for finding in findings]

    def make_fix_commands(self, paths: Sequence[str], scratch: Path) -> list[ToolCommand]:
        """The commands that format `paths` and apply safe fixes, in order; [] if it has none."""
        commands = (self._fill_paths(template, paths, scratch) for template in self.row.fix_commands)
        return [command for command in commands if command is not None]

    def _fill_paths(self, template: str, paths: Sequence[str], scratch: Path) -> ToolCommand | None:
        """A command of the row for `paths`; None if a placeholder is unknown."""
        folders = sorted({str(PurePosixPath(path).parent) for path in paths})
        placeholders = {
            "paths": tuple(map(_make_operand, paths)) or (".",), "scratch": (str(scratch),),
            "packages": tuple(f"./{folder}" if folder != "." else "." for folder in folders) or ("./...",),
        }  # fmt: skip
        return self._fill_command(template, placeholders)

    def covers(self, path: str) -> bool:
        """Whether it reads a file, by the file's suffix."""
        return path.endswith(self.row.suffixes) and "__snapshots__" not in path


# -- filling in the commands of the table

_BRACES = re.compile(r"\{(-*\w*)\}")
"""A placeholder in a command."""


def fill_command(template: str, placeholders: Placeholders) -> tuple[str, ...] | None:
    """A command of the table with its placeholders replaced; None if one of them is unknown."""
    argv: list[str] = []
    for word in shlex.split(template):
        if any(name not in placeholders for name in _BRACES.findall(word)):
            return None
        placeholder = _BRACES.fullmatch(word)
        if placeholder is not None:
            argv += placeholders[placeholder[1]]
        else:
            argv.append(_fill_text(word, placeholders))
    return tuple(argv)


def _fill_text(text: str, placeholders: Placeholders) -> str:
    """A text with its placeholders replaced by their words."""
    return _BRACES.sub(lambda match: " ".join(placeholders[match[1]]), text)


def _make_test_placeholders(row: TestRunnerRow, tests: Sequence[str]) -> Placeholders:
    """The placeholders for single tests, in all forms that commands use."""
    if row.language == "go":
        return _make_go_placeholders(tests)
    operands = tuple(map(_make_operand, tests))
    if row.language == "rust":  # cargo takes no path, so a name with a dash cannot be made an operand
        operands = tuple(test for test in tests if not test.startswith("-"))
    # Every language reads an expression with these escapes in the same way.
    names = [re.sub(r"([.*+?^${}()|\[\]\\/])", r"\\\1", test) for test in tests]
    pattern = f"^({'|'.join(names)})$"
    return {
        "tests": operands,
        "pattern": (pattern,),
        "name": (shlex.quote(f"--name=/{pattern}/"),),
        "each": tuple(word for test in tests for word in ("--tests", test)),
        "commas": (",".join(tests),),
        "alternatives": ("|".join(f"FullyQualifiedName={test}" for test in tests),),
    }


def _make_go_placeholders(tests: Sequence[str]) -> Placeholders:
    """The packages of the tests, and the expression that selects tests in them, if every id names one."""
    packages = [test.partition("::")[0] for test in tests]
    names = [test.partition("::")[2] for test in tests]
    pattern = "/".join(f"^{re.escape(part)}$" for part in names[0].split("/")) if names else ""
    if len(names) > 1:  # the names of the top tests
        tops = dict.fromkeys(name.split("/")[0] for name in names)
        pattern = f"^({'|'.join(map(re.escape, tops))})$"
    selection = (f"-run={pattern}",) if names and all(names) else ()
    return {"packages": tuple(dict.fromkeys(map(_make_operand, packages))), "pattern": selection}


def _make_operand(path: str) -> str:
    """A path as an operand of a command, changed so that a dash at its beginning does not make it an option."""
    return f"./{path}" if path.startswith("-") else path


def _find_go_package(folder: Path, path: str) -> list[str]:
    """The package of a changed file, if it has tests, in the form for `test_command`; [] else."""
    package = PurePosixPath(path).parent
    has_tests = path.endswith(".go") and any((folder / package).glob("*_test.go"))
    return ["./" if str(package) == "." else f"./{package}"] if has_tests else []


# -- findings of linters

_CLIPPY_HEAD = re.compile(r"^(?P<level>warning|error)(?:\[(?P<code>\w+)\])?: (?P<message>.*)$")
_CLIPPY_PLACE = re.compile(r"^ *--> (?P<path>[^:\n]+):(?P<line>\d+):\d+$")
_CLIPPY_RULE = re.compile(
    r"index\.html#(?P<clippy>\w+)|`#\[(?:warn|deny)\((?P<lint>[\w:]+)\)\]`|`-[DW] (?P<flag>[\w:-]+)`"
)
"""The first line of a block, the line with its position, and the rule in its link or its note."""


@frozen
class Finding:
    """One finding of a linter."""

    path: str
    line: int
    """The line from 1; 0 for the whole file."""
    rule: str
    message: str


def read_findings(output_format: str, output: str) -> list[Finding]:
    """The findings in the output of a linter or type checker; [] if it printed no position."""
    if output_format == "clippy":
        findings = _read_clippy(output)
    else:
        findings = _read_lines(TOOL_TABLES["findings"][output_format], output)
    return list(dict.fromkeys(findings))  # clippy's --all-targets prints those of a library again for its tests


def _read_lines(table: Mapping[str, Any], output: str) -> Iterator[Finding]:
    """Read each line that matches `line` as one finding. One without a path is in the file of the last `heading`."""
    line_pattern = "".join(table["line"])
    heading_pattern = table.get("heading", "(?!)")  # "(?!)" matches nothing
    heading_path = ""
    for line in output.splitlines():
        if match := re.match(line_pattern, line):
            groups = match.groupdict()
            path = groups.get("path", heading_path).removeprefix("./")
            rule = (groups.get("rule") or table["rule"]).rstrip(":")
            message = groups.get("message", table.get("message", "")).strip()
            yield Finding(path, int(groups.get("line", 0)), rule, message)
        elif match := re.match(heading_pattern, line):
            heading_path = match["path"].strip()


def _read_clippy(output: str) -> Iterator[Finding]:
    """Read each `warning:` or `error:` block with a position as one finding. The rule is in its link or its note."""
    for block in re.split(r"\n(?=(?:warning|error)(?:\[\w+\])?: )", output):
        lines = block.splitlines()
        head = _CLIPPY_HEAD.match(lines[0]) if lines else None
        position = next(filter(None, map(_CLIPPY_PLACE.match, lines)), None)
        if head and position:
            match = _CLIPPY_RULE.search(block)
            rule = (match["clippy"] or match["lint"] or match["flag"]) if match else (head["code"] or head["level"])
            rule = rule.replace("-", "_").removeprefix("clippy::")
            yield Finding(position["path"], int(position["line"]), rule, head["message"])
