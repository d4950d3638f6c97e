"""Flows about tests that fail sometimes or became slow. They repeat them, time them, or skip them until a day.

A card about a flaky test starts `HuntFlakes`. If the test fails in some of the runs, the next card offers `Quarantine`,
which writes a skip mark with a date into its file. `engine.git.inspection` finds that mark again when the day has come.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence
from datetime import date
from itertools import takewhile
from statistics import median
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from engine.execution.runners import CannotRun, Facts, Place, WorkFailed
from engine.execution.runners.flow import FlowResult, Job, Line, ProjectFlow, Revision, TestId, make_facts, stays_inside
from engine.execution.runners.flows.git_steps import (
    link_packages,
    read_commit,
    reset_worktree,
    resolve_commit,
    store_tree,
)
from engine.execution.runners.flows.suite_runs import (
    ToolCheck,
    choose_toolchain,
    combine_checks,
    compare_with_base,
    describe_compared,
    find_toolchains,
    run_tests,
)
from engine.execution.runners.toolchains.project_tools import Toolchain
from engine.files import read_plain
from engine.frozen import frozen
from engine.git.inspection import QUARANTINE_WORDS
from engine.model import CheckResult
from engine.text import one_line
from engine.wording import count, join_names

# -- run tests again and again


class HuntFlakes(ProjectFlow):
    """Runs the given tests again and again in the same order."""

    name = "hunt_flakes"
    label = "Hunt flaky tests"
    work = "tests"
    place = Place.CHECK
    tests: list[TestId] = Field(min_length=1, max_length=200, description="ids of the tests, as their tool names them")
    times: int = Field(default=20, ge=2, le=500, description="how many times each is run")

    def describe(self) -> str:
        tests = self.tests
        subject = f"`{tests[0]}`" if len(tests) == 1 else f"{len(tests)} tests ({join_names(tests, 2)})"
        return f"Rerun {subject}{self.where} {self.times} times for flakiness"

    def run(self, job: Job) -> FlowResult:
        tool = choose_toolchain(find_toolchains(job, self.project), self.tests, single=True)
        checks: list[CheckResult] = []
        for number in range(1, self.times + 1):
            check = run_tests(job, tool, self.tests, quiet=number > 1)
            checks.append(check)
            outcome = "all passed" if check.green else count(check.failed + check.errors, "failure")
            job.say(f"run {number} of {self.times}: {outcome} in {check.seconds:.2f} s")
        tallies = tally_runs(checks) or _tally_without_names(tool.name, self.tests, checks)
        for tally in tallies:
            result = f"failed {tally.failed} of {tally.runs}  mean {tally.mean_seconds:.3f} s"
            job.say(f"{tally.verdict:>7}  {result}  {tally.test}")
        steady = sum(tally.verdict == "steady" for tally in tallies)
        passed = min(tally.runs for tally in tallies)
        summary = f"Steady: {count(steady, 'test')} passed {passed} times out of {self.times}"
        if steady < len(tallies):
            counts = [_describe_tallies(tallies, verdict) for verdict in ("flaky", "broken")]
            summary = "; ".join(filter(None, [*counts, f"{steady} steady"]))
        broken = [check.error for check in checks if check.errors and not check.failing]
        if broken:
            summary += f"; {count(len(broken), 'run')} failed without a failing test: {broken[-1] or 'see the output'}"
        tests = make_facts(tallies, "test", "runs", "failed", "mean_seconds", "verdict")
        facts: Facts = {"tests": tests}
        if tool.name == "pytest" and any(tally.verdict == "flaky" and ".py::" in tally.test for tally in tallies):
            facts["next"] = "quarantine"
        return FlowResult(summary, check=checks[-1], has_problem=steady < len(tallies) or bool(broken), facts=facts)


@frozen
class TestTally:
    """The results of one test over all runs."""

    test: str
    runs: int
    failed: int
    mean_seconds: float

    @property
    def verdict(self) -> Literal["steady", "broken", "flaky"]:
        """`steady` for a test that never failed, `broken` for one that always failed, or else `flaky`."""
        if self.failed == 0:
            return "steady"
        return "broken" if self.failed == self.runs else "flaky"


def tally_runs(checks: Sequence[CheckResult]) -> list[TestTally]:
    """The tally of each test that a run names. A run without durations, such as those of cargo, counts for each, unless
    it broke. Tests with the highest share of failures come first, then slow ones."""
    times: dict[str, list[float]] = {test: [] for check in checks for test in (*dict(check.durations), *check.failing)}
    failed = Counter(test for check in checks for test in set(check.failing))
    for check in checks:
        durations = dict(check.durations)
        counts_for_all = check.passed + check.failed and not (durations or check.errors)
        for test in times if counts_for_all else {*durations, *check.failing}:
            times[test].append(durations.get(test, 0.0))
    tallies = [
        TestTally(test, len(seconds), failed[test], round(sum(seconds) / len(seconds), 4))
        for test, seconds in times.items()
    ]
    return sorted(tallies, key=lambda tally: (-tally.failed / tally.runs, -tally.mean_seconds, tally.test))


def _tally_without_names(tool: str, tests: Sequence[str], checks: Sequence[CheckResult]) -> list[TestTally]:
    """One tally for all tests. It is used if no test failed and the tool names only failures, as cargo does."""
    times = [check.seconds for check in checks if check.passed]
    if not times:
        raise WorkFailed(f"{tool} ran none of these tests", "take the ids from the output of a run")
    return [TestTally(join_names(tests, 3), len(times), 0, round(sum(times) / len(times), 4))]


def _describe_tallies(tallies: Sequence[TestTally], verdict: str) -> str:
    """The tests with this verdict in words; "" for none."""
    names = [f"{tally.test} ({tally.failed} of {tally.runs})" for tally in tallies if tally.verdict == verdict]
    return f"{len(names)} {verdict}: {join_names(names, 4)}" if names else ""


# -- compare the times of tests at two commits

SLOWER_RATIO = 1.5
"""A test is slower if its median time is at least this many times as long, and each run is longer than every run at the
other commit."""


class TimeTests(ProjectFlow):
    """Runs tests the same number of times at both commits, in a worktree."""

    name = "time_tests"
    label = "Time tests"
    work = "tests"
    place = Place.WORKTREE
    tests: list[TestId] = Field(min_length=1, max_length=10, description="ids of the tests, as their tool names them")
    fast: Revision = Field(description="a commit at which they were fast")
    times: int = Field(default=5, ge=2, le=50, description="how often they run at each commit")

    def describe(self) -> str:
        tests = f"{join_names(self.tests, 2)}{self.where}"
        return f"Time {tests} at HEAD and at {self.fast[:10]}"

    def run(self, job: Job) -> FlowResult:
        head, fast = resolve_commit(job, "HEAD"), resolve_commit(job, self.fast)
        tools = find_toolchains(job, self.project)
        tool = choose_toolchain(tools, self.tests, single=True)
        with link_packages(job, tools):
            fast_times = self._time_tests_at(job, tool, fast)
            head_times = self._time_tests_at(job, tool, head)
        comparisons = {
            test: TimeComparison(fast_times[test], times) for test, times in head_times.items() if test in fast_times
        }
        if not comparisons:
            raise WorkFailed("none of these tests ran at both commits", "name tests that both commits have")
        sentences = [f"{test} takes {comparison.describe(fast)}" for test, comparison in comparisons.items()]
        for sentence in sentences:
            job.say(sentence)
        slower = sum(comparison.is_slower for comparison in comparisons.values())
        if slower:
            job.say(f"Next: git log --oneline {fast[:10]}..HEAD")
        return FlowResult("; ".join(sentences[:3]), has_problem=slower > 0)

    def _time_tests_at(self, job: Job, tool: Toolchain, revision: str) -> dict[str, list[float]]:
        """The seconds of each test in each run at a commit."""
        reset_worktree(job, revision)
        job.say(f"At {read_commit(job, revision)}")
        durations: dict[str, list[float]] = {}
        for number in range(self.times):
            try:
                check = run_tests(job, tool, self.tests, quiet=number > 0)
            except CannotRun as error:
                reason = f"the tests cannot run at {revision[:10]}: {error.message}"
                raise WorkFailed(reason, "name another commit") from error
            if not check.green:
                raise WorkFailed(f"the tests do not pass at {revision[:10]}", "fix them first, or name another commit")
            for test, seconds in check.durations:
                durations.setdefault(test, []).append(round(seconds, 3))
        return durations


@frozen
class TimeComparison:
    """The seconds of one test in each run, at the fast commit and at HEAD."""

    fast_seconds: list[float]
    head_seconds: list[float]

    @property
    def is_slower(self) -> bool:
        """Whether the test became slower, as `SLOWER_RATIO` says."""
        fast, head = self.fast_seconds, self.head_seconds
        return median(head) >= SLOWER_RATIO * median(fast) and min(head) > max(fast)

    def describe(self, fast_commit: str) -> str:
        """Both times, and whether the test takes longer now."""
        head, fast = _format_spread(self.head_seconds), _format_spread(self.fast_seconds)
        return f"{head} at HEAD and {fast} at {fast_commit[:7]}: {'' if self.is_slower else 'not '}slower"


def _format_spread(seconds: list[float]) -> str:
    """The median, the minimum and the maximum, as in `2.10 s (2.00 to 2.30)`."""
    return f"{median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})"


# -- skip tests until a day

MAX_TEST_FILE_BYTES = 5_000_000
"""Maximum size of a file in which a test is skipped."""

_IMPORTS = ("from datetime import date as _date", "import pytest")
"""The imports that a skip mark needs. No test file has another use for this name of `date`."""


class Quarantine(ProjectFlow):
    """Puts `pytest.mark.skipif` with a date above each test, and runs the file."""

    name = "quarantine"
    label = "Quarantine unreliable tests"
    work = "tests"
    place = Place.CHANGE_SET
    tests: list[TestId] = Field(min_length=1, max_length=20, description="ids of the tests, as pytest names them")
    until: Annotated[Line, AfterValidator(lambda text: date.fromisoformat(text).isoformat())] = Field(
        description="the day on which they run again, such as 2026-12-07"
    )
    why: Annotated[str, AfterValidator(one_line)] = Field(
        default="flaky", max_length=120, description="the reason, for example `flaky: failed 3 of 20`"
    )

    def describe(self) -> str:
        return f"Skip {join_names(self.tests, 2)}{self.where} until {self.until}"

    def run(self, job: Job) -> FlowResult:
        tool = choose_toolchain(find_toolchains(job, self.project), self.tests)
        if tool.name != "pytest" or not all(
            ".py::" in test and stays_inside(test.split("::")[0]) for test in self.tests
        ):
            raise WorkFailed("only pytest tests can be skipped until a date")
        base = store_tree(job)
        marked = [test for test in self.tests if self._add_mark(job, tool, test)]
        if not marked:
            return FlowResult("Nothing changed: these tests are already in quarantine")
        summary = f"{count(len(marked), 'test')} skipped until {self.until}"
        try:
            result = run_tests(job, tool, sorted({test.partition("::")[0] for test in marked}))
        except CannotRun as error:
            job.say(str(error))
            return FlowResult(f"{summary}; not tested: {error.message}")
        check = combine_checks(compare_with_base(job, base, [ToolCheck(tool, result)]))
        summary = f"{summary}; its file: {describe_compared(check)}"
        return FlowResult(summary, check=check, has_problem=not set(marked).isdisjoint(check.failing))

    def _add_mark(self, job: Job, tool: Toolchain, test: str) -> bool:
        """Put the mark above one test. False if it has the same mark already. Raises `WorkFailed` if its file cannot be
        changed."""
        path, _, names = test.partition("::")
        file = tool.folder / path
        until = date.fromisoformat(self.until)
        try:
            text = read_plain(file, MAX_TEST_FILE_BYTES, follow=False).decode()
            after = add_skip_mark(text, names.partition("[")[0].split("::"), until, self.why)
        except (OSError, ValueError, SyntaxError) as error:
            raise WorkFailed(f"{path} cannot be changed: {error!s}") from error
        if after is None:
            job.say(f"{test}: already has its own skip mark")
            return False
        file.write_bytes(after.encode())
        job.say(f"{test} is skipped until {self.until}")
        return True


def add_skip_mark(text: str, names: list[str], until: date, why: str) -> str | None:
    """Add a skip mark to one test in the `text` of a file, and the imports that the mark needs. An older mark is
    replaced. Returns None if the test has the same mark already.

    `names` are the classes of the test and its function. Raises `ValueError` if there is no such test, and
    `SyntaxError` if the file cannot be parsed, before or after the change.
    """
    tree = ast.parse(text)
    test = _find_test(tree, names)
    old_marks = [decorator for decorator in test.decorator_list if QUARANTINE_WORDS in ast.unparse(decorator)]
    if any(until.isoformat() in ast.unparse(mark) for mark in old_marks):
        return None
    rows = text.split("\n")
    newline = "\r" if rows[0].endswith("\r") else ""
    top_row = min([test.lineno, *(decorator.lineno for decorator in test.decorator_list)]) - 1
    indent = rows[top_row].removesuffix(rows[top_row].lstrip())
    # All numbers of rows are those of the unchanged file. So the rows are changed from below: first the old marks,
    # which are at the top row of the test or below it, then that row, and last the imports, which are above it.
    for old_mark in reversed(old_marks):
        del rows[old_mark.lineno - 1 : old_mark.end_lineno]
    rows.insert(top_row, f"{indent}{_make_skip_mark(text, until, why)}{newline}")
    import_row = _find_import_row(tree, text)
    present = {ast.unparse(statement) for statement in tree.body if isinstance(statement, (ast.Import, ast.ImportFrom))}
    rows[import_row:import_row] = [f"{line}{newline}" for line in _IMPORTS if line not in present]
    after = "\n".join(rows)
    ast.parse(after)
    return after


def _make_skip_mark(text: str, until: date, why: str) -> str:
    """The decorator, with the quotes that the `text` of the file mostly has."""
    quote = "'" if text.count("'") > text.count('"') else '"'
    reason = f"{why}; {QUARANTINE_WORDS} {until.isoformat()}".replace("\\", "").replace(quote, "")
    condition = f"_date.today() < _date({until.year}, {until.month}, {until.day})"
    return f"@pytest.mark.skipif({condition}, reason={quote}{reason}{quote})"


def _find_import_row(tree: ast.Module, text: str) -> int:
    """The index of the row for new imports. It is before the first import of the file, but after its docstring, its
    imports from `__future__`, and comments in its first two rows, which may be for the system or name the encoding."""
    row = sum(1 for _ in takewhile(lambda line: line.startswith("#"), text.split("\n")[:2]))
    for statement in tree.body:
        is_docstring = isinstance(statement, ast.Expr) and statement is tree.body[0]
        if is_docstring or (isinstance(statement, ast.ImportFrom) and statement.module == "__future__"):
            row = statement.end_lineno or 0
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            return statement.lineno - 1
        else:
            break
    return row


def _find_test(tree: ast.Module, names: list[str]) -> ast.FunctionDef | ast.AsyncFunctionDef:
    """The function of a test. Raises `ValueError` if there is none."""
    body: list[ast.stmt] = tree.body
    for name in names[:-1]:
        body = next(
            (statement.body for statement in body if isinstance(statement, ast.ClassDef) and statement.name == name), []
        )
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)) and statement.name == names[-1]:
            return statement
    raise ValueError(f"there is no test {'::'.join(names)}")
