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


@pytest.mark.parametrize(
    "lock, manager, test, single_test",
    TABLE["locks"],
)
def test_the_package_manager_is_that_of_the_lock_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: str, manager: str, test: str, single_test: str
):
    monkeypatch.setenv("PATH", str(make_programs(tmp_path, manager)))
    (tmp_path / "package.json").write_text('{"scripts": {"test": "jest"}, "devDependencies": {"jest": "^29"}}')
    (tmp_path / lock).touch()
    project = read_project(tmp_path)
    assert project.tool.title == f"{manager} test"
    assert " ".join(project.tool.test_command([], tmp_path / "r").argv) == test
    assert " ".join(project.tool.test_command(["a (b)"], tmp_path / "r").argv) == single_test
    assert (project.packages[0].lock, project.missing_tool) == (lock, "node_modules")
    assert project.packages[0].manager == manager


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


def test_an_environment_without_pytest_gives_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "pyproject.toml").touch()
    make_environment(tmp_path, with_pytest=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    project = read_project(tmp_path)
    assert (project.tools, project.searched, project.missing_tool) == ((), ("pytest in .venv",), "pytest")
    assert not (tmp_path / "ran").exists()


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


@pytest.mark.parametrize("text", ["", "[]", "{", '{"scripts": 3}', '{"scripts": null}'])
def test_a_broken_package_json_is_no_test(tmp_path: Path, text: str):
    (tmp_path / "package.json").write_text(text)
    assert read_project(tmp_path).tools == ()


@pytest.mark.parametrize(
    "file, text, title",
    TABLE["targets"],
)
def test_a_target_named_test_is_the_test_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str, title: str
):
    (tmp_path / file).write_text(text)
    monkeypatch.setenv("PATH", str(make_programs(tmp_path, "make", "just", "task")))
    tool = read_project(tmp_path).tool
    assert (tool.title, tool.test_command([], tmp_path / "r").argv) == (title, tuple(title.split()))


def test_make_gives_way_to_what_runs_tests_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "Makefile").write_text("test:\n\tgo test ./...\nlint:\n\tgo vet\n")
    (tmp_path / "go.mod").write_text("module x\n")
    monkeypatch.setenv("PATH", str(make_programs(tmp_path, "make", "go")))
    project = read_project(tmp_path)
    assert [tool.name for tool in project.tools] == ["go"]
    assert [linter.name for linter in project.linters] == ["go vet"]
