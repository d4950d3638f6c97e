"""Flows that run tests: those of a change, failing ones by cause, the same many times, those of HEAD alone."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict

from pydantic import Field

from engine.execution.runners.flow import CannotRun, FlowError, FlowResult, Job, Place, ProjectFlow, RepoPath, TestId
from engine.execution.runners.flows.steps import (
    capitalised,
    count,
    describe_check,
    in_project,
    join_names,
    read_commit,
    reset_worktree,
    resolve_commit,
    restore_tree,
    store_tree,
)
from engine.execution.runners.flows.test_runs import (
    Cause,
    all_tests,
    cause_of,
    combine_checks,
    find_signatures,
    find_toolchains,
    run_test_plan,
    run_tests,
    toolchain_for,
)
from engine.execution.runners.toolchains.installing import linked_packages
from engine.execution.runners.toolchains.project_tools import Toolchain
from engine.frozen import frozen
from engine.model import CheckResult

# -- Run the tests that belong to changed files -------------------------------------------------------------------

MAX_TARGETS = 400
"""Maximum number of tests in a command; with more the whole suite is run."""


class RunTests(ProjectFlow):
    """Finds the tests of the changed files, by name, by folder and by what they import, and runs them."""

    name = "run_tests"
    label = "Run tests"
    place = Place.CHECK
    paths: list[RepoPath] = Field(default=[], description="changed source files; none = the whole suite")
    tests: list[TestId] = Field(default=[], max_length=MAX_TARGETS, description="tests by id, instead of changed files")

    def describe(self) -> str:
        return f"{self._describe_subject()}{in_project(self.project)}"

    def _describe_subject(self) -> str:
        paths, tests = self.paths, self.tests
        if tests:
            names = join_names(tests, 2) if len(tests) < 3 else count(len(tests), "test")
            return f"Run {names} again"
        if not paths:
            return "Run the whole test suite"
        if len(paths) == 1:
            return f"Run the tests of {paths[0]}"
        return f"Run the tests of {count(len(paths), 'changed module')}: {join_names(paths, 3)}"

    def run(self, job: Job) -> FlowResult:
        tools = find_toolchains(job, self.project)
        tests_by_path: dict[str, list[str]] = {}
        if self.tests:  # the whole suite with a tool that cannot run single tests
            tool = toolchain_for(tools, self.tests)
            plan = [(tool, self.tests if tool.runs_single_tests else [])]
        else:
            plan = self._plan_changed_paths(job, tools, tests_by_path)
        texts: dict[str, str] = {}
        done = run_test_plan(job, plan, texts)
        check = combine_checks(done)
        signatures, messages = find_signatures(texts, check.failing, job.folder / self.project)
        full = all(not tests for _, tests in plan)
        scope = " (the whole suite)" if full else " (only the tests of this change)"
        return FlowResult(
            summary=capitalised(f"{describe_check(check)}{in_project(self.project)}{scope if self.paths else ''}"),
            check=check,
            facts={
                "tests_by_path": tests_by_path,
                "without_tests": [path for path in self.paths if not tests_by_path.get(path)],
                "signatures": signatures,
                "messages": messages,
            },
            full=full and len(done) == len(tools),
        )

    def _plan_changed_paths(
        self, job: Job, tools: list[Toolchain], tests_by_path: dict[str, list[str]]
    ) -> list[tuple[Toolchain, list[str]]]:
        """The tests that each tool runs for the changed files ([] = the whole suite), which goes into `tests_by_path`,
        too; the whole suite where they have no tests of their own."""
        plan: list[tuple[Toolchain, list[str]]] = []
        for tool in tools:
            covered = [path for path in self.paths_inside(self.paths) if tool.covers(path)]
            if not covered:
                continue
            of_tool = tool.tests_for(covered)
            tests_by_path |= {f"{self.path_prefix}{path}": names for path, names in of_tool.items()}
            tests = all_tests(of_tool)
            for path, names in of_tool.items():
                job.say(f"{path} → {join_names(names, 4) if names else 'no tests of its own'}")
            if not tests or len(tests) > MAX_TARGETS:
                job.say(f"Running the whole suite with {tool.title}")
                tests = []
            plan.append((tool, tests))
        if self.paths and not plan:
            job.say(f"No tests found for {join_names(self.paths, 4)}: running the whole suite")
        return plan or [(tool, []) for tool in tools]


# -- Group failing tests by their cause, and see which of them fail alone -----------------------------------------

MAX_ALONE = 20
"""Maximum number of tests that are run alone; the first of each cause comes before others."""


class NarrowFailures(ProjectFlow):
    """Runs the failing tests again, groups them by cause, and runs the first of each group alone."""

    name = "narrow_failures"
    label = "Narrow down failures"
    place = Place.CHECK
    tests: list[TestId] = Field(
        min_length=1, max_length=200, description="ids of failing tests, as their tool has them"
    )

    def describe(self) -> str:
        tests = self.tests
        subject = f"`{tests[0]}`" if len(tests) == 1 else f"{len(tests)} failing tests"
        return f"Run {subject} alone and group the failures by cause{in_project(self.project)}"

    def run(self, job: Job) -> FlowResult:
        tests = self.tests
        tool = toolchain_for(find_toolchains(job, self.project), tests, single=True)
        texts: dict[str, str] = {}
        check = run_tests(job, tool, tests, texts=texts)
        if check.green or not check.failing:
            why = "the earlier failures depend on earlier tests, are unreliable, or are fixed"
            return FlowResult(capitalised(f"{describe_check(check)} now: {why}"), check=check, facts={"causes": []})
        causes: dict[Cause, list[str]] = {}
        for test in check.failing:
            causes.setdefault(cause_of(texts.get(test, ""), str(tool.folder)), []).append(test)
        groups = sorted(causes.items(), key=lambda pair: -len(pair[1]))
        alone = self._run_alone(job, tool, groups, len(tests))
        marks = {True: "  also fails alone", False: "  passes alone, so it depends on earlier tests", None: ""}
        for cause, failing in groups:
            job.say(f"{count(len(failing), 'test')}: {cause!s}")
            job.say_list([f"{test}{marks[alone.get(test)]}" for test in failing], 5, indent="    ")
        passed = [test for test in tests if test not in check.failing and "::" in test]
        if passed:
            job.say(
                f"{join_names(passed, 3)}: passes without the rest of the suite; it depends on other tests or chance"
            )
        command = _shell_command(job, tool, [failing[0] for _, failing in groups])
        job.say(f"The smallest selection that shows every cause: {command}")
        dependent = [test for test, fails in alone.items() if not fails]
        signatures, messages = find_signatures(texts, check.failing, tool.folder)
        return FlowResult(
            _summarise_causes(groups, dependent),
            check=check,
            facts={
                "causes": [{"cause": str(cause), "tests": failing} for cause, failing in groups],
                "alone": alone,
                "signatures": signatures,
                "messages": messages,
                "command": command,
            },
        )

    def _run_alone(
        self, job: Job, tool: Toolchain, groups: Sequence[tuple[Cause, list[str]]], requested: int
    ) -> dict[str, bool]:
        """Whether each test fails when it runs alone, the first of each cause first."""
        firsts = [failing[0] for _, failing in groups]
        order = [*firsts, *(test for _, failing in groups for test in failing[1:])][:MAX_ALONE]
        if requested == 1:
            return dict.fromkeys(order, True)
        fails_alone: dict[str, bool] = {}
        for test in order:
            try:
                fails_alone[test] = not run_tests(job, tool, [test], quiet=True).green
            except CannotRun as error:
                job.say(f"{test} cannot run alone: {error.message}")
        return fails_alone


def _summarise_causes(groups: Sequence[tuple[Cause, list[str]]], dependent: Sequence[str]) -> str:
    """The failures and their causes; `dependent` are tests that pass alone."""
    failures = sum(len(failing) for _, failing in groups)
    causes = [f"{cause!s} ({len(failing)})" for cause, failing in groups[:3]]
    if len(groups) == 1:
        causes = [str(groups[0][0])]
    summary = f"{count(failures, 'failure')}, {count(len(groups), 'cause')}: {'; '.join(causes)}"
    if dependent:
        summary += f"; {join_names(dependent, 2)} {'passes' if len(dependent) == 1 else 'pass'} alone"
    return summary


def _shell_command(job: Job, tool: Toolchain, tests: Sequence[str]) -> str:
    """The command with which the operator can run these tests."""
    if tool.name == "pytest":
        return f"pytest {shlex.join(tests)}"
    argv = tool.test_command(tests, job.scratch / "report.xml").argv
    return shlex.join(part for part in argv if str(job.scratch) not in part)


# -- Run the same tests many times and find those that sometimes fail ---------------------------------------------


@frozen
class TestTally:
    """The results of one test over all runs."""

    test: str
    runs: int
    failed: int
    mean_seconds: float

    @property
    def verdict(self) -> str:
        """`steady` for a test that never failed, `broken` for one that always did, else `flaky`."""
        if self.failed == 0:
            return "steady"
        return "broken" if self.failed == self.runs else "flaky"


def tally_runs(checks: Sequence[CheckResult]) -> list[TestTally]:
    """The tally of each test in a series of runs: the highest share of failures first, then the slowest."""
    times: dict[str, list[float]] = {}
    failed: dict[str, int] = {}
    for check in checks:
        seconds = dict(check.durations)
        for test in {*seconds, *check.failing}:
            times.setdefault(test, []).append(seconds.get(test, 0.0))
            failed[test] = failed.get(test, 0) + (test in check.failing)
    tallies = [
        TestTally(test, len(each), failed[test], round(sum(each) / len(each), 4)) for test, each in times.items()
    ]
    return sorted(tallies, key=lambda result: (-result.failed / result.runs, -result.mean_seconds, result.test))


class HuntFlakes(ProjectFlow):
    """Runs the given tests again and again in the same order."""

    name = "hunt_flakes"
    label = "Hunt flaky tests"
    place = Place.CHECK
    tests: list[TestId] = Field(min_length=1, max_length=200, description="ids of the tests, as their tool names them")
    times: int = Field(default=20, ge=2, le=500, description="how many times each is run")

    def describe(self) -> str:
        tests = self.tests
        subject = f"`{tests[0]}`" if len(tests) == 1 else f"{len(tests)} tests ({join_names(tests, 2)})"
        return f"Rerun {subject}{in_project(self.project)} {self.times} times for flakiness"

    def run(self, job: Job) -> FlowResult:
        tool = toolchain_for(find_toolchains(job, self.project), self.tests, single=True)
        checks: list[CheckResult] = []
        for number in range(1, self.times + 1):
            check = run_tests(job, tool, self.tests, quiet=number > 1)
            checks.append(check)
            bad = f"{count(check.failed + check.errors, 'failure')}" if not check.green else "all passed"
            job.say(f"run {number} of {self.times}: {bad} in {check.seconds:.2f} s")
        tallies = tally_runs(checks) or _tally_without_names(tool.name, self.tests, checks)
        for result in tallies:
            ran = f"failed {result.failed} of {result.runs}  mean {result.mean_seconds:.3f} s"
            job.say(f"{result.verdict:>7}  {ran}  {result.test}")
        flaky = [result.test for result in tallies if result.verdict == "flaky" and ".py::" in result.test]
        return FlowResult(
            summary=_summarise_tallies(tallies, self.times),
            check=checks[-1],
            sound=not any(result.failed for result in tallies),
            facts={
                "times": self.times,
                "tests": [{**asdict(result), "verdict": result.verdict} for result in tallies],
            }
            | ({"next": "quarantine"} if flaky and tool.name == "pytest" else {}),
        )


def _tally_without_names(tool: str, tests: Sequence[str], checks: Sequence[CheckResult]) -> list[TestTally]:
    """One tally for all tests, for a tool that names only failures (cargo) and had none."""
    if not any(check.passed for check in checks):
        raise FlowError(f"{tool} ran none of these tests", "take the ids from the output of a run")
    mean = sum(check.seconds for check in checks) / len(checks)
    return [TestTally(join_names(tests, 3), len(checks), 0, round(mean, 4))]


def _summarise_tallies(tallies: Sequence[TestTally], times: int) -> str:
    parts = []
    for verdict in ("flaky", "broken"):
        names = [f"{result.test} ({result.failed} of {result.runs})" for result in tallies if result.verdict == verdict]
        if names:
            parts.append(f"{len(names)} {verdict}: {join_names(names, 4)}")
    steady = sum(result.verdict == "steady" for result in tallies)
    if not parts:
        return f"Steady: {count(steady, 'test')} passed {times} times out of {times}"
    return "; ".join([*parts, f"{steady} steady"])


# -- Does HEAD pass without the uncommitted files? -----------------------------------------------------------------

MAX_COMPARED_TESTS = 50
"""With more failing tests than this they are not run again with the uncommitted files."""


class CheckCleanHead(ProjectFlow):
    """Runs the whole suite on HEAD alone, and the tests that fail there again with the uncommitted files."""

    name = "check_clean_head"
    label = "Check a clean HEAD"
    place = Place.WORKTREE
    files: list[RepoPath] = Field(
        default=[], description="the uncommitted files, only for the description: all are left out"
    )

    def describe(self) -> str:
        files, where = self.files, in_project(self.project)
        if not files:
            return f"Check that HEAD passes{where} without the uncommitted files"
        names = join_names(files, 3)
        return f"Check that HEAD passes{where} without {count(len(files), 'uncommitted file')}: {names}"

    def run(self, job: Job) -> FlowResult:
        snapshot = store_tree(job)
        head = resolve_commit(job, "HEAD")
        reset_worktree(job, head)
        left_out = _changed_files(job, head, snapshot)
        job.say(f"HEAD is {read_commit(job.git, head)}")
        job.say(f"Left out: {join_names(left_out) if left_out else 'nothing, everything is committed'}")
        tools = find_toolchains(job, self.project)
        facts: dict[str, object] = {"head": head, "left_out": left_out}
        with linked_packages(job, tools):
            results = run_test_plan(job, [(tool, []) for tool in tools])
            check = combine_checks(results)
            if check.green:
                return FlowResult(f"HEAD is complete: {describe_check(check)}", check=check, facts=facts, full=True)
            tool, own = next((result for result in results if not result[1].green), results[0])
            needed = self._rerun_with_files(job, tool, own.failing, snapshot) if left_out else None
            reset_worktree(job, head)  # the result is HEAD's: that is the state it is recorded with
        summary = f"On HEAD alone {describe_check(check)}"
        if needed is not None:
            facts["passes_with_files"] = needed
            outcome = f"{len(needed)} of them pass" if needed else "they also fail"
            summary = f"{summary}; {outcome} with the uncommitted files"
        return FlowResult(summary, check=check, facts=facts, full=True)

    def _rerun_with_files(self, job: Job, tool: Toolchain, failing: Sequence[str], snapshot: str) -> list[str] | None:
        """The failing tests of `tool` that pass with the uncommitted files; None when they cannot be run again."""
        if not tool.runs_single_tests or not failing or len(failing) > MAX_COMPARED_TESTS:
            return None
        job.say("Running the failing tests again, with the uncommitted files")
        restore_tree(job, snapshot)
        present = tool.existing_tests(failing)
        try:
            rerun = run_tests(job, tool, present) if present else None
        except CannotRun as error:
            job.say(error.message)
            rerun = None
        return None if rerun is None else [test for test in failing if test not in rerun.failing]


def _changed_files(job: Job, head: str, tree: str) -> list[str]:
    """The files in which the snapshot differs from HEAD."""
    return job.git.items("diff-tree", "-r", "--name-only", "--no-renames", "-z", head, tree)
