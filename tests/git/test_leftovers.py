"""Lines that should not stay or be pushed: found, and removed (SPEC 2.11)."""

from datetime import UTC, datetime

import pytest

from engine.git import Git
from engine.git.inspection import find_own_changes
from engine.git.leftovers import find_removable_lines, remove_lines, scan_line
from engine.git.reader import GitReader
from tests.support import read_table
from tests.support.repository import Repository

TABLE = read_table(__file__)


@pytest.mark.parametrize("path, line, kinds", TABLE["lines"])
def test_debugging_markers_and_todos_are_found_in_a_line(path: str, line: str, kinds: list[str]):
    assert [hit.kind for hit in scan_line(path, line)] == kinds


PYTHON = """\
import pdb
import os; breakpoint()
def a():
    breakpoint()
    if os.sep: pdb.set_trace()
    x = breakpoint(
    )
    import pdb; pdb.set_trace()
    breakpoint()  # why
"""


def test_python_loses_only_whole_statements():
    assert find_removable_lines("a.py", PYTHON, range(1, 10)) == [1, 4, 8]
    for before, after in TABLE["emptied_blocks"]:
        assert remove_lines("a.py", before, find_removable_lines("a.py", before, range(1, 9))) == after


@pytest.mark.parametrize("path, text, expected", TABLE["removable_lines"])
def test_lines_of_whole_statements_are_found(path: str, text: str, expected: list[int]):
    assert find_removable_lines(path, text, range(1, 5)) == expected


# In your own work


def test_debugging_that_was_left_in_is_told_from_lines_that_look_like_it(repository: Repository):
    repository.commit("one", {"z.py": "z = 1\n"})
    repository.git("switch", "-q", "-c", "work")
    files = TABLE["files"]
    repository.commit("all", {"older.py": "# TODO\n", **{path: file["text"] for path, file in files.items()}})
    repository.write("fresh.py", "# TODO\n")
    expected = sorted(f"{path}:{line}" for path, file in files.items() for line in file["lines"])
    expected.sort(key=lambda place: not place.startswith("conflict"))
    leftovers = find_own_changes(
        Git(repository.path), GitReader().read(repository.path), datetime.fromtimestamp(0, UTC)
    ).leftovers
    assert [leftover.place for leftover in leftovers] == [*expected, "fresh.py:1"]
