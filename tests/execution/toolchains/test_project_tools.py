"""The commands of a project's tools, the tests that belong to a changed file, and what tools print (SPEC 2.12)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from engine.execution.runners.toolchains import LINTERS, TEST_FILE, TEST_RUNNERS
from engine.execution.runners.toolchains.project_tools import Finding, Linter, Toolchain
from engine.execution.runners.toolchains.python_projects import find_related_tests
from engine.execution.runners.toolchains.run_results import FinishedRun, read_failures, read_result
from tests.support import read_table

TABLE = read_table(__file__)


def make_go_toolchain(folder: Path) -> Toolchain:
    """The tool of Go in a folder, whether or not it is installed here."""
    row = next(row for row in TEST_RUNNERS if row.name == "go")
    return Toolchain(row=row, folder=folder, workspace=folder, title=row.title)


def test_go_runs_a_single_test(tmp_path: Path):
    cart, go = "example.com/shop/cart", make_go_toolchain(tmp_path)
    argv = go.test_command([f"{cart}::TestTax/gift", f"{cart}::TestSum"], tmp_path / "r").argv
    assert argv[-2:] == ("-run=^(TestTax|TestSum)$", cart)
    argv = go.test_command([f"{cart}::TestTax/gift_1.5"], tmp_path / "r").argv
    assert argv == ("go", "test", "-v", "-count=1", r"-run=^TestTax$/^gift_1\.5$", cart)


def test_go_maps_a_file_to_its_package(tmp_path: Path):
    (tmp_path / "cart").mkdir()
    (tmp_path / "cart" / "cart_test.go").touch()
    go = make_go_toolchain(tmp_path)
    assert go.find_tests_for(["cart/cart.go", "other/x.go"]) == {"cart/cart.go": ["./cart"], "other/x.go": []}


# The tests of a Python project that belong to a changed file


TESTS = {
    "tests/a/test_cart.py": "",
    "tests/b/test_cart.py": "",
    "tests/test_flow.py": "from a.cart import total\n",
    "tests/b/cart_test.py": "",
}
"""The texts of tests, by their paths."""


@pytest.mark.parametrize("changed, related", TABLE["related"].values(), ids=TABLE["related"])
def test_a_changed_file_has_its_related_tests(tmp_path: Path, changed: str, related: list[str]):
    write_files(tmp_path, TESTS)
    assert find_related_tests(tmp_path, [changed]) == {changed: related}


def write_files(folder: Path, texts: Mapping[str, str]):
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


# The table of tools


@pytest.mark.parametrize("path, is_test", TABLE["paths"])
def test_a_file_is_a_test_by_its_folder_or_its_name(path: str, is_test: bool):
    assert bool(TEST_FILE.search(path)) is is_test


# Printed output and reports


def make_run(output_format: str, output: str, exit_code: int, report: str) -> FinishedRun:
    """A run of a tool that printed an output, or wrote a report."""
    return FinishedRun("tool", "tool test", output_format, output, exit_code, report, Path("/shop"))


@pytest.mark.parametrize("exit_code, errors", TABLE["missing_reports"])
def test_a_run_without_its_report_has_an_error(exit_code: int, errors: int):
    check = read_result(make_run("junit", "", exit_code, "<testsuite"))
    assert (check.passed, check.errors, check.green, check.failing) == (0, errors, False, ())
    assert bool(check.error) == bool(errors)


@pytest.mark.parametrize("row", TABLE["runner"], ids=lambda row: row["format"])
def test_the_output_of_a_test_runner_is_read(row: dict[str, Any]):
    run = make_run(row["format"], row.get("start", "") + row["output"], row["exit_code"], row.get("report", ""))
    check = read_result(run)
    assert [check.passed, check.failed, check.skipped, check.errors] == row["counts"]
    assert (list(check.failing), check.error) == (row["failing"], row.get("error", ""))
    assert read_failures(run, check.failing).items() >= row.get("texts", {}).items()
    assert check.green is row.get("green", False)


@pytest.mark.parametrize("row", TABLE["linter"], ids=lambda row: row["format"])
def test_the_findings_of_a_linter_are_read(row: dict[str, Any]):
    linter = next(linter for linter in LINTERS if linter.output_format == row["format"])
    findings = Linter(row=linter, folder=Path("/shop"), workspace=Path("/shop")).parse(row["output"], 1)
    assert findings == [Finding(*finding) for finding in row["findings"]]
