"""Runs a project's tests: finds its tools, runs their commands, reads the results, names missing items."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Final

from engine.execution.runners.flow import CannotRun, CommandResult, FlowError, Job
from engine.execution.runners.flows.steps import count, describe_check, join_names, last_line
from engine.execution.runners.toolchains.detection import ProjectFolder, environment_command
from engine.execution.runners.toolchains.installing import linked_packages
from engine.execution.runners.toolchains.project_tools import (
    EXECUTION_KINDS,
    MISSING_KINDS,
    PROGRAM_FIXES,
    MissingItem,
    Toolchain,
    first_missing,
)
from engine.execution.runners.toolchains.projects import Project, find_projects
from engine.execution.runners.toolchains.python_projects import is_python_project
from engine.execution.runners.toolchains.tool_table import Command
from engine.frozen import frozen
from engine.model import CheckResult

# -- The cause of a failed test, and a signature that similar failures share (pure) ---------------------------------


MAX_SIGNATURES: Final = 50
"""Maximum number of failing tests of a run that get a signature."""

TEST_FILE: Final = re.compile(r"(?:^|/)(?:tests?|spec|__tests__)/|(?:^|/)test_|_test\.|\.(?:test|spec)\.")
"""Files of tests."""

_ERROR_PATTERNS: Final = (
    re.compile(r"^E\s+(?:[\w.]+\.)?(\w*(?:Error|Exception|Exit|Failed|Interrupt|Warning))\b:?\s*(.*)$", re.M),
    re.compile(r"^E\s+(assert\b.*)$", re.M),
    re.compile(r"panicked at [^\n]*:\n\s*(.+)"),
    re.compile(r"^\s*panic: (.+)$", re.M),
    re.compile(r"^\s*(?:\[?[\w.]+\.)?(\w*(?:Error|Exception))\b(?: \[\w+\])?:?\s*(.*)$", re.M),
    re.compile(r"^\s*\S+\.go:\d+: (.+)$", re.M),
)
_FRAME_PATTERNS: Final = (
    (re.compile(r"^(?P<file>[^\s:][^:\n]*\.\w+):(?P<line>\d+): ", re.M), -1),
    (re.compile(r"File \"(?P<file>[^\"]+)\", line (?P<line>\d+)"), -1),
    (re.compile(r"panicked at (?P<file>[^\s:]+):(?P<line>\d+)"), 0),
    (re.compile(r"^\s*at .*?\(?(?:file://)?(?P<file>[^\s()]+?):(?P<line>\d+):\d+\)?", re.M), 0),
    (re.compile(r"^\s*(?P<file>\S+\.\w+):(?P<line>\d+)\b", re.M), 0),
)
_THIRD_PARTY_FILE: Final = re.compile(r"(?:^|/)(?:site-packages|node_modules|\.venv|lib/python[\d.]+|node:)|^node:|^<")


@frozen
class Cause:
    """The cause of a failure; equal for failures with the same cause."""

    kind: str
    """The class of the error, "" for an assertion."""
    message: str
    """The message, without numbers, addresses and paths that differ from run to run."""
    where: str
    """The innermost line of the project's own code, "" when the output names none."""
    printed: str = field(default="", compare=False)
    """The message as it was printed."""

    def __str__(self) -> str:
        parts = [self.kind, self.printed or self.message]
        description = ": ".join(filter(None, parts)) or "failed"
        return f"{description[:120]}, at {self.where}" if self.where else description[:120]

    def signature_of(self, test: str) -> str:
        """The text that similar failures share: the error, its message, and the file that raised it, without the line.
        An assertion in a test file concerns that `test` alone, which then replaces the file. "" when the output does
        not tell the error or the file."""
        file = self.where.rpartition(":")[0]
        if not (self.kind or self.message) or not file:
            return ""
        return f"{self.kind or 'failed'}: {self.message} in {test if TEST_FILE.search(file) else file}"


def cause_of(text: str, folder: str) -> Cause:
    """The cause of a failure by its output. Numbers, addresses and paths in its message count as equal."""
    text = text.replace(folder.rstrip("/") + "/", "")
    kind = message = ""
    for pattern in _ERROR_PATTERNS:
        if match := pattern.search(text):
            kind, message = match.groups() if len(match.groups()) == 2 else ("", match[1])
            break
    else:
        message = next((line.strip() for line in text.splitlines() if line.strip()), "")
    where = ""
    for pattern, which in _FRAME_PATTERNS:
        own = [match for match in pattern.finditer(text) if not _is_third_party(match["file"])]
        if own:
            where = f"{own[which]['file']}:{own[which]['line']}"
            break
    return Cause(kind, normalise_message(message), where, message.strip()[:200])


def _is_third_party(file: str) -> bool:
    return file.startswith("/") or _THIRD_PARTY_FILE.search(file) is not None


