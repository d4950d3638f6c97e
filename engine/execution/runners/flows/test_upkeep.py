"""Flows that keep a test suite good: they find changed lines that no test runs, and skip unreliable tests a while."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, Field

from engine.execution.runners.flow import (
    CannotRun,
    FlowError,
    FlowResult,
    Job,
    Line,
    Place,
    ProjectFlow,
    RepoPath,
    TestId,
)
from engine.execution.runners.flows.leftovers import read_own_changes
from engine.execution.runners.flows.steps import count, describe_check, in_project, join_names, last_line
from engine.execution.runners.flows.test_runs import all_tests, find_toolchains, run_tests, toolchain_for
from engine.execution.runners.toolchains.detection import ProjectFolder, add_package_command
from engine.execution.runners.toolchains.project_tools import Toolchain
from engine.execution.runners.toolchains.tool_table import Command, is_inside, read_text
from engine.files import read_plain
from engine.git.leftovers import UNTIL
from engine.model import CheckResult

# -- Find changed lines that no test runs, measured with the project's own coverage -------------------------------

MAX_REPORT_BYTES = 100_000_000

_LIST_INSTALLED = (
    "import importlib.util as u; print(*(n for n in ('coverage', 'pytest_cov', 'xdist') if u.find_spec(n)))"
)

_COVERAGE_SETTING = re.compile(r"^\[(?:tool\.)?coverage\b|--cov\b|pytest-cov", re.M)

_SETTINGS_FILES = ("pyproject.toml", "setup.cfg", "tox.ini", "pytest.ini", "noxfile.py")


def measures_coverage(folder: Path, interpreter: str) -> bool:
    """Whether a project configured coverage and its environment has it. Reads files, starts nothing."""
    home = Path(interpreter).parent.parent
    if not any(next(home.glob(f"{lib}/site-packages/coverage/__init__.py"), None) for lib in ("lib/python3*", "Lib")):
        return False
    if (folder / ".coveragerc").is_file():
        return True
    return any(_COVERAGE_SETTING.search(read_text(folder / name)) for name in _SETTINGS_FILES)


class UncoveredLines(ProjectFlow):
    """Runs the tests with coverage, whose data goes to the scratch folder, and reports only lines that changed."""

    name = "uncovered_lines"
    label = "Find changed lines that no test runs"
    place = Place.CHECK
    paths: list[RepoPath] = Field(min_length=1, max_length=200, description="changed source files")
    whole: bool = Field(default=False, description="run the whole suite, not only the tests of these files")

    def describe(self) -> str:
        which = "the whole suite" if self.whole else "the tests"
        return f"Run {which} with coverage, for {count(len(self.paths), 'changed file')}"

    def run(self, job: Job) -> FlowResult:
        tool = next((tool for tool in find_toolchains(job, self.project) if tool.name == "pytest"), None)
        if tool is None:
            raise FlowError("only pytest can be measured, and this project's tests run with another tool")
        changed = {
            inside: lines
            for path, lines in read_own_changes(job).lines
            if path in self.paths
            for inside in self.paths_inside([path])
        }
        if not changed:
            return FlowResult("Nothing to measure: these files have no changed lines any more")
        tests = [] if self.whole else all_tests(tool.tests_for(list(changed)))
        check, missing = _measure(job, self.project, tool, tests, sorted(changed))
        uncovered: dict[str, list[int]] = {}
        for path, lines in sorted(changed.items()):
            if path not in missing:
                job.say(f"{path}: not measured, coverage is configured to leave it out")
            elif hits := sorted(set(lines) & missing[path]):
                uncovered[path] = hits
                job.say(f"{path} {format_line_ranges(hits)}: no test runs {'this' if len(hits) == 1 else 'these'}")
        facts: dict[str, object] = {"uncovered": uncovered, "whole": not tests}
        if not uncovered:
            summary = f"The tests run every measured changed line; {describe_check(check)}"
            return FlowResult(summary, check=check, facts=facts)
        if check.green:
            facts["next"] = "let_agent_fix"
        scope = "none of their tests runs" if tests else "no test runs"
        number = sum(map(len, uncovered.values()))
        files = join_names([f"{path} {format_line_ranges(lines)}" for path, lines in uncovered.items()], 3)
        summary = f"{files}: {scope} {'this line' if number == 1 else f'these {number} lines'}; {describe_check(check)}"
        return FlowResult(summary, check=check, sound=False, facts=facts, full=not tests)


def _measure(
    job: Job, project: str, tool: Toolchain, tests: Sequence[str], paths: Sequence[str]
) -> tuple[CheckResult, dict[str, set[int]]]:
    """The result of the tests, and by file the lines that none of them ran. Raises `CannotRun` without coverage."""
    interpreter = tool.test_command([], job.scratch / "report.xml").argv[0]
    listing = job.run([interpreter, "-c", _LIST_INSTALLED], cwd=tool.folder, quiet=True)
    installed = listing.output.split()
    if not listing.ok or "coverage" not in installed:
        folder = ProjectFolder.of_operator(job.workspace / project, job.workspace)
        raise CannotRun(
            "coverage is not installed in the project's environment", add_package_command(folder, "coverage")
        )
    data = job.scratch / "coverage.data"
    folders = sorted({str(PurePosixPath(path).parent) for path in paths})
    options = [f"--data-file={data}", f"--source={','.join(folders)}"]
    # pytest-cov would replace our measurement, and workers of xdist would not be measured.
    disabled = {"pytest_cov": "--no-cov", "xdist": "-n0"}
    addopts = " ".join(option for plugin, option in disabled.items() if plugin in installed)

    def wrap(command: Command) -> Command:
        argv = (command.argv[0], "-m", "coverage", "run", *options, *command.argv[1:])
        return replace(command, argv=argv, environment={**command.environment, "PYTEST_ADDOPTS": addopts})

    check = run_tests(job, tool, tests, wrap=wrap)
    return check, _uncovered_by_file(job, tool, interpreter, data)


def _uncovered_by_file(job: Job, tool: Toolchain, interpreter: str, data: Path) -> dict[str, set[int]]:
    """The lines that no test ran, by file, from coverage's `data`. Raises `CannotRun` when there is none."""
    report = job.scratch / "coverage.json"
    if not data.exists():  # `parallel` is configured: each process wrote a file of its own
        job.run([interpreter, "-m", "coverage", "combine", f"--data-file={data}"], cwd=tool.folder, quiet=True)
    options = [f"--data-file={data}", "-o", str(report), "--fail-under=0", "--ignore-errors"]
    done = job.run([interpreter, "-m", "coverage", "json", *options], cwd=tool.folder, quiet=True)
    try:
        files = json.loads(read_plain(report, MAX_REPORT_BYTES))["files"]
    except (OSError, ValueError, KeyError) as error:
        raise CannotRun(
            f"coverage measured nothing: {last_line(done.output)}", "run it in a terminal to see why"
        ) from error
    return {name.replace("\\", "/"): set(entry["missing_lines"]) for name, entry in files.items()}


