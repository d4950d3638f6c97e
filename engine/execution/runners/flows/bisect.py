"""Find the commit that broke a test, with git's own bisection."""

from __future__ import annotations

import re
from typing import ClassVar

from pydantic import BaseModel, Field

from engine.execution.runners.flow import CannotRun, FlowResult, FlowUnable, Job, Place
from engine.execution.runners.flows.common import (
    ProjectParameters,
    Revision,
    TestId,
    clean,
    commit,
    count,
    in_project,
    in_words,
    resolve,
    run_tests,
    tidy,
    toolchain_of,
    toolchains,
)
from engine.execution.runners.toolchains.bound import Toolchain, borrowed
from engine.git import GitError
from engine.model import CheckResult

_LEFT = re.compile(r"^Bisecting: (\d+) revisions? left", re.M)
_FOUND = re.compile(r"^([0-9a-f]{40,64}) is the first bad commit", re.M)


class BisectParameters(ProjectParameters):
    """Which test, and between which commits it turned red."""

    test: TestId = Field(description="id of the test that fails, as its tool names it")
    good: Revision = Field(description="a commit at which the test passed")
    bad: Revision = Field(default="HEAD", description="a later commit at which it fails")


class Bisect:
    """Checks that good is green and bad is red, then halves what lies between, one test run a step."""

    name: ClassVar = "bisect"
    title: ClassVar = "Bisect a failing test"
    place: ClassVar = Place.WORKTREE
    parameters: ClassVar[type[BaseModel]] = BisectParameters

    def describe(self, parameters: BisectParameters) -> str:
        short = clean(parameters.good)[:10], clean(parameters.bad)[:10]
        return f"Find the commit that broke `{clean(parameters.test)}` between {short[0]} and {short[1]}" + in_project(
            parameters.project
        )

    def run(self, job: Job) -> FlowResult:
        good, bad = resolve(job, job.parameters.good), resolve(job, job.parameters.bad)
        if job.git.run("merge-base", "--is-ancestor", good, bad, allowed=(0, 1)).returncode or good == bad:
            raise FlowUnable(
                f"{good[:10]} is not an ancestor of {bad[:10]}", "name a good commit in the bad one's history"
            )
        tidy(job, bad)
        found = toolchains(job)
        tool = toolchain_of(found, [job.parameters.test])
        with borrowed(found, job.folder, job.workspace):
            red = self._ends(job, tool, good, bad)
            try:
                culprit, steps, skipped, candidates = self._search(job, tool, good, bad, red)
            finally:
                job.git.run("bisect", "reset", bad, allowed=range(256))
            tidy(job, bad)  # the result is the bad end's: that is the state it is recorded with
        return self._told(job, culprit, steps, skipped, candidates, red)

    def _ends(self, job: Job, tool: Toolchain, good: str, bad: str) -> CheckResult:
        """Good must be green and bad must be red, else there is nothing to find. Returns how it is red."""
        job.say(f"Bad end: {commit(job.git, bad)}")
        red = run_tests(job, tool, _asked(tool, job))
        if red.green:
            raise FlowUnable(f"the test passes at {bad[:10]}: nothing is broken there", "run it again, it may be flaky")
        if red.failed + red.errors == 0:
            raise FlowUnable(f"the test was skipped at {bad[:10]}", "choose another test")
        tidy(job, good)
        job.say(f"Good end: {commit(job.git, good)}")
        try:
            green = run_tests(job, tool, _asked(tool, job))
        except CannotRun as error:
            raise FlowUnable(
                f"the test cannot run at {good[:10]}: {error.message}", "name a later good commit"
            ) from error
        if not green.green:
            raise FlowUnable(f"the test does not pass at {good[:10]}: {in_words(green)}", "name an older good commit")
        return red

    def _search(
        self, job: Job, tool: Toolchain, good: str, bad: str, red: CheckResult
    ) -> tuple[str, int, list[str], list[str]]:
        """git chooses the commits. Returns the first bad one ("" when skipped ones hide it), the number of steps,
        the commits that were skipped, and, without a first bad one, those that remain possible."""
        between = int(job.git.text("rev-list", "--count", f"{good}..{bad}"))
        job.say(f"{count(between, 'commit')} between the two ends")
        tidy(job, bad)
        output = _bisect(job, "start", bad, good)
        steps = 0
        skipped: list[str] = []
        while not (found := _FOUND.search(output)):
            if "only 'skip'ped commits left" in output:
                remain = re.findall(r"^[0-9a-f]{40,64}$", output, re.M)
                return "", steps, skipped, remain
            here = job.git.text("rev-parse", "HEAD")
            steps += 1
            left = _LEFT.search(output)
            job.say(f"Step {steps}, {left[1] if left else '0'} left after it: {commit(job.git, here)}")
            word = self._verdict(job, tool, red)
            if word == "skip":
                skipped.append(here)
            job.say(f"{here[:10]} is {word if word != 'skip' else 'skipped: the test cannot run there'}")
            tidy(job, here)
            output = _bisect(job, word)
        return found[1], steps, skipped, []

    def _verdict(self, job: Job, tool: Toolchain, red: CheckResult) -> str:
        """good, bad or skip. A run that only broke counts as bad just when the bad end is broken the same way."""
        try:
            check = run_tests(job, tool, _asked(tool, job))
        except CannotRun as error:
            job.say(error.message)
            return "skip"
        if check.green:
            return "good"
        if check.failed or (check.errors and not red.failed):
            return "bad"
        return "skip"

    def _told(
        self, job: Job, culprit: str, steps: int, skipped: list[str], candidates: list[str], red: CheckResult
    ) -> FlowResult:
        facts: dict[str, object] = {"test": job.parameters.test, "steps": steps, "skipped": skipped}
        if not culprit:
            names = [str(commit(job.git, sha)) for sha in candidates]
            job.say("\n".join(["The test cannot run at these commits; one of them broke it:", *names]))
            summary = f"Broken by one of {count(len(candidates), 'commit')} at which the test cannot run"
            return FlowResult(summary, check=red, facts=facts | {"candidates": candidates})
        found = commit(job.git, culprit)
        job.say(f"First bad commit: {found.sha}\n{found.author}, {found.date}\n{found.subject}")
        for line in job.git.text("show", "--stat", "--format=", "--no-color", culprit).splitlines():
            job.say(clean(line))
        facts |= {"culprit": found.sha, "author": found.author, "subject": found.subject, "date": found.date}
        facts["next"] = "rehearse_revert"
        summary = f"{found.sha[:10]} “{found.subject}” by {found.author} broke it ({count(steps, 'step')})"
        return FlowResult(summary, check=red, facts=facts)


def _asked(tool: Toolchain, job: Job) -> list[str]:
    """The test alone; the whole suite where the tool cannot run one."""
    return [job.parameters.test] if tool.exact else []


def _bisect(job: Job, *arguments: str) -> str:
    """One step of git's own search; its refs belong to this worktree alone."""
    try:
        done = job.git.run("bisect", *arguments, allowed=(0, 2))
    except GitError as error:
        raise FlowUnable(f"git cannot continue the bisect: {error.message}") from error
    return (done.stdout + done.stderr).decode(errors="replace")
