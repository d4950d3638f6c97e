"""The words of flows: numbers, names and results of tests, for summaries and transcripts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine.model import CheckResult, text

MAX_NAMES = 8
"""Maximum number of names in a list; "and 3 more" stands for the rest."""


def last_line(output: str) -> str:
    """The last line that is not empty, preferably of an error, at most 300 characters."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    lines = [line for line in lines if line.lower().startswith("error")] or lines
    return lines[-1][:300] if lines else "it printed nothing"


def in_project(path: str) -> str:
    """` in packages/py`, "" for the top."""
    return f" in {text.one_line(path)}" if path else ""


def count(number: int, noun: str, plural: str = "") -> str:
    """`1 test`, `3 tests`, `no tests`."""
    words = text.count(number, noun, plural)
    return words if number else f"no{words[1:]}"


def join_names(names: Iterable[str], shown: int = MAX_NAMES) -> str:
    """`a, b and 3 more`; every name sanitised."""
    clean = [text.one_line(name) for name in names]
    if len(clean) <= shown:
        return " and ".join(filter(None, [", ".join(clean[:-1]), *clean[-1:]]))
    return f"{', '.join(clean[:shown])} and {len(clean) - shown} more"


def describe_check(check: CheckResult) -> str:
    """A result in one sentence without a full stop."""
    skipped = f", {check.skipped} skipped" if check.skipped else ""
    took = f" in {text.seconds_in_words(check.seconds)}{skipped}"
    if not check.counted:
        name = check.failing[0] if check.failing else check.tool
        return f"{name} {'failed' if check.failed else 'succeeded'}{took}; its output names no tests"
    if check.failed or check.errors:
        return f"{_describe_failures(check)}{took}: {join_names(check.failing, 2)}"
    if not check.passed:
        return f"no tests ran{skipped}"
    return f"{'the one test' if check.passed == 1 else f'all {check.passed} tests'} passed{took}"


def _describe_failures(check: CheckResult) -> str:
    # An error is no failed test: the tests of a file that cannot be imported did not run.
    errors = count(check.errors, "error")
    if not check.failed:
        passed = f"{count(check.passed, 'test')} passed" if check.passed else "no tests ran"
        return f"{errors}, {passed}"
    failed = f"{check.failed} of {count(check.passed + check.failed, 'test')} failed"
    return f"{failed} and {errors}" if check.errors else failed


def as_facts(items: Iterable[object], *names: str) -> list[dict[str, Any]]:
    """The fields `names` of each item."""
    return [{name: getattr(item, name) for name in names} for item in items]


def capitalised(sentence: str) -> str:
    """`sentence` with a capital letter at its beginning."""
    return sentence[:1].upper() + sentence[1:]
