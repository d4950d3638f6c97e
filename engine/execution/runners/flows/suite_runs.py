"""Runs the tests of a project, for flows and for the validation of an agent's changes.

It finds the tools, runs their commands and reads the results. It says what is missing where tests cannot run, and
whether failing tests also failed before a change.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from engine.execution.runners import CannotRun, CommandResult, WorkFailed
from engine.execution.runners.flow import Job
from engine.execution.runners.flows.git_steps import link_packages, remove_untracked, restore_tree, store_tree
from engine.execution.runners.toolchains import (
    EXECUTION_KINDS,
    MISSING_KINDS,
    PROGRAM_FIXES,
    MissingItem,
    ToolCommand,
    find_first_missing,
)
from engine.execution.runners.toolchains.detection import make_environment_command
from engine.execution.runners.toolchains.project_tools import Toolchain
from engine.execution.runners.toolchains.projects import Project, find_projects
from engine.execution.runners.toolchains.run_results import FinishedRun, read_failures, read_result
from engine.model import CheckResult
from engine.text import find_last_error_line
from engine.wording import count, join_names, seconds_in_words

MAX_COMPARED_TESTS = 50
"""Maximum number of failing tests that are run again on other files. If there are more, none is."""


class PlannedTests(NamedTuple):
    """The tests that a tool is to run."""

    tool: Toolchain
    tests: Sequence[str] = ()
    """Empty for its whole suite."""


class ToolCheck(NamedTuple):
    """The result of a tool's tests."""

    tool: Toolchain
    check: CheckResult


def find_project(job: Job, path: str) -> Project:
    """The project at `path` of the repository; "" is its top. Raises `WorkFailed` if there is none."""
    projects = find_projects(job.folder, job.workspace, git=job.git)
    chosen_project = next((project for project in projects if project.path == path), None)
    if chosen_project is None:
        names = join_names([project.path or "the top folder" for project in projects])
        raise WorkFailed(f"{path} is not a project of this repository: it has no manifest", f"projects: {names}")
    below = [project.path for project in projects if project.tools]
    if not chosen_project.tools and not path and below:
        hint = f"no tests in the top folder: the tests are in {join_names(below, 4)}"
        return replace(chosen_project, searched_places=(*chosen_project.searched_places, hint))
    return chosen_project


def find_toolchains(job: Job, path: str) -> Sequence[Toolchain]:
    """All tools that can test the project at `path`. Raises `CannotRun` if there are none, with the places that were
    searched."""
    project = find_project(job, path)
    for tool in project.tools:
        if tool.substitution:
            job.say(tool.substitution)
    if project.tools:
        return project.tools
    name = project.path or "this project"
    why = f"looked for {', '.join(project.searched_places)}" if project.searched_places else project.untested_reason
    raise CannotRun(f"no way to run the tests of {name}: {why}", describe_how_to_run_tests(project, job.workspace))


def describe_how_to_run_tests(project: Project, top: Path) -> str:
    """How to get a tool for the tests of a project. `top` is the top of the operator's repository."""
    if project.missing_tool in PROGRAM_FIXES:
        return PROGRAM_FIXES[project.missing_tool]
    if project.tested_by is not None:
        return f"run the tests of {project.tested_by or 'the top folder of the repository'}"
    if any(packages.language == "python" for packages in project.packages):
        return make_environment_command(top / project.path, top)
    return "write tests for a tool that `clawpy` supports, or add a `test` script or target that runs them"


def choose_toolchain(tools: Sequence[Toolchain], tests: Sequence[str], *, single: bool = False) -> Toolchain:
    """The tool to which test ids belong. Ids of pytest contain `.py`. Raises `WorkFailed` if `single` tests must be run
    and the tool cannot do that."""
    are_python = any(".py" in test for test in tests)
    tool = next((tool for tool in tools if (tool.row.language == "python") == are_python), tools[0])
    if single and not tool.runs_single_tests:
        raise WorkFailed(
            f"`{tool.title}` cannot run one test alone",
            "use a script that runs only jest, vitest, mocha or node --test",
        )
    return tool


