"""Flows about a test that broke. They find the commit that broke it, revert that commit, or apply a fix that worked
before."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Literal

from pydantic import Field

from engine.execution.runners.flow import (
    CannotRun,
    Facts,
    FlowError,
    FlowResult,
    Job,
    Line,
    Place,
    ProjectFlow,
    Revision,
    TestId,
)
from engine.execution.runners.flows.git_steps import (
    read_commit,
    report_conflicts,
    reset_worktree,
    resolve_commit,
    show_diff,
    store_tree,
    try_git,
)
from engine.execution.runners.flows.suite_runs import (
    describe_check,
    find_toolchains,
    run_tests,
    toolchain_for,
    try_whole_suite,
)
from engine.execution.runners.toolchains.installing import linked_packages
from engine.git import GitError
from engine.git.history import is_ancestor
from engine.model import CheckResult
from engine.model.adaptation import MAX_PATCH
from engine.model.text import count, join_names, last_line

# -- Find the commit that broke a test, with git's own bisection ----------------------------------------------------

_REVISIONS_LEFT = re.compile(r"^Bisecting: (\d+) revisions? left", re.M)

Verdict = Literal["good", "bad", "skip"]
"""A verdict on a commit, as an argument of `git bisect`."""

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
        return f"Find the commit that broke `{self.test}` between {ends}{self.where}"

    def run(self, job: Job) -> FlowResult:
        good, bad = resolve_commit(job, self.good), resolve_commit(job, self.bad)
        if good == bad or not is_ancestor(job.git, good, bad):
            raise FlowError(
                f"{good[:10]} is not an ancestor of {bad[:10]}", "name a good commit in the bad one's history"
            )
        tools = find_toolchains(job, self.project)
        tool = toolchain_for(tools, [self.test])
        run_test = partial(run_tests, job, tool, [self.test] if tool.runs_single_tests else [])
        with linked_packages(job, tools):
            at_bad = _check_bad_end(job, run_test, bad)
            _check_good_end(job, run_test, good)
            try:
                suspects, verdicts = _search(job, run_test, good, bad, at_bad)
            finally:
                job.git.run("bisect", "reset", bad, allowed=range(256))
            reset_worktree(job, bad)  # the result is recorded for the state of the worktree
        skipped = [sha for sha, verdict in verdicts.items() if verdict == "skip"]
        facts: Facts = {"test": self.test, "steps": len(verdicts), "skipped": skipped}
        if len(suspects) > 1:
            job.say("The test cannot run at these commits; one of them broke it:")
            job.say_list([read_commit(job.git, sha) for sha in suspects], len(suspects))
            summary = f"Broken by one of {count(len(suspects), 'commit')} at which the test cannot run"
            return FlowResult(summary, check=at_bad, facts=facts | {"candidates": suspects})
        culprit = read_commit(job.git, suspects[0])
        show_diff(job, culprit.sha)
        facts |= {"culprit": culprit.sha, "author": culprit.author, "subject": culprit.subject, "date": culprit.date}
        by = f"by {culprit.author} broke it ({count(len(verdicts), 'step')})"
        summary = f"{culprit.sha[:10]} “{culprit.subject}” {by}"
        return FlowResult(summary, check=at_bad, facts=facts | {"next": "rehearse_revert"})


RunTest = Callable[[], CheckResult]
"""A function that runs the test on the present files: alone, or with the whole suite if its tool cannot run single
tests."""


def _check_bad_end(job: Job, run_test: RunTest, bad: str) -> CheckResult:
    """Run the test at the bad end. Raises `FlowError` if it does not fail there."""
    reset_worktree(job, bad)
    job.say(f"Bad end: {read_commit(job.git, bad)}")
    check = run_test()
    if check.green:
        raise FlowError(f"the test passes at {bad[:10]}: nothing is broken there", "run it again, it may be flaky")
    if check.failed + check.errors == 0:
        raise FlowError(f"the test was skipped at {bad[:10]}", "choose another test")
    return check


def _check_good_end(job: Job, run_test: RunTest, good: str) -> None:
    """Run the test at the good end. Raises `FlowError` if it does not pass there."""
    reset_worktree(job, good)
    job.say(f"Good end: {read_commit(job.git, good)}")
    try:
        check = run_test()
    except CannotRun as error:
        raise FlowError(f"the test cannot run at {good[:10]}: {error.message}", "name a later good commit") from error
    if not check.green:
        raise FlowError(f"the test does not pass at {good[:10]}: {describe_check(check)}", "name an older good commit")


def _search(
    job: Job, run_test: RunTest, good: str, bad: str, at_bad: CheckResult
) -> tuple[list[str], dict[str, Verdict]]:
    """Test the commits that git chooses, until it names the first bad commit, or only skipped commits are left. Returns
    these commits, and the verdict on each tested commit."""
    between = int(job.git.text("rev-list", "--count", f"{good}..{bad}"))
    job.say(f"{count(between, 'commit')} between the two ends")
    reset_worktree(job, bad)
    output = _git_bisect(job, "start", bad, good)
    verdicts: dict[str, Verdict] = {}
    while not (first_bad := _FIRST_BAD.search(output)) and "only 'skip'ped commits left" not in output:
        commit = job.git.text("rev-parse", "HEAD")
        left = _REVISIONS_LEFT.search(output)
        step = f"Step {len(verdicts) + 1}, {left[1] if left else 0} left after it"
        job.say(f"{step}: {read_commit(job.git, commit)}")
        try:
            verdict = verdict_of(run_test(), at_bad)
        except CannotRun as error:
            job.say(error.message)
            verdict = "skip"
        verdicts[commit] = verdict
        job.say(f"{commit[:10]} is {verdict if verdict != 'skip' else 'skipped: the test cannot run there'}")
        reset_worktree(job, commit)
        output = _git_bisect(job, verdict)
    suspects = [first_bad[1]] if first_bad else re.findall(r"^[0-9a-f]{40,64}$", output, re.M)
    return suspects, verdicts


def verdict_of(check: CheckResult, at_bad: CheckResult) -> Verdict:
    """The verdict on a commit, from the results of the test there and at the bad end. A run that has only errors tested
    nothing. So it is bad only if the run at the bad end has only errors, too."""
    if check.green:
        return "good"
    return "bad" if check.failed or (check.errors and not at_bad.failed) else "skip"


def _git_bisect(job: Job, *arguments: str) -> str:
    """Run one step of `git bisect`, and return its output. Its refs belong to this worktree only."""
    try:
        done = job.git.run("bisect", *arguments, allowed=(0, 2))
    except GitError as error:
        raise FlowError(f"git cannot continue the bisect: {error.message}") from error
    return (done.stdout + done.stderr).decode(errors="replace")


# -- Revert one commit, and run the tests on the result -------------------------------------------------------------


class RehearseRevert(ProjectFlow):
    """Reverts a commit. The result is a change set; no commit is made, no branch moves."""

    name = "rehearse_revert"
    label = "Rehearse a revert"
    place = Place.CHANGE_SET
    commit: Revision = Field(description="the commit to revert")
    test: TestId | None = Field(default=None, description="a test that fails because of it, as its tool names it")

    def describe(self) -> str:
        test = f"`{self.test}` and " if self.test else ""
        return f"Revert {self.commit[:10]} in a worktree and run {test}the whole suite{self.where}"

    def run(self, job: Job) -> FlowResult:
        culprit, head = resolve_commit(job, self.commit), resolve_commit(job, "HEAD")
        name = str(read_commit(job.git, culprit))
        facts: Facts = {"commit": culprit, "test": self.test, "conflicts": []}
        if not is_ancestor(job.git, culprit, head):
            raise FlowError(f"HEAD does not contain {culprit[:10]}", "name a commit in the history of HEAD")
        show_diff(job, culprit)
        base = store_tree(job)
        is_merge = job.git.text("rev-parse", "--verify", "--quiet", f"{culprit}^2", allowed=(0, 1))
        mainline = ("--mainline", "1") if is_merge else ()
        reverted = try_git(job, "revert", "--no-commit", *mainline, culprit)
        if reverted.conflicts:
            report_conflicts(job, reverted.conflicts)
            reset_worktree(job)  # files with conflict markers must not become a change set
            job.say(f"Next: run git revert {culprit[:10]} and resolve these by hand")
            facts["conflicts"] = [*reverted.conflicts]
            return FlowResult(f"Reverting {name} conflicts in {reverted.files}", sound=False, facts=facts)
        if reverted.error:
            raise FlowError(f"git cannot revert it: {reverted.error}")
        if reverted.is_empty:
            return FlowResult(f"Nothing to revert: no changes of {name} are left", facts=facts)
        job.say("The revert is clean")
        check, outcome = try_whole_suite(job, self.project, base=base)
        still_fails = check is not None and self.test in check.failing
        if self.test and check is not None:
            outcome = (
                f", but `{self.test}` still fails{outcome}"
                if still_fails
                else f" and `{self.test}` then passes{outcome}"
            )
        reset_worktree(job, tree=reverted.tree)  # without the files that the tests wrote
        summary = f"{name} reverts cleanly{outcome}"
        return FlowResult(summary, check=check, sound=not still_fails, facts=facts, full=check is not None)


# -- Apply a fix that worked before, and run the tests that show it -------------------------------------------------

NEXT_AFTER_FAILED_FIX = "still_red"
"""The flow that follows a fix that did not help."""


class ApplyFix(ProjectFlow):
    """Applies a fix as a three-way merge, so that it also fits code that moved. The result is a change set. A fix that
    conflicts, or with which the tests still fail, leaves nothing and is a failure."""

    name = "apply_fix"
    label = "Apply a fix that worked before"
    place = Place.CHANGE_SET
    fix: Line = Field(description="id of the fix, as `clawpy candidates` lists it")
    tests: list[TestId] = Field(min_length=1, max_length=20, description="ids of tests that must pass with it")
    patch: str = Field(min_length=1, max_length=MAX_PATCH, description="the fix as a diff of git")

    def describe(self) -> str:
        return f"Apply the fix {self.fix} in a worktree and run {join_names(self.tests, 2)}{self.where}"

    def run(self, job: Job) -> FlowResult:
        facts = {"fix": self.fix, "tests": self.tests}
        failed = facts | {"next": NEXT_AFTER_FAILED_FIX}
        file = job.scratch / "fix.patch"
        file.write_text(self.patch, encoding="utf-8", newline="")
        for line in self.patch.splitlines():
            job.say(line)
        applied = try_git(job, "apply", "--3way", "--whitespace=nowarn", str(file))
        if not applied.tree:
            reset_worktree(job)  # files with conflict markers must not become a change set
            why = f"it conflicts in {applied.files}" if applied.conflicts else last_line(applied.error)
            return FlowResult(f"The fix does not apply: {why}", sound=False, facts=failed)
        if applied.is_empty:
            summary = "The files already have this fix, so the failure has another cause"
            return FlowResult(summary, sound=False, facts=failed)
        job.say("The fix applies")
        tool = toolchain_for(find_toolchains(job, self.project), self.tests)
        check = run_tests(job, tool, self.tests if tool.runs_single_tests else ())
        names = join_names(self.tests, 2)
        if set(self.tests) & set(check.failing) or not check.passed:
            reset_worktree(job)
            outcome = f"The fix applies, but {names} still fails, so the fix is discarded"
            return FlowResult(f"{outcome}: {describe_check(check)}", sound=False, facts=failed)
        reset_worktree(job, tree=applied.tree)  # without the files that the tests wrote
        return FlowResult(f"The fix applies and {names} passes: {describe_check(check)}", check=check, facts=facts)
