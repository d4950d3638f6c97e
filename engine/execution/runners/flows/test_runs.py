"""Running a project's tests: its tools found, their commands run, what came out read, what was missing named."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from engine.execution.runners.flow import CannotRun, CommandResult, FlowUnable, Job
from engine.execution.runners.flows.wording import count, describe_check, join_names, last_line, one_line
from engine.execution.runners.toolchains.missing_tools import (
    EXECUTION_KINDS,
    MISSING_KINDS,
    PROGRAM_FIXES,
    Missing,
    first_missing,
)
from engine.execution.runners.toolchains.project_tools import Toolchain, linked_packages
from engine.execution.runners.toolchains.projects import Project, projects
from engine.execution.runners.toolchains.python import environment_command, is_python_project
from engine.execution.runners.toolchains.tool_table import Command
from engine.model import CheckResult


def find_project(job: Job, path: str) -> Project:
    """The project at `path` of the repository, "" being its top. Raises `FlowUnable`."""
    every = projects(job.folder, job.workspace, git=job.git)
    chosen = next((project for project in every if project.path == path), None)
    if chosen is None:
        names = join_names([project.path or "the top folder" for project in every])
        raise FlowUnable(
            f"{one_line(path)} is not a project of this repository: it has no manifest", f"projects: {names}"
        )
    if not chosen.tools and not path and (below := [project.path for project in every if project.tools]):
        hint = f"no tests in the top folder: the tests are in {join_names(below, 4)}"
        return replace(chosen, looked=(*chosen.looked, hint))
    return chosen


def find_toolchains(job: Job, path: str) -> list[Toolchain]:
    """Every tool that can test the project at `path`. Raises `CannotRun` saying what was looked for."""
    project = find_project(job, path)
    if project.tools:
        return list(project.tools)
    name = one_line(project.path) or "this project"
    why = f"looked for {', '.join(project.looked)}" if project.looked else project.untested
    raise CannotRun(
        f"no way to run the tests of {name}: {why}", how_to_run_tests(project, job.workspace / project.path)
    )


def how_to_run_tests(project: Project, folder: Path) -> str:
    """What gives a project, which lies in `folder` of the operator's tree, a tool that runs its tests."""
    if project.lacks in PROGRAM_FIXES:
        return PROGRAM_FIXES[project.lacks]
    if project.tested_by is not None:
        return f"run the tests of {one_line(project.tested_by) or 'the top folder of the repository'}"
    if (folder / "package.json").is_file():
        return 'give package.json a "test" script'
    if is_python_project(folder):
        return environment_command(folder)
    return "write tests for a tool that `clawpy` supports, or add a `test` target to a Makefile"


def toolchain_for(tools: Sequence[Toolchain], tests: Sequence[str]) -> Toolchain:
    """The tool that such test ids belong to: pytest's name a `.py` file."""
    python = any(".py" in test for test in tests)
    return next((tool for tool in tools if (tool.row.kind == "python") == python), tools[0])


def find_toolchain(job: Job, path: str, tests: Sequence[str], *, single: bool = False) -> Toolchain:
    """The tool of a project that `tests` belong to. Raises `CannotRun` where there is none, `FlowUnable` where
    it must run `single` tests and cannot."""
    tool = toolchain_for(find_toolchains(job, path), tests)
    if single:
        require_single_tests(tool)
    return tool


def require_single_tests(tool: Toolchain) -> None:
    """Raises `FlowUnable` when the tool cannot run single tests."""
    if not tool.exact:
        raise FlowUnable(
            f"`{tool.title}` cannot run one test alone",
            "use a script that runs only jest, vitest, mocha or node --test",
        )


def run_tests(
    job: Job,
    tool: Toolchain,
    tests: Sequence[str] = (),
    *,
    quiet: bool = False,
    texts: dict[str, str] | None = None,
    wrap: Callable[[Command], Command] = lambda command: command,
) -> CheckResult:
    """Run `tests` (all of them when there are none) and say what came out. `texts` gets what was said of each failing
    test; `through` may put another program around the tool's command.

    Raises `CannotRun` when that says nothing about the project: the tool broke, collected nothing, or all that failed
    did so for want of something that is not there (SPEC 2.12).
    """
    report = job.scratch / f"report-{tool.name}.xml"
    report.unlink(missing_ok=True)
    command = wrap(tool.test_command(tests, report))
    result = run_command(job, command, tool.folder, quiet=quiet)
    lacks_report = command.report is not None and result.exit_code in (0, 1) and not report.exists()
    if result.exit_code not in command.codes or lacks_report:
        # Who runs tests reports on them: otherwise this is the exit code of something else.
        raise _not_started(job, tool, result)
    check = tool.parse(report, result.output, result.exit_code)
    if check.passed + check.failed + check.skipped + check.errors == 0:
        raise CannotRun(f"{tool.title} found no tests", "name other tests, or write the first one")
    if (cannot_run := _missing_for_tests(job, tool, check, report, result)) is not None:
        raise cannot_run
    if texts is not None:
        texts.update(tool.failure_texts(report, result.output, check.failing))
    return check if check.seconds else replace(check, seconds=round(result.seconds, 3))


