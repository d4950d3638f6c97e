"""Fixtures that run a flow on a real repository with real processes, with repositories and programs for it."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from engine.clock import Clock, SystemClock
from engine.execution.runners.flow import CommandResult, FlowResult, Job, Place, WorkFailed
from engine.execution.runners.flows import FLOWS
from engine.execution.trees import take_snapshot
from engine.git import Git
from engine.model import CheckResult
from tests.conftest import Repository

CART = "def total(prices):\n    return sum(prices)\n"
TEST_CART = "from shop.cart import total\n\ndef test_total():\n    assert total([1, 2]) == 3\n"
TEST_TAX = "def test_tax():\n    assert True\n"

EVERYDAY_PROGRAMS = [
    *("sh", "git", "make", "cat", "echo", "env", "python3", "node", "npm"),
    *("go", "gofmt", "cargo", "rustc", "cc", "gcc"),
]
"""Programs that the fixture `without` leaves on the search path."""


@dataclass
class ProcessSession:
    """A session without sandbox and transcript file: it remembers its lines and its commands."""

    scratch: Path
    lines: list[str] = field(default_factory=list)
    commands: list[list[str]] = field(default_factory=list)

    def say(self, text: str, *, error: bool = False) -> None:
        self.lines.append(text)

    def execute(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None, quiet: bool = False
    ) -> CommandResult:
        self.commands.append(list(argv))
        started_at = time.monotonic()
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        try:
            process = subprocess.run(
                argv,
                cwd=cwd,
                env=inherited | dict(env or {}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=120,
                check=False,
            )
        except FileNotFoundError as error:
            raise WorkFailed(f"{argv[0]} is not installed") from error
        return CommandResult(process.returncode, process.stdout, time.monotonic() - started_at)


@dataclass
class FlowRun:
    """A flow that ran to its end, and the folder in which it worked."""

    result: FlowResult
    session: ProcessSession
    folder: Path

    @property
    def summary(self) -> str:
        return self.result.summary

    @property
    def facts(self) -> Mapping[str, Any]:
        return self.result.facts

    @property
    def check(self) -> CheckResult:
        assert self.result.check is not None
        return self.result.check

    @property
    def transcript(self) -> str:
        return "\n".join(self.session.lines)


RunFlow = Callable[..., FlowRun]


@pytest.fixture
def project(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A repository whose `.venv` is the environment that runs these tests. Its pytest loads no plugins."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (repository.path / ".venv").symlink_to(sys.prefix, target_is_directory=True)
    repository.commit("begin", {".gitignore": ".venv\nnode_modules\ntarget\n", "pyproject.toml": "[tool.pytest]\n"})
    return repository


@pytest.fixture
def run_flow(tmp_path: Path, repository: Repository) -> RunFlow:
    """Runs a flow by name on `repository`, in a worktree of its present files where the flow's place asks for one."""
    numbers = itertools.count(1)

    def run(name: str, *, clock: Clock | None = None, **parameters: Any) -> FlowRun:
        number = next(numbers)
        flow = FLOWS[name]
        scratch = tmp_path / f"scratch-{number}"
        scratch.mkdir()
        folder = repository.path
        if flow.place in (Place.WORKTREE, Place.CHANGE_SET):
            folder = _add_worktree(repository, tmp_path / f"worktree-{number}")
        session = ProcessSession(scratch)
        job = Job(
            workspace=repository.path,
            folder=folder,
            git=Git(folder),
            session=session,
            clock=clock or SystemClock(),
        )
        return FlowRun(flow(**parameters).run(job), session, folder)

    return run


def _add_worktree(repository: Repository, folder: Path) -> Path:
    """Check the present files out into a folder, uncommitted and untracked ones included, as a session does."""
    tree = take_snapshot(Git(repository.path).pin()).tree
    snapshot = repository.git("commit-tree", "-p", "HEAD", "-m", "snapshot", tree)
    repository.git("worktree", "add", "-q", "--detach", str(folder), snapshot)
    return folder


# Repositories


def commit_shop(project: Repository) -> str:
    """Commit a package with two test files, and return the commit."""
    return project.commit(
        "shop",
        {
            "shop/__init__.py": "",
            "shop/cart.py": CART,
            "tests/test_cart.py": TEST_CART,
            "tests/test_tax.py": TEST_TAX,
        },
    )


def commit_branches(repository: Repository) -> None:
    """Commit three branches: `left` and `right` change the same line, `docs` another file."""
    repository.commit("begin", {"a.txt": "one\n", "b.txt": "b\n"})
    for name, file, text in (("left", "a.txt", "left\n"), ("right", "a.txt", "right\n"), ("docs", "b.txt", "new\n")):
        repository.git("checkout", "-q", "-b", name, "main")
        repository.commit(name, {file: text})
    repository.git("checkout", "-q", "main")


# Programs


@pytest.fixture
def without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Limits the search path to `EVERYDAY_PROGRAMS` without the named ones."""

    def leave_out(*names: str) -> None:
        folder = tmp_path / "everyday programs"
        folder.mkdir()
        for program in EVERYDAY_PROGRAMS:
            path = shutil.which(program)
            if path and program not in names:
                (folder / program).symlink_to(path)
        monkeypatch.setenv("PATH", str(folder))

    return leave_out


def does_program_run(program: str) -> bool:
    """Whether a program is installed and runs. That of a version manager may have no version to run."""
    if shutil.which(program) is None:
        return False
    argument = "version" if program == "go" else "--version"
    return subprocess.run([program, argument], capture_output=True).returncode == 0