def normalise_message(message: str) -> str:
    """A message without numbers, addresses and paths, which differ from run to run."""
    message = re.sub(r"0x[0-9a-fA-F]+|\b[0-9a-f]{12,}\b", "ADDRESS", message)
    message = re.sub(r"(?<![\w.])/(?:[\w.@+-]+/)+[\w.@+-]*", "/…", message)
    return re.sub(r"(?<![A-Za-z_])-?\d+(?:\.\d+)?", "N", message).strip()[:200]


def find_signatures(
    texts: Mapping[str, str], failing: Sequence[str], folder: Path
) -> tuple[dict[str, str], dict[str, str]]:
    """The signature of each failing test that has one, and for each signature the cause of its first test, to be shown
    in its place."""
    signatures: dict[str, str] = {}
    messages: dict[str, str] = {}
    for test in failing[:MAX_SIGNATURES]:
        cause = cause_of(texts.get(test, ""), str(folder))
        if signature := cause.signature_of(test):
            signatures[test] = signature
            messages.setdefault(signature, str(cause))
    return signatures, messages


def find_project(job: Job, path: str) -> Project:
    """The project at `path` of the repository, "" being its top. Raises `FlowError`."""
    every = find_projects(job.folder, job.workspace, git=job.git)
    chosen = next((project for project in every if project.path == path), None)
    if chosen is None:
        names = join_names([project.path or "the top folder" for project in every])
        raise FlowError(f"{path} is not a project of this repository: it has no manifest", f"projects: {names}")
    below = [project.path for project in every if project.tools]
    if not chosen.tools and not path and below:
        hint = f"no tests in the top folder: the tests are in {join_names(below, 4)}"
        return replace(chosen, searched=(*chosen.searched, hint))
    return chosen


def find_toolchains(job: Job, path: str) -> list[Toolchain]:
    """Every tool that can test the project at `path`. Raises `CannotRun` with the places that were searched."""
    project = find_project(job, path)
    if project.tools:
        return list(project.tools)
    name = project.path or "this project"
    why = f"looked for {', '.join(project.searched)}" if project.searched else project.untested_reason
    raise CannotRun(
        f"no way to run the tests of {name}: {why}", how_to_run_tests(project, job.workspace / project.path)
    )


def how_to_run_tests(project: Project, folder: Path) -> str:
    """How to get a tool that runs the tests of a project, which lies in `folder` of the operator's tree."""
    if project.missing_tool in PROGRAM_FIXES:
        return PROGRAM_FIXES[project.missing_tool]
    if project.tested_by is not None:
        return f"run the tests of {project.tested_by or 'the top folder of the repository'}"
    if (folder / "package.json").is_file():
        return 'give package.json a "test" script'
    if is_python_project(folder):
        return environment_command(ProjectFolder.of_operator(folder, folder))
    return "write tests for a tool that `clawpy` supports, or add a `test` target to a Makefile"


def toolchain_for(tools: Sequence[Toolchain], tests: Sequence[str], *, single: bool = False) -> Toolchain:
    """The tool that test ids belong to: those of pytest name a `.py` file. Raises `FlowError` where it must run
    `single` tests and cannot."""
    python = any(".py" in test for test in tests)
    tool = next((tool for tool in tools if (tool.row.kind == "python") == python), tools[0])
    if single and not tool.runs_single_tests:
        raise FlowError(
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
    texts: dict[str, str] | None = None,
    wrap: Callable[[Command], Command] = lambda command: command,
) -> CheckResult:
    """Run `tests` (none = the whole suite) and return the result. `texts` receives the output about each failing test;
    `wrap` may change the tool's command.

    Raises `CannotRun` when the run says nothing about the project: the tool broke, collected nothing, or every failure
    has a missing item as its cause (SPEC 2.12).
    """
    report = job.scratch / f"report-{tool.name}.xml"
    report.unlink(missing_ok=True)
    command = wrap(tool.test_command(tests, report))
    result = run_command(job, command, tool.folder, quiet=quiet)
    lacks_report = command.report is not None and result.exit_code in (0, 1) and not report.exists()
    if result.exit_code not in command.exit_codes or lacks_report:
        # A tool that ran tests wrote its report: without one this is the exit code of another program.
        raise _not_started(job, tool, result)
    check = tool.parse(report, result.output, result.exit_code)
    if check.passed + check.failed + check.skipped + check.errors == 0:
        raise CannotRun(f"{tool.title} found no tests", "name other tests, or write the first one")
    error = _missing_for_tests(job, tool, check, report, result)
    if error is not None:
        raise error
    if texts is not None:
        texts.update(tool.failure_texts(report, result.output, check.failing))
    return check if check.seconds else replace(check, seconds=round(result.seconds, 3))