def _not_started(job: Job, tool: Toolchain, result: CommandResult) -> CannotRun:
    """Why a tool did not come to run any test."""
    if (missing := first_missing(result.output, lambda missing: _is_missing(job, tool, missing))) is not None:
        return _cannot_run(tool, missing)
    ending = (
        "was killed" if result.exit_code < 0 else f"ended with exit code {result.exit_code}" if result.exit_code else ""
    )
    return CannotRun(f"{tool.title} {ending or 'did not run'}: {last_line(result.output)}")


def _missing_for_tests(
    job: Job, tool: Toolchain, check: CheckResult, report: Path, result: CommandResult
) -> CannotRun | None:
    """What the environment lacked, when that alone is why `check` is red, or why nothing was tested; else None."""
    if not check.counted:
        kinds = EXECUTION_KINDS if result.exit_code == 0 else frozenset(MISSING_KINDS)
        missing = first_missing(
            result.output, lambda missing: missing.kind in kinds and _is_missing(job, tool, missing)
        )
        return None if missing is None else _cannot_run(tool, missing)
    if check.green or not check.failing or len(check.failing) < check.failed + check.errors:
        return None
    texts = tool.failure_texts(report, result.output, check.failing)
    if not check.passed and not any(texts.values()):  # it broke before any test began, and named none
        texts = dict.fromkeys(check.failing, result.output)
    causes = [
        first_missing(texts.get(test, ""), lambda missing: _is_missing(job, tool, missing)) for test in check.failing
    ]
    named = [missing for missing in causes if missing is not None]
    if len(named) < len(causes):
        if named:
            job.say(f"{count(len(named), 'test')} of {len(causes)} could not run: {named[0].sentence}")
        return None  # something is red that has all it needs
    ran = check.passed + check.failed + check.errors
    return _cannot_run(tool, named[0], f"{len(named)} of {count(ran, 'test')} could not run" if check.passed else "")


def _is_missing(job: Job, tool: Toolchain, missing: Missing) -> bool:
    return tool.is_missing(missing) and not (job.suspect_imports and missing.kind == "package")


def _cannot_run(tool: Toolchain, missing: Missing, scope: str = "") -> CannotRun:
    return CannotRun(f"{scope or f'{tool.title} cannot run'}: {missing.sentence}", tool.fix(missing))


def run_command(job: Job, command: Command, folder: Path, *, quiet: bool = False) -> CommandResult:
    """Run a tool's command in a project's `folder`, and take away the files that it made though the project has
    none."""
    created = [folder / name for name in command.makes if not os.path.lexists(folder / name)]
    try:
        return job.run(command.argv, cwd=folder, env=command.environment, quiet=quiet)
    finally:
        for file in created:
            file.unlink(missing_ok=True)


def run_test_plan(
    job: Job, plan: Sequence[tuple[Toolchain, Sequence[str]]], texts: dict[str, str] | None = None
) -> list[tuple[Toolchain, CheckResult]]:
    """Run each tool's tests (none = all of them) and report the results. A tool that cannot run is named and left out.
    `texts` as in `run_tests`.

    Raises `CannotRun` when none could run.
    """
    results: list[tuple[Toolchain, CheckResult]] = []
    failures: list[CannotRun] = []
    for tool, tests in plan:
        try:
            check = run_tests(job, tool, tests, texts=texts)
        except CannotRun as error:
            failures.append(error)
            if len(plan) > 1:
                job.say(error.message)
            continue
        job.say(f"{tool.title}: {describe_check(check)}")
        results.append((tool, check))
    if not results:
        raise failures[0]
    return results


def run_whole_suite(job: Job, tools: Sequence[Toolchain]) -> list[tuple[Toolchain, CheckResult]]:
    """Run all tests of each tool; as `run_test_plan`."""
    return run_test_plan(job, [(tool, []) for tool in tools])


def try_whole_suite(job: Job, path: str) -> tuple[CheckResult | None, str]:
    """The whole suite on the present files of the worktree; None and why, where it cannot be run."""
    try:
        tools = find_toolchains(job, path)
        with linked_packages(tools, job.folder, job.workspace):
            return combine_checks([check for _, check in run_whole_suite(job, tools)]), ""
    except CannotRun as error:
        return None, error.message


def first_failing(results: Sequence[tuple[Toolchain, CheckResult]]) -> tuple[Toolchain, CheckResult]:
    """Of several tools' results the first that is red, else the first."""
    return next((pair for pair in results if not pair[1].green), results[0])


def combine_checks(checks: Sequence[CheckResult]) -> CheckResult:
    """Several tools' results as one."""
    if len(checks) == 1:
        return checks[0]
    durations = sorted((pair for check in checks for pair in check.durations), key=lambda pair: -pair[1])
    return CheckResult(
        tool=" + ".join(check.tool for check in checks),
        passed=sum(check.passed for check in checks),
        failed=sum(check.failed for check in checks),
        skipped=sum(check.skipped for check in checks),
        errors=sum(check.errors for check in checks),
        seconds=round(sum(check.seconds for check in checks), 3),
        failing=tuple(name for check in checks for name in check.failing),
        durations=tuple(durations),
    )