def format_line_ranges(lines: Sequence[int]) -> str:
    """`3, 5-7` for 3, 5, 6, 7, which are in order."""
    ranges: list[list[int]] = []
    for line in lines:
        if ranges and line == ranges[-1][1] + 1:
            ranges[-1][1] = line
        else:
            ranges.append([line, line])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


# -- Skip unreliable tests until a day, so that they are not forgotten --------------------------------------------

MAX_TEST_FILE_BYTES = 5_000_000


def _check_day(text: str) -> str:
    return date.fromisoformat(text).isoformat()


class Quarantine(ProjectFlow):
    """Puts `pytest.mark.skipif` with a date above each test, and runs the file."""

    name = "quarantine"
    label = "Quarantine unreliable tests"
    place = Place.CHANGE_SET
    tests: list[TestId] = Field(min_length=1, max_length=20, description="ids of the tests, as pytest names them")
    until: Annotated[Line, AfterValidator(_check_day)] = Field(
        description="the day on which they run again, such as 2026-12-07"
    )
    why: Line = Field(default="flaky", max_length=120, description="the reason, for example `flaky: failed 3 of 20`")

    def describe(self) -> str:
        return f"Skip {join_names(self.tests, 2)}{in_project(self.project)} until {self.until}"

    def run(self, job: Job) -> FlowResult:
        tool = toolchain_for(find_toolchains(job, self.project), self.tests)
        if tool.name != "pytest" or any(
            ".py::" not in test or not is_inside(test.partition("::")[0]) for test in self.tests
        ):
            raise FlowError("only pytest tests can be skipped until a date")
        until, marked = date.fromisoformat(self.until), []
        for test in self.tests:
            path, _, rest = test.partition("::")
            file = tool.folder / path
            try:
                text = read_plain(file, MAX_TEST_FILE_BYTES, follow=False).decode()
                after = add_skip_mark(text, rest.partition("[")[0].split("::"), until, self.why)
            except (OSError, ValueError, SyntaxError) as error:
                raise FlowError(f"{path} cannot be changed: {error!s}") from error
            if after is None:
                job.say(f"{test}: already has its own skip mark")
                continue
            file.write_bytes(after.encode())
            marked.append(test)
            job.say(f"{test} is skipped until {self.until}")
        if not marked:
            return FlowResult("Nothing changed: these tests are already in quarantine")
        done = f"{count(len(marked), 'test')} skipped until {self.until}"
        try:
            check = run_tests(job, tool, sorted({test.partition("::")[0] for test in marked}))
        except CannotRun as error:
            job.say(str(error))
            return FlowResult(f"{done}; not tested: {error.message}")
        facts = {"tests": marked, "until": self.until}
        return FlowResult(f"{done}; its file: {describe_check(check)}", check=check, facts=facts)


