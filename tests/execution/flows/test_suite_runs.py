"""What is said of a run of tests: its results, and which failures are new (SPEC 2.12, 4.9)."""

from typing import Any

import pytest

from engine.execution.runners.flows.suite_runs import ToolCheck, combine_checks, describe_check, describe_compared
from engine.model import CheckResult
from tests.support import read_table

TABLE = read_table(__file__)


@pytest.mark.parametrize("row", TABLE["described"])
def test_results_are_described_in_a_sentence(row: dict[str, Any]):
    assert describe_check(CheckResult("pytest", **row["check"])) == row["words"]


@pytest.mark.parametrize("row", TABLE["compared"])
def test_changes_are_blamed_only_for_tests_that_did_not_fail_before(row: dict[str, Any]):
    check = CheckResult("pytest", 1, len(row["failing"]), failing=row["failing"], failed_before=row.get("before"))
    assert describe_compared(check) == f"{describe_check(check)}; {row['words']}"
    assert check.has_new_failures is not row["words"].endswith("nothing new fails")


def test_what_failed_before_is_known_of_each_tool_alone():
    known = CheckResult("pytest", 0, 1, failing=("a",), failed_before=("a",))
    unknown = CheckResult("make test", 0, 1, failing=("b",))
    both = combine_checks([ToolCheck(None, known), ToolCheck(None, unknown)])
    assert (both.failed_before, both.has_new_failures) == (("a",), True)
