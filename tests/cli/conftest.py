"""`clawpy` through its own main(), and the repositories in which it is called."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from clawpy_console.cli.demo import make_project
from clawpy_console.cli.main import main
from engine.git import Git
from engine.home import Home
from tests.support.repository import Repository

A_FORMER_DAY = "2026-01-02T12:00:00+00:00"
"""When the commits of `shop` were made."""


@dataclass
class VerbOutput:
    """The exit code and the output of one call of `clawpy`."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The document that it printed."""
        return json.loads(self.out)


Clawpy = Callable[..., VerbOutput]


def get_document(result: VerbOutput) -> dict[str, Any]:
    """The document of a verb that succeeded."""
    assert result.code == 0, result.out + result.err
    return result.document


@pytest.fixture(scope="session")
def demo_project(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """Makes the demo's repository in a folder; its history is written once."""

    @cache
    def make() -> Path:
        return make_project(tmp_path_factory.mktemp("demo") / "shop", datetime.now(UTC))

    def copy(folder: Path) -> Path:
        shutil.copytree(make(), folder)
        Git(folder).text("status")  # the index knows the copied files, as it knew the first ones
        return folder

    return copy


@pytest.fixture
def project(demo_project: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The demo's repository under an awkward name, and the current folder."""
    folder = demo_project(tmp_path / "my shop ü")
    monkeypatch.chdir(folder)
    return folder


def add_conflicting_branches(repository: Repository):
    """Add two branches that change the same line. At any hour of the day there is a card about them."""
    current_branch = repository.git("branch", "--show-current").strip()
    for name in ("gifts", "express"):
        repository.git("switch", "--quiet", "--create", name, current_branch)
        repository.commit(name, {"cart.py": f"total = {len(name)}\n"}, at=A_FORMER_DAY)
    repository.git("switch", "--quiet", current_branch)


@pytest.fixture
def shop(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """The current folder: a repository with two branches that conflict, so that there is always a card."""
    repository.commit("begin", {"cart.py": "total = 0\n"}, at=A_FORMER_DAY)
    add_conflicting_branches(repository)
    monkeypatch.chdir(repository.path)
    return repository


@pytest.fixture
def clawpy(home: Home, capsys: pytest.CaptureFixture[str]) -> Clawpy:
    """Runs `clawpy --home HOME ...`."""

    def run(*argv: str) -> VerbOutput:
        capsys.readouterr()
        code = main(["--home", str(home.root), *argv])
        out, err = capsys.readouterr()
        return VerbOutput(code, out, err)

    return run
