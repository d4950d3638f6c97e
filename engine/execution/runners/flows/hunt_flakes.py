"""Run the same tests many times and say which of them cannot make up their mind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import BaseModel, Field

from engine.execution.runners.flow import FlowResult, FlowUnable, Job, Place
from engine.execution.runners.flows.common import (
    ProjectParameters,
    TestId,
    clean,
    combined,
    count,
    exactly,
    in_project,
    listed,
    run_tests,
    toolchain_of,
    toolchains,
)
from engine.model import CheckResult


class HuntFlakesParameters(ProjectParameters):
    """Which tests, how often."""

    tests: list[TestId] = Field(min_length=1, max_length=200, description="ids of the tests, as their tool names them")
    times: int = Field(default=20, ge=2, le=500, description="how many times each is run")


@dataclass(frozen=True, slots=True)
class Tally:
    """How one test did over all runs."""

    test: str
    runs: int
    failed: int
    mean_seconds: float

    @property
    def verdict(self) -> str:
        """`steady` never failed, `broken` always, `flaky` is between."""
        if self.failed == 0:
            return "steady"
        return "broken" if self.failed == self.runs else "flaky"


def tally(checks: Sequence[CheckResult]) -> list[Tally]:
    """Each test of a series of runs, the most often failed first, then the slowest."""
    times: dict[str, list[float]] = {}
    failed: dict[str, int] = {}
    for check in checks:
        seconds = dict(check.durations)
        for test in {*seconds, *check.failing}:
            times.setdefault(test, []).append(seconds.get(test, 0.0))
            failed[test] = failed.get(test, 0) + (test in check.failing)
    found = [Tally(test, len(each), failed[test], round(sum(each) / len(each), 4)) for test, each in times.items()]
    return sorted(found, key=lambda one: (-one.failed / one.runs, -one.mean_seconds, one.test))


class HuntFlakes:
    """Runs the given tests again and again in the same order."""

    name: ClassVar = "hunt_flakes"
    title: ClassVar = "Hunt flaky tests"
    place: ClassVar = Place.CHECK
    parameters: ClassVar[type[BaseModel]] = HuntFlakesParameters

    def describe(self, parameters: HuntFlakesParameters) -> str:
        tests = parameters.tests
        what = f"`{clean(tests[0])}`" if len(tests) == 1 else f"{len(tests)} tests ({listed(tests, 2)})"
        return f"Rerun {what}{in_project(parameters.project)} {parameters.times} times for flakiness"

    def run(self, job: Job) -> FlowResult:
        tool = toolchain_of(toolchains(job), job.parameters.tests)
        exactly(tool)
        checks: list[CheckResult] = []
        for number in range(1, job.parameters.times + 1):
            check = run_tests(job, tool, job.parameters.tests, quiet=number > 1)
            checks.append(check)
            bad = f"{count(check.failed + check.errors, 'failure')}" if not check.green else "all passed"
            job.say(f"run {number} of {job.parameters.times}: {bad} in {check.seconds:.2f} s")
        tallies = tally(checks) or _without_names(tool.name, job.parameters.tests, checks)
        for one in tallies:
            job.say(f"{one.verdict:>7}  failed {one.failed} of {one.runs}  mean {one.mean_seconds:.3f} s  {one.test}")
        flaky = [one.test for one in tallies if one.verdict == "flaky" and ".py::" in one.test]
        return FlowResult(
            summary=_summary(tallies, job.parameters.times),
            check=combined([checks[-1]]),
            facts={
                "times": job.parameters.times,
                "tests": [
                    {
                        "test": one.test,
                        "failed": one.failed,
                        "runs": one.runs,
                        "mean_seconds": one.mean_seconds,
                        "verdict": one.verdict,
                    }
                    for one in tallies
                ],
            }
            | ({"next": "quarantine"} if flaky and tool.name == "pytest" else {}),
        )


def _without_names(tool: str, tests: Sequence[str], checks: Sequence[CheckResult]) -> list[Tally]:
    """Tools that name only failures (cargo) and had none: one line for all that was asked for."""
    if not any(check.passed for check in checks):
        raise FlowUnable(f"{tool} ran none of these tests", "take the ids from the output of a run")
    mean = sum(check.seconds for check in checks) / len(checks)
    return [Tally(listed(tests, 3), len(checks), 0, round(mean, 4))]


def _summary(tallies: Sequence[Tally], times: int) -> str:
    parts = []
    for verdict in ("flaky", "broken"):
        names = [f"{one.test} ({one.failed} of {one.runs})" for one in tallies if one.verdict == verdict]
        if names:
            parts.append(f"{len(names)} {verdict}: {listed(names, 4)}")
    steady = sum(one.verdict == "steady" for one in tallies)
    if not parts:
        return f"Steady: {count(steady, 'test')} passed {times} times out of {times}"
    return "; ".join([*parts, f"{steady} steady"])
