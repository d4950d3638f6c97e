"""Flows that find out why tests fail, and what makes them pass.

They group failures by cause, find the commit that broke a test, and try a revert of it or a fix that worked before.

The cause of a failure is read from the output of its test: the error, and the innermost line of the project's own code.
Other flows that run tests store it as a signature, by which similar failures are recognised later.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field

from engine.execution.runners import CannotRun, Facts, Place, WorkFailed
from engine.execution.runners.flow import FlowResult, Job, Line, ProjectFlow, Revision, TestId
from engine.execution.runners.flows.git_steps import (
    GitTrial,
    link_packages,
    read_commit,
    report_conflicts,
    reset_worktree,
    resolve_commit,
    show_diff,
    store_tree,
    try_git,
)
from engine.execution.runners.flows.suite_runs import (
    choose_toolchain,
    describe_check,
    find_toolchains,
    run_tests,
    try_whole_suite,
)
from engine.execution.runners.toolchains import TEST_FILE, TOOL_TABLES
from engine.execution.runners.toolchains.project_tools import Toolchain
from engine.frozen import frozen, group_pairs
from engine.git import GitError
from engine.git.history import is_ancestor
from engine.model import CheckResult
from engine.model.adaptation import MAX_PATCH_CHARS
from engine.text import find_last_error_line
from engine.wording import capitalised, count, join_names

# -- group failing tests by cause

MAX_TESTS_ALONE = 20
"""Maximum number of tests that are run alone. The first test of each cause is run before others."""

MAX_SHOWN_TESTS = 5
"""Maximum number of tests with one cause in the transcript."""

TestsByCause = Mapping["Cause", Sequence[str]]
"""The failing tests with each cause."""


class NarrowFailures(ProjectFlow):
    """Runs the failing tests again, groups them by cause, and runs the first of each group alone."""

    name = "narrow_failures"
    label = "Narrow down failures"
    work = "tests"
    place = Place.CHECK
    tests: list[TestId] = Field(
        min_length=1, max_length=200, description="ids of failing tests, as their tool has them"
    )

    def describe(self) -> str:
        if len(self.tests) == 1:
            return f"Run `{self.tests[0]}` without the other tests{self.where}"
        return f"Run {len(self.tests)} failing tests alone and group the failures by cause{self.where}"

    def run(self, job: Job) -> FlowResult:
        tool = choose_toolchain(find_toolchains(job, self.project), self.tests, single=True)
        texts: dict[str, str] = {}
        check = run_tests(job, tool, self.tests, failure_texts=texts)
        if check.green or not check.failing:
            why = "the earlier failures depend on earlier tests, are unreliable, or are fixed"
            return FlowResult(capitalised(f"{describe_check(check)} now: {why}"), check=check, facts={"causes": []})
        causes = group_pairs((find_cause(texts.get(test, ""), str(tool.folder)), test) for test in check.failing)
        tests_by_cause = dict(sorted(causes.items(), key=lambda pair: -len(pair[1])))  # the most frequent first
        fails_alone = self._run_alone(job, tool, tests_by_cause)
        _report_causes(job, tests_by_cause, fails_alone)
        if passed := [test for test in self.tests if test not in check.failing and "::" in test]:
            why = "passes without the rest of the suite; it depends on other tests or chance"
            job.say(f"{join_names(passed, 3)}: {why}")
        command = _format_shell_command(job, tool, [failing[0] for failing in tests_by_cause.values()])
        job.say(f"The smallest selection that shows every cause: {command}")
        facts = {
            "causes": [{"cause": str(cause), "tests": failing} for cause, failing in tests_by_cause.items()],
            **make_signature_facts(texts, check.failing, tool.folder),
        }
        dependent = [test for test, fails in fails_alone.items() if not fails]
        return FlowResult(_summarise_causes(tests_by_cause, dependent), check=check, facts=facts)

    def _run_alone(self, job: Job, tool: Toolchain, tests_by_cause: TestsByCause) -> dict[str, bool]:
        """Whether each test fails when it runs alone. The first test of each cause is run first."""
        firsts = [failing[0] for failing in tests_by_cause.values()]
        others = [test for failing in tests_by_cause.values() for test in failing[1:]]
        order = [*firsts, *others][:MAX_TESTS_ALONE]
        if len(self.tests) == 1:
            return dict.fromkeys(order, True)
        fails_alone: dict[str, bool] = {}
        for test in order:
            try:
                fails_alone[test] = not run_tests(job, tool, [test], quiet=True).green
            except CannotRun as error:
                job.say(f"{test} cannot run alone: {error.message}")
        return fails_alone


def _report_causes(job: Job, tests_by_cause: TestsByCause, fails_alone: Mapping[str, bool]) -> None:
    """Show the tests with each cause. `fails_alone` has those that were also run alone."""
    notes = {
        test: "  also fails alone" if fails else "  passes alone, so it depends on earlier tests"
        for test, fails in fails_alone.items()
    }
    for cause, failing in tests_by_cause.items():
        job.say(f"{count(len(failing), 'test')}: {cause!s}")
        job.say_list([f"{test}{notes.get(test, '')}" for test in failing], MAX_SHOWN_TESTS, indent="    ")


def _summarise_causes(tests_by_cause: TestsByCause, dependent: Sequence[str]) -> str:
    """The failures and their causes in words. `dependent` are tests that pass alone."""
    numbers = [f" ({len(failing)})" if len(tests_by_cause) > 1 else "" for failing in tests_by_cause.values()]
    causes = [f"{cause!s}{number}" for cause, number in zip(tests_by_cause, numbers, strict=True)]
    failures = sum(map(len, tests_by_cause.values()))
    summary = f"{count(failures, 'failure')}, {count(len(causes), 'cause')}: {'; '.join(causes[:3])}"
    if dependent:
        summary += f"; {join_names(dependent, 2)} {'passes' if len(dependent) == 1 else 'pass'} alone"
    return summary


def _format_shell_command(job: Job, tool: Toolchain, tests: Sequence[str]) -> str:
    """The command with which the operator can run these tests."""
    if tool.name == "pytest":
        return f"pytest {shlex.join(tests)}"
    argv = tool.test_command(tests, job.scratch / "report.xml").argv
    return shlex.join(part for part in argv if str(job.scratch) not in part)


# -- the cause of a failure, from the output of its test

MAX_SIGNATURES = 50
"""Maximum number of failing tests of a run that get a signature."""

_ERROR_PATTERNS = [re.compile(pattern, re.M) for pattern in TOOL_TABLES["causes"]["errors"]]
"""Each matches the error in the output of a test: its class and its message, or only its message."""

_FRAME_PATTERNS = [
    (re.compile(pattern, re.M), index)
    for index, patterns in ((-1, "last_frames"), (0, "first_frames"))
    for pattern in TOOL_TABLES["causes"][patterns]
]
"""(regular expression for a position in the code, index of the match that is the innermost position)."""

_THIRD_PARTY_FILE = re.compile(r"(?:^|/)(?:site-packages|node_modules|\.venv|lib/python[\d.]+|node:)|^node:|^[</]")


@frozen
class Cause:
    """The cause of a failure. Two failures with the same cause have equal values."""

    kind: str
    """The class of the error; "" for an assertion."""
    message: str
    """The message without numbers, addresses and paths, because these differ from run to run."""
    where: str
    """The innermost line of the project's own code; "" if the output has none."""
    printed: str = field(default="", compare=False)
    """The message as it was printed."""

    def __str__(self) -> str:
        parts = [self.kind, self.printed or self.message]
        description = ": ".join(filter(None, parts)) or "failed"
        return f"{description[:120]}, at {self.where}" if self.where else description[:120]

    def make_signature(self, test: str) -> str:
        """The text that similar failures share: the error, its message, and the file that raised it, without the line.

        An assertion in a test file concerns only that `test`, so the test is used instead of the file. "" if the output
        does not show the error or the file.
        """
        file = self.where.rpartition(":")[0]
        if not (self.kind or self.message) or not file:
            return ""
        return f"{self.kind or 'failed'}: {self.message} in {test if TEST_FILE.search(file) else file}"