def _not_started(job: Job, tool: Toolchain, result: CommandResult) -> CannotRun:
    """The error of a tool that ran no test."""
    missing = _first_missing(job, tool, result.output)
    if missing is not None:
        return _cannot_run(tool, missing)
    ending = f"ended with exit code {result.exit_code}" if result.exit_code else "did not run"
    if result.exit_code < 0:
        ending = "was killed"
    return CannotRun(f"{tool.title} {ending}: {last_line(result.output)}")


def _missing_for_tests(
    job: Job, tool: Toolchain, check: CheckResult, report: Path, result: CommandResult
) -> CannotRun | None:
    """The error of a run that failed, or tested nothing, only because of missing items; None for any other."""
    if not check.counted:
        missing = _first_missing(job, tool, result.output, EXECUTION_KINDS if result.exit_code == 0 else MISSING_KINDS)
        return None if missing is None else _cannot_run(tool, missing)
    if check.green or not check.failing or len(check.failing) < check.failed + check.errors:
        return None
    texts = tool.failure_texts(report, result.output, check.failing)
    if not check.passed and not any(texts.values()):  # it broke before any test began, and named none
        texts = dict.fromkeys(check.failing, result.output)
    causes = [_first_missing(job, tool, texts.get(test, "")) for test in check.failing]
    named = [missing for missing in causes if missing is not None]
    if len(named) < len(causes):
        if named:
            job.say(f"{count(len(named), 'test')} of {len(causes)} could not run: {named[0].sentence}")
        return None  # a test failed for another reason
    ran = check.passed + check.failed + check.errors
    return _cannot_run(tool, named[0], f"{len(named)} of {count(ran, 'test')} could not run" if check.passed else "")


def _first_missing(job: Job, tool: Toolchain, output: str, kinds: Container[str] = MISSING_KINDS) -> MissingItem | None:
    """The first item in the output that really is missing."""

    def is_valid(missing: MissingItem) -> bool:
        is_suspect = job.suspect_imports and missing.kind == "package"
        return missing.kind in kinds and not is_suspect and tool.is_missing(missing)

    return first_missing(output, is_valid)


def _cannot_run(tool: Toolchain, missing: MissingItem, scope: str = "") -> CannotRun:
    return CannotRun(f"{scope or f'{tool.title} cannot run'}: {missing.sentence}", tool.fix_for(missing))


def run_command(job: Job, command: Command, folder: Path, *, quiet: bool = False) -> CommandResult:
    """Run a tool's command in a project's `folder`, and remove the files that it put into the project."""
    created = [folder / name for name in command.created_files if not os.path.lexists(folder / name)]
    try:
        return job.run(command.argv, cwd=folder, env=command.environment, quiet=quiet)
    finally:
        for file in created:
            file.unlink(missing_ok=True)


def run_test_plan(
    job: Job, plan: Sequence[tuple[Toolchain, Sequence[str]]], texts: dict[str, str] | None = None
) -> list[tuple[Toolchain, CheckResult]]:
    """Run each tool's tests (none = the whole suite) and report the results. A tool that cannot run is reported and
    left out. `texts` as in `run_tests`. Raises `CannotRun` when none could run."""
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


def run_whole_suite(job: Job, tools: Sequence[Toolchain]) -> CheckResult:
    """Run all tests of each tool; as `run_test_plan`."""
    return combine_checks(run_test_plan(job, [(tool, []) for tool in tools]))


def try_whole_suite(job: Job, path: str) -> tuple[CheckResult | None, str]:
    """Run the whole suite on the present files of the worktree. The result, None where the tests cannot run, and the
    rest of a sentence about it: `, all 5 tests passed`, `, but …`, `; its tests could not be run: …`."""
    try:
        tools = find_toolchains(job, path)
        with linked_packages(job, tools):
            check = run_whole_suite(job, tools)
    except CannotRun as error:
        job.say(str(error))
        return None, f"; its tests could not be run: {error.message}"
    return check, f", {'' if check.green else 'but '}{describe_check(check)}"


def all_tests(tests_by_path: Mapping[str, Iterable[str]]) -> list[str]:
    """The tests of all changed files, in order, each once."""
    return sorted({test for tests in tests_by_path.values() for test in tests})


def combine_checks(results: Sequence[tuple[Toolchain, CheckResult]]) -> CheckResult:
    """The results of several tools as one."""
    checks = [check for _, check in results]
    if len(checks) == 1:
        return checks[0]
    durations = sorted((pair for check in checks for pair in check.durations), key=lambda pair: -pair[1])
    return CheckResult(
        tool=" + ".join(check.tool for check in checks),
        **{name: sum(getattr(check, name) for check in checks) for name in ("passed", "failed", "skipped", "errors")},
        seconds=round(sum(check.seconds for check in checks), 3),
        failing=tuple(name for check in checks for name in check.failing),
        durations=tuple(durations),
    )
