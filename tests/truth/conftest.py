"""What these tests share: flows run by real tools, and a search path that has only some of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.execution.flows.conftest import project, run_flow

__all__ = ["project", "run_flow"]

EVERYDAY_PROGRAMS = [
    "sh",
    "git",
    "make",
    "cat",
    "echo",
    "env",
    "python3",
    "node",
    "npm",
    "go",
    "gofmt",
    "cargo",
    "rustc",
    "cc",
    "gcc",
]


@pytest.fixture
def without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Leave a search path on which only everyday programs are, and none of those named."""

    def leave_out(*names: str) -> None:
        folder = tmp_path / "only these"
        folder.mkdir()
        for program in EVERYDAY_PROGRAMS:
            found = shutil.which(program)
            if found and program not in names:
                (folder / program).symlink_to(found)
        monkeypatch.setenv("PATH", str(folder))

    return leave_out
