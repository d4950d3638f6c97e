"""Fixtures of these tests: a repository with two commits, from which contexts are made."""

from datetime import timedelta

import pytest

from tests.prediction.builders import NOW
from tests.prediction.sensing import SensedWorkspace
from tests.support.repository import Repository


@pytest.fixture
def workspace(repository: Repository) -> SensedWorkspace:
    """A workspace whose last commit is two days old."""
    repository.commit("one", dict.fromkeys(("cart.py", "tax.py", "b.py", "notes.md"), "1"), at=NOW - timedelta(days=3))
    repository.commit("two", {"cart.py": "2"}, at=NOW - timedelta(days=2))
    return SensedWorkspace(repository.path)


@pytest.fixture
def head(repository: Repository, workspace: SensedWorkspace) -> str:
    """The id of its last commit."""
    return repository.git("rev-parse", "HEAD")