def run_tests(
    job: Job,
    tool: Toolchain,
    tests: Sequence[str] = (),
    *,
    quiet: bool = False,
    failure_texts: dict[str, str] | None = None,
    adapt: Callable[[ToolCommand], ToolCommand] = lambda command: command,
) -> CheckResult:
    """Run `tests`, by default the whole suite, and return the result. The output about each failing test is put into
    `failure_texts`. `adapt` may change the command of the tool.

    Raises `CannotRun` if the run says nothing about the project, because the tool broke, found no tests, or all
    failures are caused by missing items (SPEC 2.12).
    """
    report = job.scratch / f"report-{tool.name}.xml"
    report.unlink(missing_ok=True)
    command = adapt(tool.test_command(tests, report))
    result = run_command(job, command, tool.folder, quiet=quiet)
    lacks_report = command.report is not None and result.exit_code in (0, 1) and not report.exists()
    if result.exit_code not in command.exit_codes or lacks_report:
        # A tool that ran tests has written a report. Without one, the exit code is that of another program.
        raise _make_not_started_error(job, tool, result)
    run = tool.read_run(report, result.output, result.exit_code)
    check = read_result(run)
    ran_nothing = check.passed + check.failed + check.skipped + check.errors == 0
    if ran_nothing or (tests and run.exit_code == 0 and not check.counted):
        raise CannotRun(f"{tool.title} found no tests", "name other tests, or write the first one")
    error = _make_missing_items_error(job, tool, run, check)
    if error is not None:
        raise error
    if failure_texts is not None:
        failure_texts.update(read_failures(run, check.failing))
    return replace(check, seconds=round(result.seconds, 3))  # that of the whole command, as its exit line says


def _make_not_started_error(job: Job, tool: Toolchain, result: CommandResult) -> CannotRun:
    """The error of a tool that ran no test."""
    missing = _find_missing_item(job, tool, result.output)
    if missing is not None:
        return _make_cannot_run_error(tool, missing)
    ending = f"ended with exit code {result.exit_code}" if result.exit_code else "did not run"
    if result.exit_code < 0:
        ending = "was killed"
    return CannotRun(f"{tool.title} {ending}: {find_last_error_line(result.output)}")


def _make_missing_items_error(job: Job, tool: Toolchain, run: FinishedRun, check: CheckResult) -> CannotRun | None:
    """The error of a run that failed or tested nothing only because of missing items; None for any other run."""
    if not check.counted or (check.errors and not check.passed and not check.failing):
        kinds = EXECUTION_KINDS if run.exit_code == 0 else MISSING_KINDS
        missing = _find_missing_item(job, tool, run.output, kinds)
        return None if missing is None else _make_cannot_run_error(tool, missing)
    names_all_failures = check.failing and len(check.failing) >= check.failed + check.errors
    if check.green or not names_all_failures:
        return None
    texts = read_failures(run, check.failing)
    if not check.passed and not any(texts.values()):  # the run broke before the first test
        texts = dict.fromkeys(check.failing, run.output)
    items = [_find_missing_item(job, tool, texts.get(test, "")) for test in check.failing]
    missing_items = [item for item in items if item is not None]
    number_failing = len(check.failing)
    if len(missing_items) == number_failing:
        total = count(check.passed + check.failed + check.errors, "test")
        scope = f"{number_failing} of {total} could not run" if check.passed else ""
        return _make_cannot_run_error(tool, missing_items[0], scope)
    if missing_items:
        number = count(len(missing_items), "test")
        job.say(f"{number} of {number_failing} could not run: {missing_items[0].sentence}")
    return None  # a test failed for another reason


