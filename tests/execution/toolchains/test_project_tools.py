"""The table of tools and the commands of a project's tools, and the tests that belong to a changed file (SPEC 2.12)."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from engine.execution.runners.toolchains.project_tools import Toolchain
from engine.execution.runners.toolchains.projects import read_project
from engine.execution.runners.toolchains.python_projects import find_related_tests
from engine.execution.runners.toolchains.tool_table import TEST_FILE, TEST_RUNNERS
from tests.execution.toolchains.installations import make_environment
from tests.support.helpers import read_table


def make_go_toolchain(folder: Path) -> Toolchain:
    """The tool of Go in a folder, whether or not it is installed here."""
    row = next(row for row in TEST_RUNNERS if row.name == "go")
    return Toolchain(row=row, folder=folder, workspace=folder, title=row.title)


def test_go_runs_a_single_test(tmp_path: Path):
    argv = make_go_toolchain(tmp_path).test_command(["example.com/shop/cart::TestTax/gift_1.5"], tmp_path / "r").argv
    assert argv == ("go", "test", "-v", "-count=1", r"-run=^TestTax$/^gift_1\.5$", "example.com/shop/cart")


def test_go_maps_a_file_to_its_package(tmp_path: Path):
    (tmp_path / "cart").mkdir()
    (tmp_path / "cart" / "cart_test.go").touch()
    go = make_go_toolchain(tmp_path)
    assert go.find_tests_for(["cart/cart.go", "other/x.go"]) == {"cart/cart.go": ["./cart"], "other/x.go": []}


def test_a_worktree_uses_the_environment_of_the_workspace_but_its_own_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    workspace, worktree = tmp_path / "shop", tmp_path / "worktree"
    (worktree / "src").mkdir(parents=True)
    (worktree / "pyproject.toml").touch()
    make_environment(workspace, with_pytest=True)
    tool = read_project(worktree, workspace).tool
    command = tool.test_command(["-x/test_a.py"], tmp_path / "report.xml")
    assert command.argv[0] == str(workspace / ".venv" / "bin" / "python")
    assert command.argv[4] == "./-x/test_a.py"
    assert command.environment["PYTHONPATH"] == f"{worktree}/src:{worktree}"


# The tests of a Python project that belong to a changed file


TESTS = {
    "tests/a/test_cart.py": "",
    "tests/b/test_cart.py": "",
    "tests/test_flow.py": "from a.cart import total\n",
    "tests/b/cart_test.py": "",
}
"""The texts of tests, by their paths."""


@pytest.mark.parametrize(
    "changed, related",
    [
        ("a/cart.py", ["tests/a/test_cart.py", "tests/test_flow.py"]),
        ("b/cart.py", ["tests/b/cart_test.py", "tests/b/test_cart.py"]),
        ("tests/b/conftest.py", ["tests/b/cart_test.py", "tests/b/test_cart.py"]),
        ("tests/test_flow.py", ["tests/test_flow.py"]),
        ("x.md", []),
        ("a/__init__.py", []),
    ],
    ids=["by name and import", "by name", "a conftest", "a test", "no Python", "a package without a name"],
)
def test_a_changed_file_has_its_related_tests(tmp_path: Path, changed: str, related: list[str]):
    write_files(tmp_path, TESTS)
    assert find_related_tests(tmp_path, [changed]) == {changed: related}


def write_files(folder: Path, texts: Mapping[str, str]):
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


# The table of tools


ROWS = read_table(__file__)


@pytest.mark.parametrize("path, is_test", ROWS["paths"])
def test_a_file_is_a_test_by_its_folder_or_its_name(path: str, is_test: bool):
    assert bool(TEST_FILE.search(path)) is is_test
