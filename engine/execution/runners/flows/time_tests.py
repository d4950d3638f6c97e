"""Time tests at HEAD and at a commit where they were fast."""

from __future__ import annotations

from statistics import median
from typing import ClassVar

from pydantic import BaseModel, Field

from engine.execution.runners.flow import CannotRun, FlowResult, FlowUnable, Job, Place
from engine.execution.runners.flows.common import (
    ProjectParameters,
    Revision,
    TestId,
    clean,
    commit,
    exactly,
    in_project,
    listed,
    resolve,
    run_tests,
    tidy,
    toolchain_of,
    toolchains,
)
from engine.execution.runners.toolchains.bound import Toolchain, borrowed

SLOWER = 1.5
"""At least so many times as long, and outside the spread, is slower."""


class TimeTestsParameters(ProjectParameters):
    """Which tests, against which commit, how often."""

    tests: list[TestId] = Field(min_length=1, max_length=10, description="ids of the tests, as their tool names them")
    fast: Revision = Field(description="a commit at which they were fast")
    times: int = Field(default=5, ge=2, le=50, description="how often they run at each commit")


class TimeTests:
    """Runs the tests the same number of times at both commits, in a worktree."""

    name: ClassVar = "time_tests"
    title: ClassVar = "Time tests"
    place: ClassVar = Place.WORKTREE
    parameters: ClassVar[type[BaseModel]] = TimeTestsParameters

    def describe(self, parameters: TimeTestsParameters) -> str:
        which = f"{listed(parameters.tests, 2)}{in_project(parameters.project)}"
        return f"Time {which} at HEAD and at {clean(parameters.fast)[:10]}"

    def run(self, job: Job) -> FlowResult:
        head, fast = resolve(job, "HEAD"), resolve(job, job.parameters.fast)
        found = toolchains(job)
        tool = toolchain_of(found, job.parameters.tests)
        exactly(tool)
        with borrowed(found, job.folder, job.workspace):
            before = self._times(job, tool, fast)
            now = self._times(job, tool, head)
        words = []
        slower = 0
        for test in [one for one in now if one in before]:
            old, new = before[test], now[test]
            is_slower = median(new) >= SLOWER * median(old) and min(new) > max(old)
            slower += is_slower
            ratio = "not slower"
            if is_slower:
                ratio = f"{median(new) / median(old):.1f} times as long" if median(old) >= 0.01 else "slower"
            words.append(f"{clean(test)} takes {_spread(new)} at HEAD and {_spread(old)} at {fast[:7]}: {ratio}")
            job.say(words[-1])
        if not words:
            raise FlowUnable("none of these tests ran at both commits", "name tests that both commits have")
        if slower:
            job.say(f"Next: git log --oneline {fast[:10]}..HEAD")
        facts = {"fast": fast, "head": head, "before": before, "now": now, "slower": slower}
        return FlowResult("; ".join(words[:3]), facts=facts)

    def _times(self, job: Job, tool: Toolchain, revision: str) -> dict[str, list[float]]:
        """Seconds of each test in each run at a commit."""
        tidy(job, revision)
        job.say(f"At {commit(job.git, revision)}")
        found: dict[str, list[float]] = {}
        for number in range(job.parameters.times):
            try:
                check = run_tests(job, tool, job.parameters.tests, quiet=number > 0)
            except CannotRun as error:
                raise FlowUnable(
                    f"the tests cannot run at {revision[:10]}: {error.message}", "name another commit"
                ) from error
            if not check.green:
                raise FlowUnable(f"the tests do not pass at {revision[:10]}", "fix them first, or name another commit")
            for test, seconds in check.durations:
                found.setdefault(test, []).append(round(seconds, 3))
        return found


def _spread(seconds: list[float]) -> str:
    """`2.1 s (2.0 to 2.3)`: the median and both ends."""
    return f"{median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})"
