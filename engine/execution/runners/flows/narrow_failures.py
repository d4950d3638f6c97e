"""Group failing tests by their cause, and see which of them fail alone."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import ClassVar, Final

from pydantic import BaseModel, Field

from engine.execution.runners.flow import CannotRun, FlowResult, Job, Place
from engine.execution.runners.flows.causes import Cause, cause_of, messages, signatures
from engine.execution.runners.flows.common import (
    ProjectParameters,
    TestId,
    clean,
    count,
    exactly,
    in_project,
    in_words,
    listed,
    run_tests,
    sentence,
    toolchain_of,
    toolchains,
)
from engine.execution.runners.toolchains.bound import Toolchain

ALONE: Final = 20
"""So many tests are run alone, the first of each cause before others."""


class NarrowFailuresParameters(ProjectParameters):
    """Which tests."""

    tests: list[TestId] = Field(
        min_length=1, max_length=200, description="ids of failing tests, as their tool has them"
    )


class NarrowFailures:
    """Runs the failing tests again, groups what they say, and runs the first of each group alone."""

    name: ClassVar = "narrow_failures"
    title: ClassVar = "Narrow down failures"
    place: ClassVar = Place.CHECK
    parameters: ClassVar[type[BaseModel]] = NarrowFailuresParameters

    def describe(self, parameters: NarrowFailuresParameters) -> str:
        tests = parameters.tests
        what = f"`{clean(tests[0])}`" if len(tests) == 1 else f"{len(tests)} failing tests"
        return f"Run {what} alone and group the failures by cause{in_project(parameters.project)}"

    def run(self, job: Job) -> FlowResult:
        tests: list[str] = job.parameters.tests
        tool = toolchain_of(toolchains(job), tests)
        exactly(tool)
        texts: dict[str, str] = {}
        check = run_tests(job, tool, tests, texts=texts)
        if check.green or not check.failing:
            why = "the earlier failures depend on what runs before these tests, are unreliable, or are fixed"
            return FlowResult(sentence(f"{in_words(check)} now: {why}"), check=check, facts={"causes": []})
        causes: dict[Cause, list[str]] = {}
        for test in check.failing:
            causes.setdefault(cause_of(texts.get(test, ""), str(tool.folder)), []).append(test)
        groups = sorted(causes.items(), key=lambda pair: -len(pair[1]))
        alone = self._alone(job, tool, groups, len(tests))
        for cause, failing in groups:
            job.say(f"{count(len(failing), 'test')}: {clean(str(cause))}")
            for test in failing[:5]:
                job.say(f"    {clean(test)}{_said_alone(alone.get(test))}")
            if len(failing) > 5:
                job.say(f"    and {len(failing) - 5} more")
        passed = [test for test in tests if test not in check.failing and "::" in test]
        if passed:
            job.say(f"{listed(passed, 3)}: passes without the rest of the suite; it depends on other tests or chance")
        command = _command(job, tool, [failing[0] for _, failing in groups])
        job.say(f"The smallest selection that shows every cause: {command}")
        dependent = [test for test, fails in alone.items() if not fails]
        words = f"{count(len(check.failing), 'failure')}, {count(len(groups), 'cause')}: " + "; ".join(
            f"{clean(str(cause))} ({len(failing)})" if len(groups) > 1 else clean(str(cause))
            for cause, failing in groups[:3]
        )
        words += f"; {listed(dependent, 2)} {'passes' if len(dependent) == 1 else 'pass'} alone" if dependent else ""
        alike = signatures(texts, check.failing, tool.folder)
        return FlowResult(
            words,
            check=check,
            facts={
                "causes": [{"cause": clean(str(cause)), "tests": failing} for cause, failing in groups],
                "alone": alone,
                "signatures": alike,
                "messages": messages(texts, alike, tool.folder),
                "command": command,
            },
        )

    def _alone(
        self, job: Job, tool: Toolchain, groups: Sequence[tuple[Cause, list[str]]], asked: int
    ) -> dict[str, bool]:
        """Whether each test fails when nothing runs beside it, the first of each cause first."""
        firsts = [failing[0] for _, failing in groups]
        order = [*firsts, *(test for _, failing in groups for test in failing[1:])][:ALONE]
        if asked == 1:
            return dict.fromkeys(order, True)
        found: dict[str, bool] = {}
        for test in order:
            try:
                found[test] = not run_tests(job, tool, [test], quiet=True).green
            except CannotRun as error:
                job.say(f"{clean(test)} cannot run alone: {error.message}")
        return found


def _said_alone(fails: bool | None) -> str:
    return "" if fails is None else "  also fails alone" if fails else "  passes alone, so it depends on earlier tests"


def _command(job: Job, tool: Toolchain, tests: Sequence[str]) -> str:
    """What the operator can copy to run these tests."""
    if tool.name == "pytest":
        return f"pytest {shlex.join(tests)}"
    argv = tool.test_command(tests, job.scratch / "report.xml").argv
    return shlex.join(part for part in argv if str(job.scratch) not in part)
