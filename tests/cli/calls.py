"""Calls of `clawpy` through its own main(), what they print, and the repository in which they are made."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from clawpy_console.cli.main import main
from engine.home import Home
from tests.support.repository import A_FORMER_DAY, Repository, add_conflicting_branches


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
"""Calls `clawpy` with these words; see the fixture `clawpy`."""


def get_document(result: VerbOutput) -> dict[str, Any]:
    """The document of a verb that succeeded."""
    assert result.code == 0, result.out + result.err
    return result.document


@pytest.fixture
def clawpy(home: Home, capsys: pytest.CaptureFixture[str]) -> Clawpy:
    """Runs `clawpy --home HOME ...`."""

    def run(*argv: str) -> VerbOutput:
        capsys.readouterr()
        code = main(["--home", str(home.root), *argv])
        out, err = capsys.readouterr()
        return VerbOutput(code, out, err)

    return run


@pytest.fixture
def shop(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """The current folder: a repository with two branches that conflict, so that there is always a card."""
    repository.commit("begin", {"cart.py": "total = 0\n"}, at=A_FORMER_DAY)
    add_conflicting_branches(repository)
    monkeypatch.chdir(repository.path)
    return repository