def _find_missing_item(
    job: Job, tool: Toolchain, output: str, kinds: Container[str] = MISSING_KINDS
) -> MissingItem | None:
    """The first item in the output that really is missing."""

    def is_valid(missing: MissingItem) -> bool:
        is_suspect = job.suspect_imports and missing.kind == "package"
        return missing.kind in kinds and not is_suspect and tool.is_really_missing(missing)

    return find_first_missing(output, is_valid)


def _make_cannot_run_error(tool: Toolchain, missing: MissingItem, scope: str = "") -> CannotRun:
    """The error of a tool that lacks an item. `scope` says what could not run; by default, that is the tool."""
    # What another interpreter lacks may well be installed in the project's environment.
    reason = f"{tool.substitution}, and there {missing.sentence}" if tool.substitution else missing.sentence
    return CannotRun(f"{scope or f'{tool.title} cannot run'}: {reason}", tool.find_fix(missing))


def run_command(job: Job, command: ToolCommand, folder: Path, *, quiet: bool = False) -> CommandResult:
    """Run the command of a tool in the `folder` of a project, and then remove the files that it made there."""
    created = [folder / name for name in command.created_files if not os.path.lexists(folder / name)]
    try:
        return job.run(command.argv, cwd=folder, env=command.environment, quiet=quiet)
    finally:
        for file in created:
            file.unlink(missing_ok=True)


def run_test_plan(
    job: Job, plan: Sequence[PlannedTests], failure_texts: dict[str, str] | None = None
) -> list[ToolCheck]:
    """Run the tests of each tool. If there are several, the result of each is reported; the caller words the whole. A
    tool that cannot run is left out. `failure_texts` is as in `run_tests`. Raises `CannotRun` if no tool could run."""
    results: list[ToolCheck] = []
    failures: list[CannotRun] = []
    for tool, tests in plan:
        try:
            check = run_tests(job, tool, tests, failure_texts=failure_texts)
        except CannotRun as error:
            failures.append(error)
            if len(plan) > 1:
                job.say(error.message)
            continue
        if len(plan) > 1:
            job.say(f"{tool.title}: {describe_check(check)}")
        results.append(ToolCheck(tool, check))
    if not results:
        raise failures[0]
    return results


def try_whole_suite(job: Job, path: str, *, base: str = "") -> tuple[CheckResult | None, str]:
    """Run the whole suite on the present files of the worktree. The result is compared with the tree `base` if there is
    one; see `compare_with_base`.

    Returns the result (None if the tests cannot run), and the rest of a sentence about it, such as `, all 5 tests
    passed`, `, but …`, or `; its tests could not be run: …`.
    """
    try:
        tools = find_toolchains(job, path)
        with link_packages(job, tools):
            results = run_test_plan(job, list(map(PlannedTests, tools)))
    except CannotRun as error:
        job.say(str(error))
        return None, f"; its tests could not be run: {error.message}"
    if not base:
        check = combine_checks(results)
        return check, f", {'' if check.green else 'but '}{describe_check(check)}"
    check = combine_checks(compare_with_base(job, base, results))
    return check, f", {'but ' if check.has_new_failures else ''}{describe_compared(check)}"


def compare_with_base(job: Job, base: str, results: Sequence[ToolCheck]) -> list[ToolCheck]:
    """`results` of the present files, each with those of its faults that are also there on the files of the tree
    `base`, which the changes build on. Nothing runs if no test failed.

    The present files are restored afterwards. Of a test that cannot be run on the files of `base`, it is not known
    whether it fails there. Files that the first run left behind are removed, except those that git ignores.
    """
    if not any(check.failed or check.errors for _, check in results):
        return list(results)
    job.say("Do these tests also fail without the changes?")
    present_tree = store_tree(job)
    restore_tree(job, present_tree)  # so that git tracks new files, and removes them with the next step
    try:
        restore_tree(job, base)
        remove_untracked(job)  # a folder that a failed test left may make it fail on the other files
        with link_packages(job, [tool for tool, _ in results]):
            return [
                ToolCheck(tool, replace(check, failed_before=_find_faults(job, tool, check))) for tool, check in results
            ]
    except WorkFailed as error:  # the present files are restored below, and an error in that is not caught
        job.say(error.message)
        return list(results)
    finally:
        restore_tree(job, present_tree)