def add_skip_mark(text: str, names: list[str], until: date, why: str) -> str | None:
    """The text of a test file with a skip mark above one test, and the imports that the mark needs; None when the test
    has the mark already. `names` are the test's classes and its function. A mark whose day is over is replaced.

    Raises `ValueError` when there is no such test, `SyntaxError` when the file does not parse.
    """
    tree = ast.parse(text)
    node = _find_test(tree, names)
    rows = text.split("\n")
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    old = [decorator for decorator in node.decorator_list if UNTIL in ast.unparse(decorator)]
    if any(until.isoformat() in ast.unparse(decorator) for decorator in old):
        return None
    newline = "\r" if rows[0].endswith("\r") else ""
    imported = re.search(r"^from datetime import date(?: as (\w+))?[ \t\r]*$", text, re.M)
    day = (imported[1] or "date") if imported else "_date" if re.search(r"\bdate\b", text) else "date"
    wanted = [] if imported else ["from datetime import date" + (" as _date" if day == "_date" else "")]
    wanted += [] if re.search(r"^import pytest\b", text, re.M) else ["import pytest"]
    quote = "'" if text.count("'") > text.count('"') else '"'
    reason = f"{why}; {UNTIL} {until.isoformat()}".replace("\\", "").replace(quote, "")
    indent = " " * (len(rows[first - 1]) - len(rows[first - 1].lstrip()))
    condition = f"{day}.today() < {day}({until.year}, {until.month}, {until.day})"
    mark = f"@pytest.mark.skipif({condition}, reason={quote}{reason}{quote})"
    for decorator in reversed(old):
        del rows[decorator.lineno - 1 : decorator.end_lineno]
    rows.insert(first - 1, f"{indent}{mark}{newline}")
    at = _import_row(tree)
    rows[at:at] = [f"{line}{newline}" for line in wanted]
    after = "\n".join(rows)
    ast.parse(after)
    return after


def _import_row(tree: ast.Module) -> int:
    """The index of the row for new imports: before the first import of the file, behind its docstring and those from
    the future."""
    at = 0
    for statement in tree.body:
        is_docstring = isinstance(statement, ast.Expr) and at == 0
        if is_docstring or (isinstance(statement, ast.ImportFrom) and statement.module == "__future__"):
            at = statement.end_lineno or 0
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            return statement.lineno - 1
        else:
            return at
    return at


def _find_test(tree: ast.Module, names: list[str]) -> ast.FunctionDef | ast.AsyncFunctionDef:
    body: list[ast.stmt] = tree.body
    for name in names[:-1]:
        body = next(
            (statement.body for statement in body if isinstance(statement, ast.ClassDef) and statement.name == name), []
        )
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)) and statement.name == names[-1]:
            return statement
    raise ValueError(f"there is no test {'::'.join(names)}")
