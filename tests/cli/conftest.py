"""Repositories in which `clawpy` is called, and its calls."""

import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest

from clawpy_console.cli.demo import make_project
from engine.git import Git
from tests.cli.calls import clawpy as clawpy
from tests.cli.calls import shop as shop


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
