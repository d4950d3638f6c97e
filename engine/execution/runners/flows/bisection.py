"""Flows that run tests at other commits: to find the commit that broke a test, or to compare times."""

from __future__ import annotations

import re
from statistics import median

from pydantic import Field

from engine.execution.runners.flow import CannotRun, FlowError, FlowResult, Job, Place, ProjectFlow, Revision, TestId
from engine.execution.runners.flows.steps import (
    count,
    describe_check,
    in_project,
    join_names,
    read_commit,
    reset_worktree,
    resolve_commit,
    show_diff,
)
from engine.execution.runners.flows.test_runs import find_toolchains, run_tests, toolchain_for
from engine.execution.runners.toolchains.installing import linked_packages
from engine.execution.runners.toolchains.project_tools import Toolchain
from engine.git import GitError
from engine.git.commits import is_ancestor
from engine.model import CheckResult

# -- Find the commit that broke a test, with git's own bisection --------------------------------------------------

_REVISIONS_LEFT = re.compile(r"^Bisecting: (\d+) revisions? left", re.M)

_FIRST_BAD = re.compile(r"^([0-9a-f]{40,64}) is the first bad commit", re.M)


class Bisect(ProjectFlow):
    """Checks that the test passes at good and fails at bad, then halves the commits between, one test run a step."""

    name = "bisect"
    label = "Bisect a failing test"
    place = Place.WORKTREE
    test: TestId = Field(description="id of the test that fails, as its tool names it")
    good: Revision = Field(description="a commit at which the test passed")
    bad: Revision = Field(default="HEAD", description="a later commit at which it fails")

    def describe(self) -> str:
        ends = f"{self.good[:10]} and {self.bad[:10]}"
        where = in_project(self.project)
        return f"Find the commit that broke `{self.test}` between {ends}{where}"

    def run(self, job: Job) -> FlowResult:
        good, bad = resolve_commit(job, self.good), resolve_commit(job, self.bad)
        if good == bad or not is_ancestor(job.git, good, bad):
            raise FlowError(
                f"{good[:10]} is not an ancestor of {bad[:10]}", "name a good commit in the bad one's history"
            )
        reset_worktree(job, bad)
        tools = find_toolchains(job, self.project)
        tool = toolchain_for(tools, [self.test])
        with linked_packages(job, tools):
            red = self._check_ends(job, tool, good, bad)
            try:
                suspects, steps, skipped = self._search(job, tool, good, bad, red)
            finally:
                job.git.run("bisect", "reset", bad, allowed=range(256))
            reset_worktree(job, bad)  # the result is recorded for the state of the worktree
        facts: dict[str, object] = {"test": self.test, "steps": steps, "skipped": skipped}
        if len(suspects) > 1:
            job.say("The test cannot run at these commits; one of them broke it:")
            job.say_list([read_commit(job.git, sha) for sha in suspects], len(suspects))
            summary = f"Broken by one of {count(len(suspects), 'commit')} at which the test cannot run"
            return FlowResult(summary, check=red, facts=facts | {"candidates": suspects})
        culprit = read_commit(job.git, suspects[0])
        show_diff(job, culprit.sha)
        facts |= {
            "culprit": culprit.sha,
            "author": culprit.author,
            "subject": culprit.subject,
            "date": culprit.date,
            "next": "rehearse_revert",
        }
        by = f"by {culprit.author} broke it ({count(steps, 'step')})"
        summary = f"{culprit.sha[:10]} “{culprit.subject}” {by}"
        return FlowResult(summary, check=red, facts=facts)

    def _test_arguments(self, tool: Toolchain) -> list[str]:
        """The test alone; the whole suite where the tool cannot run single tests."""
        return [self.test] if tool.runs_single_tests else []

    def _check_ends(self, job: Job, tool: Toolchain, good: str, bad: str) -> CheckResult:
        """Check that the test passes at good and fails at bad. Returns the failing result."""
        job.say(f"Bad end: {read_commit(job.git, bad)}")
        red = run_tests(job, tool, self._test_arguments(tool))
        if red.green:
            raise FlowError(f"the test passes at {bad[:10]}: nothing is broken there", "run it again, it may be flaky")
        if red.failed + red.errors == 0:
            raise FlowError(f"the test was skipped at {bad[:10]}", "choose another test")
        reset_worktree(job, good)
        job.say(f"Good end: {read_commit(job.git, good)}")
        try:
            green = run_tests(job, tool, self._test_arguments(tool))
        except CannotRun as error:
            raise FlowError(
                f"the test cannot run at {good[:10]}: {error.message}", "name a later good commit"
            ) from error
        if not green.green:
            raise FlowError(
                f"the test does not pass at {good[:10]}: {describe_check(green)}", "name an older good commit"
            )
        return red

    def _search(
        self, job: Job, tool: Toolchain, good: str, bad: str, red: CheckResult
    ) -> tuple[list[str], int, list[str]]:
        """Test the commits that git chooses, until it names the first bad one or only skipped ones are left. Returns
        these, the number of steps and the skipped commits."""
        between = int(job.git.text("rev-list", "--count", f"{good}..{bad}"))
        job.say(f"{count(between, 'commit')} between the two ends")
        reset_worktree(job, bad)
        output = _git_bisect(job, "start", bad, good)
        steps = 0
        skipped: list[str] = []
        while not (first_bad := _FIRST_BAD.search(output)) and "only 'skip'ped commits left" not in output:
            here = job.git.text("rev-parse", "HEAD")
            steps += 1
            remaining = _REVISIONS_LEFT.search(output)
            job.say(f"Step {steps}, {remaining[1] if remaining else 0} left after it: {read_commit(job.git, here)}")
            verdict = self._test_commit(job, tool, red)
            skipped += [here] if verdict == "skip" else []
            job.say(f"{here[:10]} is {verdict if verdict != 'skip' else 'skipped: the test cannot run there'}")
            reset_worktree(job, here)
            output = _git_bisect(job, verdict)
        suspects = [first_bad[1]] if first_bad else re.findall(r"^[0-9a-f]{40,64}$", output, re.M)
        return suspects, steps, skipped

    def _test_commit(self, job: Job, tool: Toolchain, red: CheckResult) -> str:
        """good, bad or skip. A run with errors alone counts as bad only when the bad end has errors alone, too."""
        try:
            check = run_tests(job, tool, self._test_arguments(tool))
        except CannotRun as error:
            job.say(error.message)
            return "skip"
        if check.green:
            return "good"
        if check.failed or (check.errors and not red.failed):
            return "bad"
        return "skip"


