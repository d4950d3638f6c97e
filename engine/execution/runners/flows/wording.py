"""Text and facts for results and transcripts: counts, lists of names, a check in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine.model import CheckResult
from engine.model.text import one_line, seconds_in_words

MAX_NAMES = 8
"""Maximum number of names in a list; "and 3 more" stands for the rest."""


def last_line(output: str) -> str:
    """The last line that is not empty, preferably of an error, at most 300 characters."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    lines = [line for line in lines if line.lower().startswith("error")] or lines
    return lines[-1][:300] if lines else "it printed nothing"


def in_project(path: str) -> str:
    """` in packages/py`, "" for the top."""
    return f" in {one_line(path)}" if path else ""


def count(number: int, noun: str, plural: str = "") -> str:
    """`1 test`, `3 tests`, `no tests`."""
    if number == 1:
        return f"1 {noun}"
    return f"{number or 'no'} {plural or noun + 's'}"


def join_names(names: Iterable[str], shown: int = MAX_NAMES) -> str:
    """`a, b and 3 more`; every name sanitised."""
    every = [one_line(name) for name in names]
    if len(every) <= shown:
        return " and ".join(filter(None, [", ".join(every[:-1]), *every[-1:]]))
    return f"{', '.join(every[:shown])} and {len(every) - shown} more"


def describe_check(check: CheckResult) -> str:
    """A result in one sentence without a full stop."""
    skipped = f", {check.skipped} skipped" if check.skipped else ""
    took = f" in {seconds_in_words(check.seconds)}"
    if not check.counted:
        name = check.failing[0] if check.failing else check.tool
        return f"{name} {'failed' if check.failed else 'succeeded'}{took}; its output names no tests"
    if check.failed or check.errors:
        parts = []
        if check.failed:
            parts.append(f"{check.failed} of {count(check.passed + check.failed, 'test')} failed")
        if check.errors:  # an error is no failed test: the tests of a file that cannot be imported did not run
            parts.append(count(check.errors, "error"))
        rest = ""
        if not check.failed:
            rest = f", {count(check.passed, 'test')} passed" if check.passed else ", no tests ran"
        return f"{' and '.join(parts)}{rest}{took}{skipped}: {join_names(check.failing, 2)}"
    if not check.passed:
        return f"no tests ran{skipped}"
    passed = "the one test passed" if check.passed == 1 else f"all {check.passed} tests passed"
    return f"{passed}{took}{skipped}"


def conflict_line(path: str, places: int) -> str:
    """A file in conflict, for the transcript; `places` 0: the whole file."""
    return f"conflict  {path}  ({count(places, 'place') if places else 'whole file'})"


def as_facts(items: Iterable[object], *names: str) -> list[dict[str, Any]]:
    """The fields `names` of each item."""
    return [{name: getattr(item, name) for name in names} for item in items]


def capitalised(text: str) -> str:
    """`text` with a capital letter at its beginning."""
    return text[:1].upper() + text[1:]