def _find_faults(job: Job, tool: Toolchain, check: CheckResult) -> tuple[str, ...] | None:
    """Those of the faults in `check` that are there on the present files; None if that cannot be found out cheaply.
    Raises `WorkFailed`."""
    tests = check.failing
    if not (check.failed or check.errors):
        return ()
    if not tests or not tool.runs_single_tests or len(tests) > MAX_COMPARED_TESTS:
        return None
    existing = tool.select_existing_tests(tests)
    if not existing:
        return ()
    failing = run_tests(job, tool, existing, quiet=True).failing
    return tuple(test for test in tests if test in failing)


def collect_tests(tests_by_path: Mapping[str, Iterable[str]]) -> list[str]:
    """The tests of all changed files, sorted and without repeats."""
    return sorted({test for tests in tests_by_path.values() for test in tests})


def combine_checks(results: Sequence[ToolCheck]) -> CheckResult:
    """The results of several tools as one."""
    checks = [check for _, check in results]
    if len(checks) == 1:
        return checks[0]
    durations = sorted((pair for check in checks for pair in check.durations), key=lambda pair: -pair[1])
    failed_before = [check.failed_before for check in checks if check.failed_before is not None]
    return CheckResult(
        tool=" + ".join(check.tool for check in checks),
        **{name: sum(getattr(check, name) for check in checks) for name in ("passed", "failed", "skipped", "errors")},
        seconds=round(sum(check.seconds for check in checks), 3),
        failing=tuple(name for check in checks for name in check.failing),
        error=next((check.error for check in checks if check.error), ""),
        failed_before=tuple(chain.from_iterable(failed_before)) if failed_before else None,
        durations=tuple(durations),
    )


def describe_compared(check: CheckResult) -> str:
    """A result of changes in words, with a clause on which of the failing tests failed before these changes as well."""
    return f"{describe_check(check)}{_describe_failed_before(check)}"


def _describe_failed_before(check: CheckResult) -> str:
    if not check.failed + check.errors:
        return ""
    if check.failed_before is None or not check.faults:
        return "; it is not known what failed before"
    if not check.has_new_failures:
        return "; that failed before as well, nothing new fails"
    if not check.failed_before:
        return "; that did not fail before"
    return f"; {len(check.failed_before)} of them failed before as well: {join_names(check.failed_before, 2)}"


def describe_check(check: CheckResult) -> str:
    """A result in words, as a sentence without a full stop."""
    skipped = f", {check.skipped} skipped" if check.skipped else ""
    duration = f" in {seconds_in_words(check.seconds)}{skipped}"
    if not check.counted:
        outcome = f"failed{duration}: {check.error}" if check.failed else f"succeeded{duration}"
        return f"{check.tool} {outcome}; its output names no tests"
    if check.failed or check.errors:
        faults = filter(None, (join_names(check.failing, 2), check.error))
        return f"{_describe_failures(check)}{duration}: {': '.join(faults)}"
    if not check.passed:
        return f"no tests ran{skipped}"
    return f"{'the one test' if check.passed == 1 else f'all {check.passed} tests'} passed{duration}"


def _describe_failures(check: CheckResult) -> str:
    # Errors are counted separately, because the tests of a file that cannot be imported did not run.
    errors = count(check.errors, "error")
    if not check.failed:
        passed = f"{count(check.passed, 'test')} passed" if check.passed else "no tests ran"
        return f"{errors}, {passed}"
    failed = f"{check.failed} of {count(check.passed + check.failed, 'test')} failed"
    return f"{failed} and {errors}" if check.errors else failed
