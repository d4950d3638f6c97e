"""Which test runners, linters and package managers a folder has, and how to install what is missing (SPEC 2.12,
3.8)."""

import sys
from pathlib import Path

import pytest

from engine.execution.runners.toolchains.detection import make_environment_command
from engine.execution.runners.toolchains.projects import read_project
from tests.execution.toolchains.installations import make_environment
from tests.support.helpers import make_program, read_table

TABLE = read_table(__file__)


def make_programs(project: Path, *names: str) -> Path:
    """Make a folder beside the project, of programs that do nothing."""
    folder = project.parent / f"{project.name} programs"
    for name in names:
        make_program(folder / name)
    return folder


@pytest.mark.parametrize(
    "script, runner",
    TABLE["scripts"],
)
def test_a_script_that_only_calls_a_runner_is_that_runner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, runner: str
):
    monkeypatch.setenv("PATH", str(make_programs(tmp_path, "npm", "bun")))
    (tmp_path / "package.json").write_text(f'{{"scripts": {{"test": "{script}"}}}}')
    tool = read_project(tmp_path).tool
    assert (tool.name, tool.runs_single_tests) == (runner, runner != "script")
    assert tool.title == ("bun test" if runner == "bun" else "npm test")


@pytest.mark.parametrize("files, manager, install", TABLE["install"])
def test_the_lock_file_decides_how_packages_are_installed(
    tmp_path: Path, files: dict[str, str], manager: str, install: str
):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    packages = read_project(tmp_path).packages[0]
    assert (packages.manager, packages.install) == (manager, install)
    assert packages.hosts


@pytest.mark.parametrize("files, command", TABLE["environment"])
def test_the_command_that_makes_an_environment(tmp_path: Path, files: dict[str, str], command: str):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert make_environment_command(tmp_path, tmp_path) == command


def test_the_engines_own_environment_is_not_the_projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    project, ours = tmp_path / "shop", tmp_path / "clawpy"
    project.mkdir()
    (project / "pyproject.toml").write_text("[tool.ruff]\n")
    program = make_environment(ours, with_pytest=True)
    for name in ("python3", "ruff"):
        (program.parent / name).symlink_to(program)
    monkeypatch.setenv("PATH", str(program.parent))
    assert read_project(project).tool is not None, "an active environment of another project counts"
    assert read_project(project).linters
    monkeypatch.setattr(sys, "prefix", str(ours / ".venv"))
    assert read_project(project).tool is None
    assert read_project(project).linters == ()