def _git_bisect(job: Job, *arguments: str) -> str:
    """One step of `git bisect`, whose refs belong to this worktree alone; its output."""
    try:
        done = job.git.run("bisect", *arguments, allowed=(0, 2))
    except GitError as error:
        raise FlowError(f"git cannot continue the bisect: {error.message}") from error
    return (done.stdout + done.stderr).decode(errors="replace")


# -- Time tests at HEAD and at a commit where they were fast ------------------------------------------------------

SLOWER_RATIO = 1.5
"""A test is slower when it takes this many times as long, and longer than every earlier run."""


class TimeTests(ProjectFlow):
    """Runs tests the same number of times at both commits, in a worktree."""

    name = "time_tests"
    label = "Time tests"
    place = Place.WORKTREE
    tests: list[TestId] = Field(min_length=1, max_length=10, description="ids of the tests, as their tool names them")
    fast: Revision = Field(description="a commit at which they were fast")
    times: int = Field(default=5, ge=2, le=50, description="how often they run at each commit")

    def describe(self) -> str:
        which = f"{join_names(self.tests, 2)}{in_project(self.project)}"
        return f"Time {which} at HEAD and at {self.fast[:10]}"

    def run(self, job: Job) -> FlowResult:
        head, fast = resolve_commit(job, "HEAD"), resolve_commit(job, self.fast)
        tools = find_toolchains(job, self.project)
        tool = toolchain_for(tools, self.tests, single=True)
        with linked_packages(job, tools):
            before = self._time_tests_at(job, tool, fast)
            now = self._time_tests_at(job, tool, head)
        comparisons = []
        slower = 0
        for test in [test for test in now if test in before]:
            old, new = before[test], now[test]
            is_slower = median(new) >= SLOWER_RATIO * median(old) and min(new) > max(old)
            slower += is_slower
            ratio = "not slower"
            if is_slower:
                ratio = f"{median(new) / median(old):.1f} times as long" if median(old) >= 0.01 else "slower"
            comparisons.append(
                f"{test} takes {_format_spread(new)} at HEAD and {_format_spread(old)} at {fast[:7]}: {ratio}"
            )
            job.say(comparisons[-1])
        if not comparisons:
            raise FlowError("none of these tests ran at both commits", "name tests that both commits have")
        if slower:
            job.say(f"Next: git log --oneline {fast[:10]}..HEAD")
        facts = {"fast": fast, "head": head, "before": before, "now": now, "slower": slower}
        return FlowResult("; ".join(comparisons[:3]), sound=not slower, facts=facts)

    def _time_tests_at(self, job: Job, tool: Toolchain, revision: str) -> dict[str, list[float]]:
        """Seconds of each test in each run at a commit."""
        reset_worktree(job, revision)
        job.say(f"At {read_commit(job.git, revision)}")
        durations: dict[str, list[float]] = {}
        for number in range(self.times):
            try:
                check = run_tests(job, tool, self.tests, quiet=number > 0)
            except CannotRun as error:
                raise FlowError(
                    f"the tests cannot run at {revision[:10]}: {error.message}", "name another commit"
                ) from error
            if not check.green:
                raise FlowError(f"the tests do not pass at {revision[:10]}", "fix them first, or name another commit")
            for test, seconds in check.durations:
                durations.setdefault(test, []).append(round(seconds, 3))
        return durations


def _format_spread(seconds: list[float]) -> str:
    """`2.1 s (2.0 to 2.3)`: the median and both ends."""
    return f"{median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})"
