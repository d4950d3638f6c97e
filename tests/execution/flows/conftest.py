"""Fixtures that run a flow on a real repository with real processes, and choose the programs that it finds."""

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.execution.runners import Place
from engine.execution.runners.flow import Job
from engine.execution.runners.flows import FLOWS
from engine.execution.trees import take_snapshot
from engine.git import Git
from tests.execution.flows.flow_run import FlowRun, ProcessSession, RunFlow
from tests.support.repository import Repository

EVERYDAY_PROGRAMS = [
    *("sh", "git", "make", "cat", "echo", "env", "python3", "node", "npm"),
    *("go", "gofmt", "cargo", "rustc", "cc", "gcc"),
]
"""Programs that the fixture `leave_out_programs` leaves on the search path."""


@pytest.fixture
def project(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A repository whose `.venv` is the environment that runs these tests. Its pytest loads no plugins."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    repository.link_environment()
    repository.commit("begin", {".gitignore": ".venv\nnode_modules\ntarget\n", "pyproject.toml": "[tool.pytest]\n"})
    return repository


@pytest.fixture
def run_flow(tmp_path: Path, repository: Repository) -> RunFlow:
    """Runs a flow by name on `repository`, in a worktree of its present files where the flow's place asks for one."""
    numbers = itertools.count(1)

    def run(name: str, **parameters: Any) -> FlowRun:
        number = next(numbers)
        flow = FLOWS[name]
        scratch = tmp_path / f"scratch-{number}"
        scratch.mkdir()
        folder = repository.path
        if flow.place in (Place.WORKTREE, Place.CHANGE_SET):
            folder = _add_worktree(repository, tmp_path / f"worktree-{number}")
        session = ProcessSession(scratch)
        job = Job(workspace=repository.path, folder=folder, git=Git(folder), session=session)
        return FlowRun(flow(**parameters).run(job), session, folder)

    return run


def _add_worktree(repository: Repository, folder: Path) -> Path:
    """Check the present files out into a folder, uncommitted and untracked ones included, as a session does."""
    tree = take_snapshot(Git(repository.path).pin()).tree
    snapshot = repository.git("commit-tree", "-p", "HEAD", "-m", "snapshot", tree)
    repository.git("worktree", "add", "-q", "--detach", str(folder), snapshot)
    return folder


@pytest.fixture
def leave_out_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Limits the search path to `EVERYDAY_PROGRAMS` without the named ones."""

    def leave_out(*names: str):
        folder = tmp_path / "everyday programs"
        folder.mkdir()
        for program in EVERYDAY_PROGRAMS:
            path = shutil.which(program)
            if path and program not in names:
                (folder / program).symlink_to(path)
        monkeypatch.setenv("PATH", str(folder))

    return leave_out
