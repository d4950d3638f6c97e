"""The projects of a repository and the tools that each has, and how to install what is missing (SPEC 2.12, 3.8)."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.execution.runners.toolchains.detection import make_environment_command
from engine.execution.runners.toolchains.projects import Project, find_projects, read_project
from tests.execution.toolchains.installations import make_environment
from tests.support import read_table
from tests.support.programs import make_program
from tests.support.repository import Repository

TABLE = read_table(__file__)

PYTHON = {"pyproject.toml": '[project]\nname = "cart"\n', "tests/test_cart.py": "def test_a(): pass\n"}
GO = {"go.mod": "module x\n", "x_test.go": "package x\n"}


def make_manifest(test: str = "", **fields: object) -> dict[str, str]:
    """The `package.json` of a project with this test script."""
    return {"package.json": json.dumps({"name": "web", "scripts": {"test": test} if test else {}, **fields})}


def move_below(folder: str, files: dict[str, str]) -> dict[str, str]:
    return {f"{folder}/{name}": text for name, text in files.items()}


@pytest.fixture
def every_tool(tmp_path: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch):
    """Every tool is on the PATH, though only git does something. The environment of the project has pytest."""
    for name in ["npm", "pnpm", "cargo", "go", "mvn", "gradle", "mix", "dotnet", "rspec", "phpunit", "make"]:
        make_program(tmp_path / "programs" / name)
    monkeypatch.setenv("PATH", f"{tmp_path / 'programs'}:/usr/bin:/bin")
    repository.link_environment()


def commit_projects(repository: Repository, files: dict[str, str]) -> dict[str, Project]:
    """Commit files, and find the projects by folder."""
    repository.commit("begin", {".gitignore": ".venv\nnode_modules\n", **files})
    return {project.path: project for project in find_projects(repository.path)}


def name_tools(projects: dict[str, Project]) -> dict[str, list[str]]:
    """The names of the test runners of each project."""
    return {path: [tool.name for tool in project.tools] for path, project in projects.items()}


@pytest.mark.usefixtures("every_tool")
def test_each_folder_with_a_manifest_is_a_project(repository: Repository):
    projects = commit_projects(
        repository,
        {
            **PYTHON,
            **move_below("packages/py", PYTHON),
            **move_below("w", make_manifest("vitest")),
            **move_below("x", GO),
        },
    )
    assert name_tools(projects) == {"": ["pytest"], "packages/py": ["pytest"], "w": ["vitest"], "x": ["go"]}
    assert projects[""].tool.excluded_folders == ("packages/py",)


@pytest.mark.usefixtures("every_tool")
@pytest.mark.parametrize("row", TABLE["collected"], ids=lambda row: row["tool"])
def test_a_runner_that_collects_the_members_runs_them(repository: Repository, row: dict[str, Any]):
    projects = commit_projects(repository, {**row["top"], **move_below("packages/m", row["member"])})
    assert name_tools(projects) == {"": [row["tool"]], "packages/m": []}
    assert projects["packages/m"].tested_by == ""
    assert projects["packages/m"].untested_reason == "its tests run with those of the top folder"


# Which tools a folder has


def make_programs(project: Path, *names: str) -> Path:
    """Make a folder beside the project, of programs that do nothing."""
    folder = project.parent / f"{project.name} programs"
    for name in names:
        make_program(folder / name)
    return folder


@pytest.mark.parametrize("script, runner", TABLE["scripts"])
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
    assert (packages.manager, packages.install_line) == (manager, install)
    assert packages.hosts


@pytest.mark.parametrize("files, command", TABLE["environment"])
def test_the_command_that_makes_an_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], command: str
):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    programs = make_programs(tmp_path, *["uv"] if "uv" in command.split() else [])
    monkeypatch.setenv("PATH", str(programs))
    assert make_environment_command(tmp_path, tmp_path) == command


def test_a_prepared_worktree_is_tested_with_its_own_environment(tmp_path: Path):
    program = make_environment(tmp_path / "worktree", with_pytest=True)
    (tmp_path / "worktree" / "pyproject.toml").touch()
    assert read_project(tmp_path / "worktree", tmp_path).tool.interpreter == str(program)


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
