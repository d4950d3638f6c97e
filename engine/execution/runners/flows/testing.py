"""Flows that test your changes: the tests of changed files, HEAD alone, and changed lines that no test runs.

`suite_runs` runs the tests. Here it is decided which ones, on which state of the files, and what their result says. The
validation of an agent's changes uses `RunTests`, too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from pydantic import Field

from engine.execution.runners import CannotRun, Facts, Place, WorkFailed
from engine.execution.runners.flow import FlowResult, Job, ProjectFlow, RepoFile, RepoPath, TestId, find_folders
from engine.execution.runners.flows.failing_tests import make_signature_facts
from engine.execution.runners.flows.git_steps import (
    link_packages,
    read_commit,
    read_own_changes,
    reset_worktree,
    resolve_commit,
    store_tree,
)
from engine.execution.runners.flows.suite_runs import (
    MAX_COMPARED_TESTS,
    PlannedTests,
    choose_toolchain,
    collect_tests,
    combine_checks,
    describe_check,
    find_toolchains,
    run_test_plan,
    run_tests,
)
from engine.execution.runners.toolchains import PROGRAM_FIXES, ToolCommand
from engine.execution.runners.toolchains.detection import add_package_command
from engine.execution.runners.toolchains.project_tools import Toolchain
from engine.execution.runners.toolchains.projects import read_project
from engine.files import read_plain
from engine.model import CheckResult
from engine.text import find_last_error_line
from engine.wording import capitalised, count, join_names

# -- the tests that belong to changed files

MAX_TESTS_IN_COMMAND = 400
"""Maximum number of tests in a command. If there are more, the whole suite is run."""


class RunTests(ProjectFlow):
    """Finds the tests of the changed files, by name, by folder and by what they import, and runs them."""

    name = "run_tests"
    label = "Run tests"
    work = "tests"
    place = Place.CHECK
    paths: list[RepoFile] = Field(default=[], description="source files and folders; none = the whole suite")
    tests: list[TestId] = Field(
        default=[], max_length=MAX_TESTS_IN_COMMAND, description="tests by id, instead of changed files"
    )

    def describe(self) -> str:
        tests = self.tests
        subject = f"the tests of {join_names(self.paths, 3)}" if self.paths else "the whole test suite"
        if tests:
            subject = join_names(tests, 2) if len(tests) < 3 else count(len(tests), "test")
        return f"Run {subject}{self.where}"

    def check_requirements(self, top: Path) -> None:
        project = read_project(top / self.project)
        if not project.tools and project.missing_tool in PROGRAM_FIXES:
            reason = f"its tests need {project.missing_tool}, which is not installed"
            raise CannotRun(reason, PROGRAM_FIXES[project.missing_tool])
        super().check_requirements(top)

    def run(self, job: Job) -> FlowResult:
        tools = find_toolchains(job, self.project)
        if self.tests:  # the whole suite with a tool that cannot run single tests
            tool = choose_toolchain(tools, self.tests)
            plan = [PlannedTests(tool, self.tests if tool.runs_single_tests else [])]
        else:
            plan = self._plan_changed_paths(job, tools)
        if not plan:
            sentence = f"No tests found for {join_names(self.paths, 4)}, nothing was run"
            return FlowResult(f"{sentence}: `run the tests` runs the whole suite")
        texts: dict[str, str] = {}
        results = run_test_plan(job, plan, texts)
        check = combine_checks(results)
        full = not any(planned.tests for planned in plan)
        scope = " (the whole suite)" if full else " (only the tests of this change)"
        summary = capitalised(f"{describe_check(check)}{self.where}{scope if self.paths else ''}")
        facts = make_signature_facts(texts, check.failing, job.folder / self.project)
        return FlowResult(summary, check=check, facts=facts, full=full and len(results) == len(tools))

    def _plan_changed_paths(self, job: Job, tools: Sequence[Toolchain]) -> list[PlannedTests]:
        """The tests that each tool runs for the files of `paths`. If these files have no tests of their own, a tool
        runs its whole suite, or nothing if a path is a folder."""
        plan: list[PlannedTests] = []
        has_folder = bool(find_folders(job, self.paths))
        files = self.find_files(job, self.paths)
        for tool in tools:
            if covered := [path for path in files if tool.covers(path)]:
                tests_of_tool = tool.find_tests_for(covered)
                tests = collect_tests(tests_of_tool)
                if not tests and has_folder:
                    continue
                for path, names in tests_of_tool.items():
                    job.say(f"{path} → {join_names(names, 4) if names else 'no tests of its own'}")
                if not tests or len(tests) > MAX_TESTS_IN_COMMAND:
                    job.say(f"Running the whole suite with {tool.title}")
                    tests = []
                plan.append(PlannedTests(tool, tests))
        if not (plan or has_folder):
            if self.paths:
                job.say(f"No tests found for {join_names(self.paths, 4)}: running the whole suite")
            return list(map(PlannedTests, tools))
        return plan


# -- HEAD without the uncommitted files


class CheckCleanHead(ProjectFlow):
    """Runs the whole suite on HEAD alone, without the uncommitted files."""

    name = "check_clean_head"
    label = "Check a clean HEAD"
    work = "tests"
    place = Place.WORKTREE
    files: list[RepoPath] = Field(
        default=[], description="uncommitted files to name in the description: all are left out"
    )
    tests: list[TestId] = Field(
        default=[], max_length=MAX_COMPARED_TESTS, description="tests that fail: do they fail at HEAD, too?"
    )

    def describe(self) -> str:
        names = f", among them {join_names(self.files, 3)}" if self.files else ""
        return f"Check that HEAD passes{self.where} without the uncommitted files{names}"

    def run(self, job: Job) -> FlowResult:
        snapshot = store_tree(job)
        head = resolve_commit(job, "HEAD")
        reset_worktree(job, head)
        left_out = job.git.items("diff-tree", "-r", "--name-only", "--no-renames", "-z", head, snapshot)
        job.say(f"HEAD is {read_commit(job, head)}")
        job.say(f"Left out: {join_names(left_out) if left_out else 'nothing, everything is committed'}")
        tools = find_toolchains(job, self.project)
        with link_packages(job, tools):
            check = combine_checks(run_test_plan(job, list(map(PlannedTests, tools))))
        answer = self._compare_with_head(check) if left_out else ""
        summary = f"{answer or 'HEAD is complete'}: {describe_check(check)}"
        if not check.green:
            summary = f"{f'{answer}. ' if answer else ''}On HEAD alone {describe_check(check)}"
        return FlowResult(summary, check=check, full=True)

    def _compare_with_head(self, check: CheckResult) -> str:
        """Which of the `tests` passed and which failed in `check`, the run of HEAD alone, in words; "" for none. Of a
        test that is neither, it is not known whether HEAD has it."""
        passed = _find_passed(check)
        outcomes = (
            ("passes", "pass", [test for test in self.tests if test in passed]),
            ("fails", "fail", [test for test in self.tests if test in check.failing]),
        )
        return "; ".join(
            f"{join_names(tests, 3)} {singular if len(tests) == 1 else plural} without your uncommitted changes"
            for singular, plural, tests in outcomes
            if tests
        )


def _find_passed(check: CheckResult) -> set[str]:
    """The tests that are known to have passed: those that were measured, if the run names all that failed. Some tools
    measure no tests, or only the slow ones."""
    names_all_failures = len(check.failing) == check.failed + check.errors
    return {test for test, _ in check.durations}.difference(check.failing) if names_all_failures else set()


# -- changed lines that no test runs, measured with the project's own coverage

MAX_REPORT_BYTES = 100_000_000
"""Maximum size of a report of coverage that is read."""

_DATA_FILE = "coverage.data"
"""The name of the file in the scratch folder for what coverage measured."""

_LIST_INSTALLED = (
    "import importlib.util as u; print(*(n for n in ('coverage', 'pytest_cov', 'xdist') if u.find_spec(n)))"
)
"""Python code that prints those of these packages that are installed."""


class UncoveredLines(ProjectFlow):
    """Runs the tests with coverage, whose data goes to the scratch folder, and reports only lines that changed."""

    name = "uncovered_lines"
    label = "Find changed lines that no test runs"
    work = "tests"
    place = Place.CHECK
    paths: list[RepoFile] = Field(min_length=1, max_length=200, description="changed source files")
    whole: bool = Field(default=False, description="run the whole suite, not only the tests of these files")

    def describe(self) -> str:
        tests = "the whole suite" if self.whole else "the tests"
        return f"Run {tests} with coverage, for {join_names(self.paths, 3)}"

    def run(self, job: Job) -> FlowResult:
        tool = next((tool for tool in find_toolchains(job, self.project) if tool.name == "pytest"), None)
        if tool is None:
            raise WorkFailed("only pytest can be measured, and this project's tests run with another tool")
        changed = self._read_changed_lines(job)
        if not changed:
            return FlowResult("Nothing to measure: these files have no changed lines any more")
        tests = [] if self.whole else collect_tests(tool.find_tests_for(list(changed)))
        check = _run_with_coverage(job, self.project, tool, tests, list(changed))
        missing_lines = _read_missing_lines(job, tool)
        uncovered: dict[str, list[int]] = {}
        for path, lines in changed.items():
            if path not in missing_lines:
                job.say(f"{path}: not measured, coverage is configured to leave it out")
            elif hits := sorted(missing_lines[path].intersection(lines)):
                uncovered[path] = hits
                job.say(f"{path} {format_line_ranges(hits)}: no test runs it")
        facts: Facts = {"uncovered": uncovered}
        if not uncovered:
            summary = f"The tests run every measured changed line; {describe_check(check)}"
            return FlowResult(summary, check=check, facts=facts)
        if check.green:
            facts["next"] = "let_agent_fix"
        scope = "none of their tests runs" if tests else "no test runs"
        number = sum(map(len, uncovered.values()))
        files = join_names([f"{path} {format_line_ranges(lines)}" for path, lines in uncovered.items()], 3)
        summary = f"{files}: {scope} {'this line' if number == 1 else f'these {number} lines'}; {describe_check(check)}"
        return FlowResult(summary, check=check, has_problem=True, facts=facts, full=not tests)

    def _read_changed_lines(self, job: Job) -> dict[str, Sequence[int]]:
        """The changed lines of each of the files, sorted by the path inside the project."""
        added_lines = read_own_changes(job).added_lines
        changed = {
            path_inside: lines
            for path, lines in added_lines.items()
            if path in self.paths
            for path_inside in self.select_paths_inside([path])
        }
        return dict(sorted(changed.items()))


def _run_with_coverage(
    job: Job, project: str, tool: Toolchain, tests: Sequence[str], paths: Sequence[str]
) -> CheckResult:
    """Run `tests`, and measure which lines of `paths` they run. Raises `CannotRun` if coverage is not installed."""
    listing = job.run([tool.interpreter, "-c", _LIST_INSTALLED], cwd=tool.folder, quiet=True)
    installed = listing.output.split()
    if not listing.ok or "coverage" not in installed:
        add = add_package_command(job.workspace / project, job.workspace, "coverage")
        raise CannotRun("coverage is not installed in the project's environment", add)
    folders = sorted({str(PurePosixPath(path).parent) for path in paths})
    options = [f"--data-file={job.scratch / _DATA_FILE}", f"--source={','.join(folders)}"]
    # pytest-cov would replace this measurement, and workers of xdist would not be measured.
    disabled = {"pytest_cov": "--no-cov", "xdist": "-n0"}
    addopts = " ".join(option for plugin, option in disabled.items() if plugin in installed)

    def adapt(command: ToolCommand) -> ToolCommand:
        argv = (command.argv[0], "-m", "coverage", "run", *options, *command.argv[1:])
        return replace(command, argv=argv, environment={**command.environment, "PYTEST_ADDOPTS": addopts})

    return run_tests(job, tool, tests, adapt=adapt)


def _read_missing_lines(job: Job, tool: Toolchain) -> dict[str, set[int]]:
    """The lines that no test ran, by measured file. Raises `CannotRun` if nothing was measured."""
    data, report = job.scratch / _DATA_FILE, job.scratch / "coverage.json"
    if not data.exists():  # with the setting `parallel`, each process writes a file of its own
        job.run([tool.interpreter, "-m", "coverage", "combine", f"--data-file={data}"], cwd=tool.folder, quiet=True)
    options = [f"--data-file={data}", "-o", str(report), "--fail-under=0", "--ignore-errors"]
    result = job.run([tool.interpreter, "-m", "coverage", "json", *options], cwd=tool.folder, quiet=True)
    try:
        files = json.loads(read_plain(report, MAX_REPORT_BYTES))["files"]
    except (OSError, ValueError, KeyError) as error:
        raise CannotRun(
            f"coverage measured nothing: {find_last_error_line(result.output)}", "run it in a terminal to see why"
        ) from error
    return {name.replace("\\", "/"): set(entry["missing_lines"]) for name, entry in files.items()}


def format_line_ranges(lines: Sequence[int]) -> str:
    """The ranges of sorted numbers in words: `3, 5-7` for 3, 5, 6, 7."""
    ranges: list[list[int]] = []
    for line in lines:
        if ranges and line == ranges[-1][1] + 1:
            ranges[-1][1] = line
        else:
            ranges.append([line, line])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
