"""Rows of the table of tools, and paths as operands."""

from __future__ import annotations

import pytest

from engine.execution.runners.toolchains.tool_table import (
    ToolRow,
    as_operand,
    build_row,
    is_inside,
)


@pytest.mark.parametrize(("path", "yes"), [("a/b.py", True), ("/etc/passwd", False), ("a/../../b", False), ("", False)])
def test_paths_stay_inside(path: str, yes: bool) -> None:
    assert is_inside(path) is yes


def test_a_file_whose_name_begins_with_a_dash_is_no_option() -> None:
    assert [as_operand(name) for name in ("-rf", "a.py")] == ["./-rf", "a.py"]


@pytest.mark.parametrize(
    ("row", "key"),
    [
        ({"name": "x", "program": "x"}, "kind"),
        ({"name": "x", "kind": "y", "detected_by": "z", "programm": "x"}, "programm"),
    ],
)
def test_a_row_of_a_tool_with_a_missing_or_an_unknown_key_is_refused(row: dict[str, str], key: str) -> None:
    with pytest.raises(TypeError, match=f"'{key}'"):
        build_row(ToolRow, row)
