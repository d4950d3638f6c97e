"""Numbers, names and results of tests in words."""

from __future__ import annotations

import pytest

from engine.execution.runners.flows.words import count, describe_check, join_names
from engine.model import CheckResult


def test_numbers_and_names_in_words() -> None:
    assert [count(number, "file") for number in (0, 1, 2)] == ["no files", "1 file", "2 files"]
    assert join_names([]) == ""
    assert join_names(["a"]) == "a"
    assert join_names(["a", "b", "c"]) == "a, b and c"
    assert join_names(["a", "b", "c"], 2) == "a, b and 1 more"
    assert join_names(["evil\x1b[31m\nname"]) == "evil name"


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (CheckResult("pytest", 23, 0, seconds=1.25), "all 23 tests passed in 1.2 s"),
        (CheckResult("pytest", 1, 0, skipped=2), "the one test passed in <0.1 s, 2 skipped"),
        (CheckResult("pytest", 1, 1, failing=("a",)), "1 of 2 tests failed in <0.1 s: a"),
        (
            CheckResult("pytest", 3, 1, errors=1, failing=("a", "b")),
            "1 of 4 tests failed and 1 error in <0.1 s: a and b",
        ),
        (CheckResult("pytest", 3, 0, errors=1, failing=("a",)), "1 error, 3 tests passed in <0.1 s: a"),
        (CheckResult("pytest", 0, 0, errors=2, failing=("a", "b")), "2 errors, no tests ran in <0.1 s: a and b"),
        (CheckResult("pytest", 0, 0, skipped=2), "no tests ran, 2 skipped"),
    ],
)
def test_results_in_words(check: CheckResult, words: str) -> None:
    assert describe_check(check) == words
