"""The commands of a project's tools, and the tests that a tool runs for a changed file (SPEC 2.12)."""

from pathlib import Path

import pytest

from engine.execution.runners.toolchains.project_tools import Toolchain
from engine.execution.runners.toolchains.projects import read_project
from engine.execution.runners.toolchains.tool_table import TEST_RUNNERS
from tests.execution.toolchains.installations import make_environment


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
