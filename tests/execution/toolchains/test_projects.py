"""The projects of a repository: which folders are one, and which of them run their tests (SPEC 2.12)."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.execution.runners.toolchains.projects import Project, find_projects
from tests.conftest import Repository
from tests.support.helpers import make_program, read_table

PYTHON = {"pyproject.toml": '[project]\nname = "cart"\n', "tests/test_cart.py": "def test_a(): pass\n"}
GO = {"go.mod": "module x\n", "x_test.go": "package x\n"}


def make_manifest(test: str = "", **fields: object) -> dict[str, str]:
    """The `package.json` of a project with this test script."""
    return {"package.json": json.dumps({"name": "web", "scripts": {"test": test} if test else {}, **fields})}


def move_below(folder: str, files: dict[str, str]) -> dict[str, str]:
    return {f"{folder}/{name}": text for name, text in files.items()}


@pytest.fixture(autouse=True)
def every_tool(tmp_path: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch):
    """Every tool is on the PATH, though only git does something. The environment of the project has pytest."""
    for name in ["npm", "pnpm", "cargo", "go", "mvn", "gradle", "mix", "dotnet", "rspec", "phpunit", "make"]:
        make_program(tmp_path / "programs" / name)
    monkeypatch.setenv("PATH", f"{tmp_path / 'programs'}:/usr/bin:/bin")
    (repository.path / ".venv").symlink_to(sys.prefix, target_is_directory=True)


def commit_projects(repository: Repository, files: dict[str, str]) -> dict[str, Project]:
    """Commit files, and find the projects by folder."""
    repository.commit("begin", {".gitignore": ".venv\nnode_modules\n", **files})
    return {project.path: project for project in find_projects(repository.path)}


def name_tools(projects: dict[str, Project]) -> dict[str, list[str]]:
    """The names of the test runners of each project."""
    return {path: [tool.name for tool in project.tools] for path, project in projects.items()}


def test_each_folder_with_a_manifest_is_a_project(repository: Repository):
    projects = commit_projects(
        repository,
        {**move_below("packages/py", PYTHON), **move_below("web", make_manifest("vitest")), **move_below("srv/x", GO)},
    )
    assert name_tools(projects) == {"": [], "packages/py": ["pytest"], "srv/x": ["go"], "web": ["vitest"]}
    assert projects[""].untested_reason == "it has no tests"
    assert projects["packages/py"].packages[0].install == "../../.venv/bin/pip install pytest -e ."
    assert projects["web"].packages[0].install == "npm install"
    assert projects["srv/x"].packages[0].install == "go mod download"


@pytest.mark.parametrize("row", read_table(__file__)["collected"], ids=lambda row: row["tool"])
def test_a_runner_that_collects_the_members_runs_them(repository: Repository, row: dict[str, Any]):
    projects = commit_projects(repository, {**row["top"], **move_below("packages/m", row["member"])})
    assert name_tools(projects) == {"": [row["tool"]], "packages/m": []}
    assert projects["packages/m"].tested_by == ""
    assert projects["packages/m"].untested_reason == "its tests run with those of the top folder"
