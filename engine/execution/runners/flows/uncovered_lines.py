"""The flow that finds changed lines that no test runs, measured with the project's own coverage."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from pydantic import Field

from engine.execution.runners.flow import CannotRun, FlowError, FlowResult, Job, Place
from engine.execution.runners.flows.leftovers import read_own_changes
from engine.execution.runners.flows.parameter_types import ProjectFlow, RepoPath
from engine.execution.runners.flows.test_runs import all_tests, find_toolchains, run_tests
from engine.execution.runners.flows.wording import count, describe_check, last_line
from engine.execution.runners.toolchains.project_tools import Toolchain
from engine.execution.runners.toolchains.python_environments import add_package_command
from engine.execution.runners.toolchains.tool_table import Command, read_text
from engine.model import CheckResult
from engine.plain_files import read_plain

MAX_LISTED_FILES = 3

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
        check, missing = _measure(job, tool, tests, sorted(changed))
        uncovered: dict[str, list[int]] = {}
        unmeasured = []
        for path, lines in sorted(changed.items()):
            if path not in missing:
                unmeasured.append(path)
            elif hits := sorted(set(lines) & missing[path]):
                uncovered[path] = hits
                job.say(f"{path} {format_line_ranges(hits)}: no test runs {'this' if len(hits) == 1 else 'these'}")
        for path in unmeasured:
            job.say(f"{path}: not measured, coverage is configured to leave it out")
        scope = "no test runs" if not tests else "none of their tests runs"
        facts: dict[str, object] = {"uncovered": uncovered, "whole": not tests}
        if not uncovered:
            summary = f"The tests run every measured changed line; {describe_check(check)}"
            return FlowResult(summary, check=check, facts=facts)
        if check.green:
            facts["next"] = "let_agent_fix"
        summary = f"{_summarise_lines(uncovered, scope)}; {describe_check(check)}"
        return FlowResult(summary, check=check, sound=False, facts=facts, full=not tests)


def _summarise_lines(uncovered: dict[str, list[int]], scope: str) -> str:
    """The uncovered lines; `scope` says which tests do not run them."""
    shown = list(uncovered.items())[:MAX_LISTED_FILES]
    files = "; ".join(f"{path} {format_line_ranges(lines)}" for path, lines in shown)
    more = f" and {len(uncovered) - MAX_LISTED_FILES} more files" if len(uncovered) > MAX_LISTED_FILES else ""
    number = sum(map(len, uncovered.values()))
    return f"{files}{more}: {scope} {'this line' if number == 1 else f'these {number} lines'}"


def _measure(
    job: Job, tool: Toolchain, tests: Sequence[str], paths: Sequence[str]
) -> tuple[CheckResult, dict[str, set[int]]]:
    """The result of the tests, and by file the lines that none of them ran. Raises `CannotRun` without coverage."""
    interpreter = tool.test_command([], job.scratch / "report.xml").argv[0]
    listing = job.run([interpreter, "-c", _LIST_INSTALLED], cwd=tool.folder, quiet=True)
    installed = listing.output.split()
    if not listing.ok or "coverage" not in installed:
        raise CannotRun(
            "coverage is not installed in the project's environment", add_package_command(job.workspace, "coverage")
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
