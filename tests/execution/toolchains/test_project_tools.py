"""The rows of the table of tools, the commands of a project's tools, and the tests that belong to a changed file."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.execution.runners.toolchains.project_tools import Toolchain
from engine.execution.runners.toolchains.projects import project_at
from engine.execution.runners.toolchains.python_projects import reexported_modules, related_tests
from engine.execution.runners.toolchains.tool_table import (
    TEST_FILE,
    TEST_RUNNERS,
    ToolRow,
    build_row,
)
from tests.execution.toolchains.test_detection import make_environment


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


@pytest.mark.parametrize(
    ("path", "is_test"),
    [
        ("tests/data.json", True), ("spec/cart.rb", True), ("web/__tests__/cart.js", True), ("test_cart.py", True),
        ("cart_test.go", True), ("cart.spec.ts", True), ("CartTest.java", True), ("src/TestCart.java", True),
        ("conftest.py", True), ("shop/tests.py", True),
        ("latest.py", False), ("contest.py", False), ("testing.py", False), ("cart.py", False),
    ],
)  # fmt: skip
def test_a_file_is_a_test_by_its_folder_or_its_name(path: str, is_test: bool) -> None:
    assert bool(TEST_FILE.search(path)) is is_test


def make_toolchain(name: str, folder: Path, **placeholders: tuple[str, ...]) -> Toolchain:
    """The tool of a row of the table in a folder, whether or not it is installed here."""
    row = next(row for row in TEST_RUNNERS if row.name == name)
    return Toolchain(row=row, folder=folder, workspace=folder, title=row.title, placeholders=placeholders)


def test_go_runs_a_single_test(tmp_path: Path) -> None:
    argv = make_toolchain("go", tmp_path).test_command(["example.com/shop/cart::TestTax/gift_1.5"], tmp_path / "r").argv
    assert argv == ("go", "test", "-v", "-count=1", r"-run=^TestTax$/^gift_1\.5$", "example.com/shop/cart")


def test_go_maps_a_file_to_its_package(tmp_path: Path) -> None:
    (tmp_path / "cart").mkdir()
    (tmp_path / "cart" / "cart_test.go").touch()
    go = make_toolchain("go", tmp_path)
    assert go.tests_for(["cart/cart.go", "other/x.go"]) == {"cart/cart.go": ["./cart"], "other/x.go": []}


def test_a_worktree_uses_the_environment_of_the_workspace_but_its_own_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    workspace, worktree = tmp_path / "shop", tmp_path / "worktree"
    (worktree / "src").mkdir(parents=True)
    (worktree / "pyproject.toml").touch()
    make_environment(workspace, with_pytest=True)
    tool = project_at(worktree, workspace).tool
    command = tool.test_command(["-x/test_a.py"], tmp_path / "report.xml")
    assert command.argv[0] == str(workspace / ".venv" / "bin" / "python")
    assert command.argv[4] == "./-x/test_a.py"
    assert command.environment["PYTHONPATH"] == f"{worktree}/src:{worktree}"


def test_a_changed_file_has_its_related_tests() -> None:
    tests = {
        "tests/a/test_cart.py": "",
        "tests/b/test_cart.py": "",
        "tests/test_flow.py": "from a.cart import total\n",
        "tests/b/cart_test.py": "",
    }
    assert related_tests(
        ["a/cart.py", "b/cart.py", "tests/b/conftest.py", "tests/test_flow.py", "x.md", "a/__init__.py"], tests
    ) == {
        "a/cart.py": ["tests/a/test_cart.py", "tests/test_flow.py"],
        "b/cart.py": ["tests/b/cart_test.py", "tests/b/test_cart.py"],
        "tests/b/conftest.py": ["tests/b/cart_test.py", "tests/b/test_cart.py"],
        "tests/test_flow.py": ["tests/test_flow.py"],
        "x.md": [],
        "a/__init__.py": [],
    }


def test_tests_that_reach_a_module_through_its_package_belong_to_it() -> None:
    tests = {
        "tests/test_echo.py": "from click import echo\n",
        "tests/test_help.py": "import click\nclick.utils.shorten('x')\n",
        "tests/test_other.py": "from click.core import Context\n",
    }
    path = "src/click/utils.py"
    assert related_tests([path], tests) == {path: ["tests/test_help.py"]}
    assert related_tests([path], tests, reexported=[path]) == {path: ["tests/test_echo.py", "tests/test_help.py"]}


def test_tests_of_a_package_belong_to_its_reexported_modules(tmp_path: Path) -> None:
    package = tmp_path / "src" / "click"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from .utils import echo as echo\nfrom click.core import Context\n")
    paths = ["src/click/utils.py", "src/click/core.py", "src/click/inner.py", "src/click/__init__.py"]
    assert reexported_modules(tmp_path, paths) == {"src/click/utils.py", "src/click/core.py"}