def make_signature_facts(texts: Mapping[str, str], failing: Sequence[str], folder: Path) -> Facts:
    """The facts about similar failures: `signatures` by failing test, and `messages` by signature. A message is shown
    instead of a signature; it is the cause of the first test with the signature, in words."""
    signatures: dict[str, str] = {}
    messages: dict[str, str] = {}
    for test in failing[:MAX_SIGNATURES]:
        cause = find_cause(texts.get(test, ""), str(folder))
        if signature := cause.make_signature(test):
            signatures[test] = signature
            messages.setdefault(signature, str(cause))
    return {"signatures": signatures, "messages": messages}


def find_cause(text: str, folder: str) -> Cause:
    """The cause of a failure, from its output. Differences in numbers, addresses and paths are ignored."""
    text = text.replace(folder.rstrip("/") + "/", "")
    kind, message = _find_error(text)
    return Cause(kind, _normalise_message(message), _find_position(text), message.strip()[:200])


def _find_error(text: str) -> tuple[str, str]:
    """The class and the message of the error in the output of a test. The class is "" for an assertion. If there is no
    error, the first line that is not empty is the message."""
    match = next(filter(None, (pattern.search(text) for pattern in _ERROR_PATTERNS)), None)
    if match is None:
        return "", next((line.strip() for line in text.splitlines() if line.strip()), "")
    return (match[1], match[2]) if len(match.groups()) == 2 else ("", match[1])


