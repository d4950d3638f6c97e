"""What is said of a run of the tests: its results in a sentence, and which failures are new (SPEC 2.12, 4.9)."""

from dataclasses import replace

import pytest

from engine.execution.runners.flows.suite_runs import describe_check, describe_compared
from engine.model import CheckResult


@pytest.mark.parametrize(
    "check, words",
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
def test_results_are_described_in_a_sentence(check: CheckResult, words: str):
    assert describe_check(check) == words


@pytest.mark.parametrize(
    "failing, failed_before, words, is_new",
    [
        ("a", None, "it is not known whether it failed before", True),
        ("ab", None, "it is not known whether they failed before", True),
        ("a", "a", "it failed before as well, nothing new fails", False),
        ("ab", "ab", "all of them failed before as well, nothing new fails", False),
        ("ab", "a", "1 of them failed before as well: a", True),
        ("aa", "a", "1 of them failed before as well: a", True),  # tests of two projects have the same name
        ("a", "", "it did not fail before", True),
        ("ab", "", "none of them failed before", True),
    ],
)
def test_changes_are_blamed_only_for_tests_that_did_not_fail_before(
    failing: str, failed_before: str | None, words: str, is_new: bool
):
    before = None if failed_before is None else tuple(failed_before)
    check = CheckResult("pytest", 1, len(failing), failing=tuple(failing), failed_before=before)
    assert describe_compared(check) == f"{describe_check(check)}; {words}"
    assert (check.has_new_failures, check.green) == (is_new, False)


def test_an_error_that_is_no_test_is_the_fault_of_the_run():
    check = CheckResult("maven", 0, 0, errors=1, error="Cart.java:3: ';' expected", failed_before=())
    assert describe_compared(check) == f"1 error, no tests ran in <0.1 s: {check.error}; it did not fail before"
    before = replace(check, failed_before=check.faults)
    assert describe_compared(before).endswith("; that was so before as well")
    command = CheckResult("npm test", 0, 1, error="cart.ts(3,5): error TS2304", counted=False)
    assert describe_check(command) == f"npm test failed in <0.1 s: {command.error}; its output names no tests"
