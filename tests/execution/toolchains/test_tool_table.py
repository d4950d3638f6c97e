"""The table of test runners, linters and package managers: its rows, and which files are tests (SPEC 2.12)."""

import pytest

from engine.execution.runners.toolchains.tool_table import TEST_FILE, ToolRow, build_row
from tests.support.helpers import read_table

ROWS = read_table(__file__)


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


@pytest.mark.parametrize("path, is_test", ROWS["paths"])
def test_a_file_is_a_test_by_its_folder_or_its_name(path: str, is_test: bool):
    assert bool(TEST_FILE.search(path)) is is_test