def _find_position(text: str) -> str:
    """The innermost line of the project's own code; "" if the output has none."""
    for pattern, index in _FRAME_PATTERNS:
        frames = [match for match in pattern.finditer(text) if not _THIRD_PARTY_FILE.search(match["file"])]
        if frames:
            return f"{frames[index]['file']}:{frames[index]['line']}"
    return ""


def _normalise_message(message: str) -> str:
    """A message without numbers, addresses and paths, which differ from run to run."""
    message = re.sub(r"0x[0-9a-fA-F]+|\b[0-9a-f]{12,}\b", "ADDRESS", message)
    message = re.sub(r"(?<![\w.])/(?:[\w.@+-]+/)+[\w.@+-]*", "/…", message)
    return re.sub(r"(?<![A-Za-z_])-?\d+(?:\.\d+)?", "N", message).strip()[:200]


# -- find the commit that broke a test

_REVISIONS_LEFT = re.compile(r"^Bisecting: (\d+) revisions? left", re.M)

_FIRST_BAD = re.compile(r"^([0-9a-f]{40,64}) is the first bad commit", re.M)

Verdict = Literal["good", "bad", "skip"]
"""A verdict on a commit, as an argument of `git bisect`."""

RunTest = Callable[[], CheckResult]
"""A function that runs the test on the present files: alone, or with the whole suite if its tool cannot run single
tests."""


class SearchOutcome(NamedTuple):
    """The end of a search for the first bad commit."""

    suspects: list[str]
    """The first bad commit; several if the test cannot run at some commits, and one of these broke it."""
    verdicts: dict[str, Verdict]
    """The verdict on each tested commit."""


class Bisect(ProjectFlow):
    """Checks that the test passes at good and fails at bad, then halves the commits between, one test run a step."""

    name = "bisect"
    label = "Bisect a failing test"
    work = "bisect"
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
            raise WorkFailed(
                f"{good[:10]} is not an ancestor of {bad[:10]}", "name a good commit in the bad one's history"
            )
        tools = find_toolchains(job, self.project)
        tool = choose_toolchain(tools, [self.test])
        run_test = partial(run_tests, job, tool, [self.test] if tool.runs_single_tests else [])
        with link_packages(job, tools):
            check_at_bad = _check_bad_end(job, run_test, bad)
            _check_good_end(job, run_test, good)
            try:
                outcome = _search(job, run_test, good, bad, check_at_bad)
            finally:
                job.git.run("bisect", "reset", bad, allowed=range(256))
            reset_worktree(job, bad)  # the result is recorded for the state of the worktree
        steps = len(outcome.verdicts)
        facts: Facts = {"test": self.test}
        if len(outcome.suspects) > 1:
            job.say("The test cannot run at these commits; one of them broke it:")
            job.say_list([read_commit(job, sha) for sha in outcome.suspects], len(outcome.suspects))
            summary = f"Broken by one of {count(len(outcome.suspects), 'commit')} at which the test cannot run"
            return FlowResult(summary, check=check_at_bad, facts={**facts, "suspects": outcome.suspects})
        culprit = read_commit(job, outcome.suspects[0])
        show_diff(job, culprit.sha)
        facts |= {"culprit": culprit.sha, "subject": culprit.subject, "next": "rehearse_revert"}
        summary = f"{culprit.sha[:10]} “{culprit.subject}” by {culprit.author} broke it ({count(steps, 'step')})"
        return FlowResult(summary, check=check_at_bad, facts=facts)


