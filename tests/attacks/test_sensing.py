"""Looking at a repository starts no program that reads configuration, plugins or code of it (SPEC 3.8)."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.execution.runners.flows.suite_runs import describe_how_to_run_tests
from engine.execution.runners.toolchains.projects import find_projects
from engine.git import Git
from engine.git.github import GitHub
from engine.git.reader import GitReader
from tests.attacks.planting import Trap
from tests.support import read_table
from tests.support.programs import make_clawpy_command
from tests.support.repository import Repository

TABLE = read_table(__file__)

pytestmark = pytest.mark.attack("sensing")

TOOLS = TABLE["tools"]
"""Programs that look at a project may want to start; a trap stands in for each."""


@pytest.fixture
def trapped_repository(repository: Repository, trap: Trap) -> Repository:
    """A repository with a manifest of every tool, each of which would leave a mark when its tool read it."""
    for name, text in TABLE["manifests"].items():
        repository.write(name, text.format(trap=trap, mark=trap.mark))
    repository.git("add", "-f", "-A")
    repository.git("commit", "-q", "-m", "everything")
    repository.git("remote", "add", "origin", "git@github.com:shop/cart.git")
    (repository.path / "gradlew").chmod(0o755)
    return repository


def inspect_project(folder: Path):
    """Do all that finds out which tools a project has."""
    for project in find_projects(folder):
        describe_how_to_run_tests(project, folder / project.path)
    reader, now = GitReader(), datetime.now(UTC)
    assert reader.inspect(folder, reader.read(folder), now, now).unknown == {}


@pytest.fixture
def tools(trap: Trap, tmp_path: Path) -> Path:
    """A folder in which the trap stands for every tool."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name in TOOLS:
        (folder / name).symlink_to(trap.program)
    return folder


def test_sensing_starts_no_tool(
    trapped_repository: Repository, trap: Trap, tools: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    inspect_project(trapped_repository.path)
    assert not trap.pop_mark()
    for name in TOOLS:
        subprocess.run([name], stdin=subprocess.DEVNULL, capture_output=True, check=True)
        assert trap.pop_mark(), f"the stand-in for {name} does not leave a mark: it proves nothing"


@pytest.mark.parametrize("entry", [".", "", "bin", "REPOSITORY/bin", "REPOSITORY/.venv/bin"])
def test_sensing_starts_no_program_of_the_repository(
    trapped_repository: Repository, trap: Trap, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, entry: str
):
    """`entry` is first on the PATH, and leads into the repository."""
    entry = entry.replace("REPOSITORY", str(trapped_repository.path))
    folder = trapped_repository.path / (entry or ".")
    folder.mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(trapped_repository.path)
    monkeypatch.setenv("PATH", f"{entry}{os.pathsep}{os.environ['PATH']}")
    for name in ("git", "python3", "python", "gh"):
        (folder / name).symlink_to(trap.program)
        subprocess.run([name], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        assert trap.pop_mark(), f"{name} is not found: it proves nothing"
    inspect_project(trapped_repository.path)
    Git(trapped_repository.path).text("log")
    github = GitHub(clock)
    github.get_latest(str(trapped_repository.path))
    github.wait_for_answers()
    assert not trap.pop_mark()


def test_code_of_the_repository_is_not_imported_by_the_operators_interpreter(
    trapped_repository: Repository, trap: Trap, monkeypatch: pytest.MonkeyPatch
):
    """By PYTHONPATH the operator's python would start with the repository's `sitecustomize`."""
    monkeypatch.setenv("PYTHONPATH", str(trapped_repository.path))
    program = Path(sys.base_prefix, "bin", "python3")
    subprocess.run([str(program), "-c", ""], check=True)
    assert trap.pop_mark(), "the attack does not work with plain Python: it proves nothing"
    inspect_project(trapped_repository.path)
    assert not trap.pop_mark()


@pytest.mark.slow_attack
@pytest.mark.parametrize("verb", ["predict", "doctor"])
def test_clawpy_starts_no_program_of_the_repository(
    trapped_repository: Repository,
    trap: Trap,
    tools: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
):
    (trapped_repository.path / "git").symlink_to(trap.program)
    monkeypatch.setenv("PATH", f".{os.pathsep}{tools}{os.pathsep}{os.environ['PATH']}")
    folder = trapped_repository.path
    command = make_clawpy_command(tmp_path / "home", verb, "--workspace", str(folder))
    subprocess.run(command, cwd=folder, check=False, capture_output=True)
    started = trap.pop_mark().splitlines()
    # The operator's own `gh` is asked who you are and which pull requests are open, outside of the repository.
    questions = (f"{tools}/gh api user --hostname github.com", f"{tools}/gh pr list --repo github.com/shop/cart ")
    assert [line for line in started if not line.startswith(questions)] == []
