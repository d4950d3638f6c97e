"""Finds in the output of a failing test why it failed, and has the flow that groups failing tests by their cause."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Final

from pydantic import Field

from engine.execution.runners.flow import (
    CannotRun,
    FlowResult,
    Job,
    Place,
    ProjectFlow,
    TestId,
)
from engine.execution.runners.flows.suite_runs import (
    describe_check,
    find_toolchains,
    run_tests,
    toolchain_for,
)
from engine.execution.runners.toolchains.project_tools import (
    Toolchain,
)
from engine.execution.runners.toolchains.tool_table import TABLES, TEST_FILE
from engine.frozen import frozen
from engine.model.text import capitalised, count, join_names

MAX_SIGNATURES: Final = 50
"""Maximum number of failing tests of a run that get a signature."""

_ERROR_PATTERNS: Final = [re.compile(pattern, re.M) for pattern in TABLES["causes"]["errors"]]

_FRAME_PATTERNS: Final = [
    (re.compile(pattern, re.M), index)
    for index, patterns in ((-1, "last_frames"), (0, "first_frames"))
    for pattern in TABLES["causes"][patterns]
]
"""(regular expression for a position in the code, index of the match that is the innermost position)."""

_THIRD_PARTY_FILE: Final = re.compile(r"(?:^|/)(?:site-packages|node_modules|\.venv|lib/python[\d.]+|node:)|^node:|^<")


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

    def signature_of(self, test: str) -> str:
        """The text that similar failures share: the error, its message, and the file that raised it, without the line.

        An assertion in a test file concerns only that `test`, so the test is used instead of the file. "" if the output
        does not show the error or the file.
        """
        file = self.where.rpartition(":")[0]
        if not (self.kind or self.message) or not file:
            return ""
        return f"{self.kind or 'failed'}: {self.message} in {test if TEST_FILE.search(file) else file}"


def cause_of(text: str, folder: str) -> Cause:
    """The cause of a failure, from its output. Differences in numbers, addresses and paths are ignored."""
    text = text.replace(folder.rstrip("/") + "/", "")
    kind, message = _find_error(text)
    return Cause(kind, normalise_message(message), _find_position(text), message.strip()[:200])


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
        own = [match for match in pattern.finditer(text) if not _is_third_party(match["file"])]
        if own:
            return f"{own[index]['file']}:{own[index]['line']}"
    return ""


def _is_third_party(file: str) -> bool:
    return file.startswith("/") or _THIRD_PARTY_FILE.search(file) is not None


def normalise_message(message: str) -> str:
    """A message without numbers, addresses and paths, which differ from run to run."""
    message = re.sub(r"0x[0-9a-fA-F]+|\b[0-9a-f]{12,}\b", "ADDRESS", message)
    message = re.sub(r"(?<![\w.])/(?:[\w.@+-]+/)+[\w.@+-]*", "/…", message)
    return re.sub(r"(?<![A-Za-z_])-?\d+(?:\.\d+)?", "N", message).strip()[:200]


def find_signatures(
    texts: Mapping[str, str], failing: Sequence[str], folder: Path
) -> tuple[dict[str, str], dict[str, str]]:
    """(signature by failing test, cause by signature). The cause, in words, is that of the first test with the
    signature. It is shown instead of the signature."""
    signatures: dict[str, str] = {}
    messages: dict[str, str] = {}
    for test in failing[:MAX_SIGNATURES]:
        cause = cause_of(texts.get(test, ""), str(folder))
        if signature := cause.signature_of(test):
            signatures[test] = signature
            messages.setdefault(signature, str(cause))
    return signatures, messages


CauseGroup = tuple[Cause, list[str]]
"""(cause, failing tests with this cause)."""

MAX_ALONE = 20
"""Maximum number of tests that are run alone. The first test of each cause is run before others."""


class NarrowFailures(ProjectFlow):
    """Runs the failing tests again, groups them by cause, and runs the first of each group alone."""

    name = "narrow_failures"
    label = "Narrow down failures"
    place = Place.CHECK
    tests: list[TestId] = Field(
        min_length=1, max_length=200, description="ids of failing tests, as their tool has them"
    )

    def describe(self) -> str:
        if len(self.tests) == 1:
            return f"Run `{self.tests[0]}` without the other tests{self.where}"
        return f"Run {len(self.tests)} failing tests alone and group the failures by cause{self.where}"

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
        fails_alone = self._run_alone(job, tool, groups)
        _report_groups(job, groups, fails_alone)
        if passed := [test for test in tests if test not in check.failing and "::" in test]:
            why = "passes without the rest of the suite; it depends on other tests or chance"
            job.say(f"{join_names(passed, 3)}: {why}")
        command = _shell_command(job, tool, [failing[0] for _, failing in groups])
        job.say(f"The smallest selection that shows every cause: {command}")
        signatures, messages = find_signatures(texts, check.failing, tool.folder)
        facts = {
            "causes": [{"cause": str(cause), "tests": failing} for cause, failing in groups],
            "alone": fails_alone,
            "signatures": signatures,
            "messages": messages,
            "command": command,
        }
        dependent = [test for test, fails in fails_alone.items() if not fails]
        return FlowResult(_summarise_causes(groups, dependent), check=check, facts=facts)

    def _run_alone(self, job: Job, tool: Toolchain, groups: Sequence[CauseGroup]) -> dict[str, bool]:
        """Whether each test fails when it runs alone. The first test of each cause is run first."""
        firsts = [failing[0] for _, failing in groups]
        order = [*firsts, *(test for _, failing in groups for test in failing[1:])][:MAX_ALONE]
        if len(self.tests) == 1:
            return dict.fromkeys(order, True)
        fails_alone: dict[str, bool] = {}
        for test in order:
            try:
                fails_alone[test] = not run_tests(job, tool, [test], quiet=True).green
            except CannotRun as error:
                job.say(f"{test} cannot run alone: {error.message}")
        return fails_alone


def _report_groups(job: Job, groups: Sequence[CauseGroup], fails_alone: Mapping[str, bool]) -> None:
    marks = {True: "  also fails alone", False: "  passes alone, so it depends on earlier tests", None: ""}
    for cause, failing in groups:
        job.say(f"{count(len(failing), 'test')}: {cause!s}")
        job.say_list([f"{test}{marks[fails_alone.get(test)]}" for test in failing], 5, indent="    ")


def _summarise_causes(groups: Sequence[CauseGroup], dependent: Sequence[str]) -> str:
    """The failures and their causes in words. `dependent` are tests that pass alone."""
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