def _check_bad_end(job: Job, run_test: RunTest, bad: str) -> CheckResult:
    """Run the test at the bad end. Raises `WorkFailed` if it does not fail there."""
    reset_worktree(job, bad)
    job.say(f"Bad end: {read_commit(job, bad)}")
    check = run_test()
    if check.failed + check.errors == 0:
        raise WorkFailed(f"the test does not fail at {bad[:10]}: {describe_check(check)}", "it may be flaky")
    return check


def _check_good_end(job: Job, run_test: RunTest, good: str) -> None:
    """Run the test at the good end. Raises `WorkFailed` if it does not pass there."""
    reset_worktree(job, good)
    job.say(f"Good end: {read_commit(job, good)}")
    try:
        check = run_test()
    except CannotRun as error:
        raise WorkFailed(f"the test cannot run at {good[:10]}: {error.message}", "name a later good commit") from error
    if not check.green:
        raise WorkFailed(f"the test does not pass at {good[:10]}: {describe_check(check)}", "name an older good commit")


def _search(job: Job, run_test: RunTest, good: str, bad: str, check_at_bad: CheckResult) -> SearchOutcome:
    """Test the commits that git chooses, until it names the first bad commit, or only skipped commits are left."""
    between = int(job.git.text("rev-list", "--count", f"{good}..{bad}"))
    job.say(f"{count(between, 'commit')} between the two ends")
    reset_worktree(job, bad)
    output = _run_git_bisect(job, "start", bad, good)
    verdicts: dict[str, Verdict] = {}
    while not (first_bad := _FIRST_BAD.search(output)) and "only 'skip'ped commits left" not in output:
        commit = job.git.text("rev-parse", "HEAD")
        revisions_left = _REVISIONS_LEFT.search(output)
        left = count(int(revisions_left[1]) if revisions_left else 0, "commit")
        job.say(f"Step {len(verdicts) + 1}, {left} left after it: {read_commit(job, commit)}")
        try:
            verdict = decide_verdict(run_test(), check_at_bad)
        except CannotRun as error:
            job.say(error.message)
            verdict = "skip"
        verdicts[commit] = verdict
        job.say(f"{commit[:10]} is {verdict if verdict != 'skip' else 'skipped: the test cannot run there'}")
        reset_worktree(job, commit)
        output = _run_git_bisect(job, verdict)
    suspects = [first_bad[1]] if first_bad else re.findall(r"^[0-9a-f]{40,64}$", output, re.M)
    return SearchOutcome(suspects, verdicts)


def decide_verdict(check: CheckResult, check_at_bad: CheckResult) -> Verdict:
    """The verdict on a commit, from the results of the test there and at the bad end. A run that has only errors tested
    nothing. So it is bad only if the run at the bad end has only errors, too."""
    if check.green:
        return "good"
    return "bad" if check.failed or (check.errors and not check_at_bad.failed) else "skip"


def _run_git_bisect(job: Job, *arguments: str) -> str:
    """Run one step of `git bisect`, and return its output. Its refs belong to this worktree only."""
    try:
        result = job.git.run("bisect", *arguments, allowed=(0, 2))
    except GitError as error:
        raise WorkFailed(f"git cannot continue the bisect: {error.message}") from error
    return (result.stdout + result.stderr).decode(errors="replace")


# -- try what may mend it

NEXT_AFTER_FAILED_FIX = "still_red"
"""The flow that follows a fix that did not help."""


class RehearseRevert(ProjectFlow):
    """Reverts a commit. The result is a change set; no commit is made, no branch moves."""

    name = "rehearse_revert"
    label = "Rehearse a revert"
    work = "revert"
    place = Place.CHANGE_SET
    commit: Revision = Field(description="the commit to revert")
    test: TestId | None = Field(default=None, description="a test that fails because of it, as its tool names it")

    def describe(self) -> str:
        test = f"`{self.test}` and " if self.test else ""
        return f"Revert {self.commit[:10]} in a worktree and run {test}the whole suite{self.where}"

    def run(self, job: Job) -> FlowResult:
        culprit, head = resolve_commit(job, self.commit), resolve_commit(job, "HEAD")
        name = str(read_commit(job, culprit))
        facts: Facts = {"commit": culprit, "test": self.test, "conflicts": []}
        if not is_ancestor(job.git, culprit, head):
            raise WorkFailed(f"HEAD does not contain {culprit[:10]}", "name a commit in the history of HEAD")
        show_diff(job, culprit)
        base = store_tree(job)
        is_merge = job.git.text("rev-parse", "--verify", "--quiet", f"{culprit}^2", allowed=(0, 1))
        mainline = ("--mainline", "1") if is_merge else ()  # a merge is reverted to its first parent
        reverted = try_git(job, "revert", "--no-commit", *mainline, culprit)
        if reverted.conflicts:
            return _reject_conflicting_revert(job, reverted, name, facts)
        if reverted.error:
            raise WorkFailed(f"git cannot revert it: {reverted.error}")
        if reverted.is_empty:
            return FlowResult(f"Nothing to revert: no changes of {name} are left", facts=facts)
        job.say("The revert is clean")
        check, outcome = try_whole_suite(job, self.project, base=base)
        still_fails = check is not None and self.test in check.failing
        if self.test and check is not None:
            test_outcome = f", but `{self.test}` still fails" if still_fails else f" and `{self.test}` then passes"
            outcome = test_outcome + outcome
        reset_worktree(job, tree=reverted.tree)  # without the files that the tests wrote
        summary = f"{name} reverts cleanly{outcome}"
        return FlowResult(summary, check=check, has_problem=still_fails, facts=facts, full=check is not None)


