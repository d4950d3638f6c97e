"""Group failing tests by their cause, and see which of them fail alone."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from pydantic import BaseModel, Field

from engine.execution.runners.flow import CannotRun, FlowResult, Job, Place
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

_RAISED: Final = (
    re.compile(r"^E\s+(?:[\w.]+\.)?(\w*(?:Error|Exception|Exit|Failed|Interrupt|Warning))\b:?\s*(.*)$", re.M),
    re.compile(r"^E\s+(assert\b.*)$", re.M),
    re.compile(r"panicked at [^\n]*:\n\s*(.+)"),
    re.compile(r"^\s*panic: (.+)$", re.M),
    re.compile(r"^\s*(?:\[?[\w.]+\.)?(\w*(?:Error|Exception))\b(?: \[\w+\])?:?\s*(.*)$", re.M),
    re.compile(r"^\s*\S+\.go:\d+: (.+)$", re.M),
)
_FRAMES: Final = (
    (re.compile(r"^(?P<file>[^\s:][^:\n]*\.\w+):(?P<line>\d+): ", re.M), -1),
    (re.compile(r"File \"(?P<file>[^\"]+)\", line (?P<line>\d+)"), -1),
    (re.compile(r"panicked at (?P<file>[^\s:]+):(?P<line>\d+)"), 0),
    (re.compile(r"^\s*at .*?\(?(?:file://)?(?P<file>[^\s()]+?):(?P<line>\d+):\d+\)?", re.M), 0),
    (re.compile(r"^\s*(?P<file>\S+\.\w+):(?P<line>\d+)\b", re.M), 0),
)
_FOREIGN: Final = re.compile(r"(?:^|/)(?:site-packages|node_modules|\.venv|lib/python[\d.]+|node:)|^node:|^<")


@dataclass(frozen=True, slots=True)
class Cause:
    """What went wrong and where: equal for failures that are one and the same. `where` is the innermost line of the
    project's own, "" when the output names none."""

    kind: str
    message: str
    where: str

    def __str__(self) -> str:
        what = f"{self.kind}: {self.message}" if self.kind and self.message else self.kind or self.message or "failed"
        return f"{what[:120]}" + (f", at {self.where}" if self.where else "")


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
            why = "what failed before depends on what runs before it, is unreliable, or is mended"
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
            job.say(
                f"{listed(passed, 3)}: passes without the rest of the suite; what runs before it matters, or chance"
            )
        command = _command(job, tool, [failing[0] for _, failing in groups])
        job.say(f"The smallest selection that shows all of it: {command}")
        dependent = [test for test, fails in alone.items() if not fails]
        words = f"{count(len(check.failing), 'failure')}, {count(len(groups), 'cause')}: " + "; ".join(
            f"{clean(str(cause))} ({len(failing)})" if len(groups) > 1 else clean(str(cause))
            for cause, failing in groups[:3]
        )
        words += f"; {listed(dependent, 2)} {'passes' if len(dependent) == 1 else 'pass'} alone" if dependent else ""
        return FlowResult(
            words,
            check=check,
            facts={
                "causes": [{"cause": clean(str(cause)), "tests": failing} for cause, failing in groups],
                "alone": alone,
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


def cause_of(text: str, folder: str) -> Cause:
    """The cause that a failure's output tells of. Numbers, addresses and paths in its message count as equal."""
    text = text.replace(folder.rstrip("/") + "/", "")
    kind = message = ""
    for pattern in _RAISED:
        if match := pattern.search(text):
            kind, message = match.groups() if len(match.groups()) == 2 else ("", match[1])
            break
    else:
        message = next((line.strip() for line in text.splitlines() if line.strip()), "")
    where = ""
    for pattern, which in _FRAMES:
        own = [match for match in pattern.finditer(text) if not _is_foreign(match["file"])]
        if own:
            where = f"{own[which]['file']}:{own[which]['line']}"
            break
    return Cause(kind, normal(message), where)


def _is_foreign(file: str) -> bool:
    return file.startswith("/") or _FOREIGN.search(file) is not None


def normal(message: str) -> str:
    """A message without what differs from run to run."""
    message = re.sub(r"0x[0-9a-fA-F]+|\b[0-9a-f]{12,}\b", "ADDRESS", message)
    message = re.sub(r"(?<![\w.])/(?:[\w.@+-]+/)+[\w.@+-]*", "/…", message)
    return re.sub(r"(?<![A-Za-z_])-?\d+(?:\.\d+)?", "N", message).strip()[:200]


def _said_alone(fails: bool | None) -> str:
    return "" if fails is None else "  fails alone, too" if fails else "  passes alone: what runs before it matters"


def _command(job: Job, tool: Toolchain, tests: Sequence[str]) -> str:
    """What the operator can copy to run these tests."""
    if tool.name == "pytest":
        return f"pytest {shlex.join(tests)}"
    argv = tool.test_command(tests, job.scratch / "report.xml").argv
    return shlex.join(part for part in argv if str(job.scratch) not in part)
