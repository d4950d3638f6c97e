"""The output and the reports of test runners and linters are read, from realistic samples (SPEC 2.12)."""

from pathlib import Path
from typing import Any

import pytest

from engine.execution.runners.toolchains.project_tools import Finding, read_findings
from engine.execution.runners.toolchains.run_results import FinishedRun, read_result
from engine.model import CheckResult
from tests.support.helpers import read_table

TABLE = read_table(__file__)

JUNIT = """<?xml version="1.0" encoding="utf-8"?><testsuites name="pytest tests">
<testsuite name="pytest" errors="2" failures="1" skipped="1" tests="5" time="1.234">
<testcase classname="tests.test_cart.TestCart" name="test_total[a-b.c]" class="slow" time="0.100"/>
<testcase classname="tests.test_cart" name="test_tax" time="0.900"><failure message="1 == 2">…</failure></testcase>
<testcase classname="tests.test_cart" name="test_gift" time="0.010"><skipped message="later"/></testcase>
<testcase classname="tests.test_cart" name="test_db" time="0.020"><error message="failed on setup">…</error></testcase>
<testcase classname="" name="tests.test_broken" time="0.000"><error message="collection failure">…</error></testcase>
</testsuite></testsuites>"""


def read_output(
    output_format: str, output: str = "", exit_code: int = 1, *, report: str = "", folder: Path = Path("/")
) -> CheckResult:
    """The result of a run of a tool that printed an output, or wrote a report."""
    return read_result(FinishedRun("tool", "tool test", output_format, output, exit_code, report, folder))


def test_junit_reports_have_node_ids(tmp_path: Path):
    (tmp_path / "tests").mkdir()
    for name in ("test_cart.py", "test_broken.py"):
        (tmp_path / "tests" / name).touch()
    check = read_output("junit", report=JUNIT, folder=tmp_path)
    assert (check.passed, check.failed, check.errors, check.skipped, check.seconds) == (1, 1, 2, 1, 1.234)
    assert check.failing == ("tests/test_cart.py::test_tax", "tests/test_cart.py::test_db", "tests/test_broken.py")
    assert check.durations[:2] == (
        ("tests/test_cart.py::test_tax", 0.9),
        ("tests/test_cart.py::TestCart::test_total[a-b.c]", 0.1),
    )


@pytest.mark.parametrize("exit_code, errors", [(5, 0), (3, 1), (-11, 1)])
def test_a_run_without_its_report_has_an_error(exit_code: int, errors: int):
    check = read_output("junit", report="<testsuite", exit_code=exit_code)
    assert (check.passed, check.errors, check.green, check.failing) == (0, errors, False, ())
    assert bool(check.error) == bool(errors)


@pytest.mark.parametrize("row", TABLE["runner"], ids=lambda row: row["format"])
def test_the_output_of_a_test_runner_is_read(row: dict[str, Any]):
    check = read_output(row["format"], row.get("start", "") + row["output"], row["exit_code"], folder=Path("/shop"))
    assert [check.passed, check.failed, check.skipped, check.errors] == row["counts"]
    assert (list(check.failing), check.error) == (row["failing"], row.get("error", ""))
    assert check.seconds == pytest.approx(row["seconds"], abs=0.01)
    assert not check.green


@pytest.mark.parametrize("exit_code, passed", [(0, 1), (2, 0)])
def test_of_output_without_results_only_the_exit_code_counts(exit_code: int, passed: int):
    check = read_output("words", "compiled with great success\n", exit_code)
    assert (check.counted, check.passed, check.failed) == (False, passed, 1 - passed)


@pytest.mark.parametrize("row", TABLE["linter"], ids=lambda row: row["format"])
def test_the_findings_of_a_linter_are_read(row: dict[str, Any]):
    findings = read_findings(row["format"], row["output"])
    assert findings == [Finding(*finding) for finding in row["findings"]]
