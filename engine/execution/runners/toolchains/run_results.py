"""The results of finished test runs: what a run left, and the `CheckResult` that is made of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from engine.frozen import frozen
from engine.model import CheckResult

MAX_FAILING = 200
"""Maximum number of failing tests of a run that are kept by id. The numbers of tests are always complete."""

_ERROR = re.compile(r"(?i)\b(?:error|exception|failed|cannot)\b")


@frozen
class FinishedRun:
    """The output of a run that ended."""

    tool: str
    """The name of the tool in its result."""
    title: str
    """The name of its command on screens."""
    output: str
    exit_code: int
    report: str
    """The text of its report, "" without one."""
    folder: Path
    """The folder to which test ids are relative."""


def make_result(
    tool: str,
    counts: Mapping[str, int],
    *,
    seconds: float = 0.0,
    failing: Iterable[str] = (),
    durations: Mapping[str, float] = MappingProxyType({}),
) -> CheckResult:
    """Make a `CheckResult`. Its failing tests have no repeats, and its durations begin with the slowest."""
    slowest = sorted(durations.items(), key=lambda pair: (-pair[1], pair[0]))
    return CheckResult(
        tool=tool,
        passed=counts.get("passed", 0),
        failed=counts.get("failed", 0),
        skipped=counts.get("skipped", 0),
        errors=counts.get("errors", 0),
        seconds=round(seconds, 3),
        failing=tuple(dict.fromkeys(failing))[:MAX_FAILING],
        durations=tuple((name, round(value, 4)) for name, value in slowest),
    )


def uncounted_result(tool: str, title: str, exit_code: int) -> CheckResult:
    """The result of a command whose output names no tests, so that only its exit code is known."""
    counts = {"failed" if exit_code else "passed": 1}
    check = make_result(tool, counts, failing=[title] if exit_code else ())
    return replace(check, counted=False)


def broken_run(run: FinishedRun) -> CheckResult | None:
    """The result of a run that printed no result. It has one error if the command failed. None if it succeeded."""
    nothing = make_result(run.tool, {})
    return with_exit_code(run, nothing) if run.exit_code else None


def with_exit_code(run: FinishedRun, check: CheckResult) -> CheckResult:
    """Add one error to `check` if the command failed although no test did. Perhaps the code did not compile, a linter
    failed before the tests, or the coverage was too low."""
    if run.exit_code == 0 or check.failed or check.errors:
        return check
    lines = [line.strip() for line in run.output.splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.search(line)] or lines or [f"{run.title} ended with {run.exit_code}"]
    return replace(check, errors=1, failing=(errors[0][:200],))