def _reject_conflicting_revert(job: Job, reverted: GitTrial, name: str, facts: Facts) -> FlowResult:
    """The result of a revert that conflicts. `name` is the commit in words."""
    report_conflicts(job, reverted.conflicts)
    reset_worktree(job)  # files with conflict markers must not become a change set
    commit = facts["commit"][:10]
    job.say(f"Next: commit or stash your changes, then run git revert {commit} and resolve what conflicts")
    facts["conflicts"] = [*reverted.conflicts]
    return FlowResult(f"Reverting {name} conflicts in {reverted.conflicts_in_words}", has_problem=True, facts=facts)


class ApplyFix(ProjectFlow):
    """Applies a fix as a three-way merge, so that it also fits code that moved. The result is a change set. A fix that
    conflicts, or with which the tests still fail, leaves nothing and is a failure."""

    name = "apply_fix"
    label = "Apply a fix that worked before"
    work = "fix"
    place = Place.CHANGE_SET
    fix: Line = Field(description="id of the fix, as `clawpy candidates` lists it")
    tests: list[TestId] = Field(min_length=1, max_length=20, description="ids of tests that must pass with it")
    patch: str = Field(min_length=1, max_length=MAX_PATCH_CHARS, description="the fix as a diff of git")

    def describe(self) -> str:
        return f"Apply the fix {self.fix} in a worktree and run {join_names(self.tests, 2)}{self.where}"

    def run(self, job: Job) -> FlowResult:
        for line in self.patch.splitlines():
            job.say(line)
        file = job.scratch / "fix.patch"
        file.write_text(self.patch, encoding="utf-8", newline="")
        applied = try_git(job, "apply", "--3way", "--whitespace=nowarn", str(file))
        if not applied.tree:
            reset_worktree(job)  # files with conflict markers must not become a change set
            why = find_last_error_line(applied.error)
            if applied.conflicts:
                why = f"it conflicts in {applied.conflicts_in_words}"
            return self._make_failure(f"The fix does not apply: {why}")
        is_there = applied.is_empty
        job.say("The files already have this fix" if is_there else "The fix applies")
        tool = choose_toolchain(find_toolchains(job, self.project), self.tests)
        check = run_tests(job, tool, self.tests if tool.runs_single_tests else ())
        still_fails = not check.passed or not set(self.tests).isdisjoint(check.failing)
        # Without the files that the tests wrote, and without the fix if it does not help.
        reset_worktree(job, tree="" if is_there or still_fails else applied.tree)
        names = join_names(self.tests, 2)
        beginning = f"The files already have this fix, and {names}" if is_there else f"The fix applies and {names}"
        if not still_fails:
            summary = f"{beginning} passes: {describe_check(check)}"
            return FlowResult(summary, check=check, facts={"fix": self.fix, "tests": self.tests})
        outcome = f"The fix applies, but {names} still fails, so the fix is discarded"
        if is_there:
            outcome = f"{beginning} still fails, so the failure has another cause"
        return self._make_failure(f"{outcome}: {describe_check(check)}")

    def _make_failure(self, summary: str) -> FlowResult:
        """The result of a fix that did not help."""
        facts = {"fix": self.fix, "tests": self.tests, "next": NEXT_AFTER_FAILED_FIX}
        return FlowResult(summary, has_problem=True, facts=facts)
