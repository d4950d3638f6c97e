"""The table of test runners, linters and package managers: its rows, and which files are tests (SPEC 2.12)."""

import pytest

from engine.execution.runners.toolchains.tool_table import TEST_FILE, ToolRow, build_row


@pytest.mark.parametrize(
    "row, key",
    [
        ({"name": "x", "program": "x"}, "kind"),
        ({"name": "x", "kind": "y", "detected_by": "z", "programm": "x"}, "programm"),
    ],
)
def test_a_row_of_a_tool_with_a_missing_or_an_unknown_key_is_refused(row: dict[str, str], key: str):
    with pytest.raises(TypeError, match=f"'{key}'"):
        build_row(ToolRow, row)


@pytest.mark.parametrize(
    "path, is_test",
    [
        ("tests/data.json", True), ("spec/cart.rb", True), ("web/__tests__/cart.js", True), ("test_cart.py", True),
        ("cart_test.go", True), ("cart.spec.ts", True), ("CartTest.java", True), ("src/TestCart.java", True),
        ("conftest.py", True), ("shop/tests.py", True),
        ("latest.py", False), ("contest.py", False), ("testing.py", False), ("cart.py", False),
    ],
)  # fmt: skip
def test_a_file_is_a_test_by_its_folder_or_its_name(path: str, is_test: bool):
    assert bool(TEST_FILE.search(path)) is is_test
