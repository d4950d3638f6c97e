"""Worlds with a coding agent, for each test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import Repository
from tests.execution.acp.acp_world import AcpWorld
from tests.execution.session_world import MakeWorld

Make = Callable[..., Any]


@pytest.fixture
def make(make_world: MakeWorld, repository: Repository) -> Make:
    """Makes a world of a kind of `AcpWorld` with its options. The repository has one file."""
    repository.commit("first", {"a.txt": "one\ntwo\nthree\n"})

    def make(kind: type[AcpWorld] = AcpWorld, **options: Any) -> AcpWorld:
        return make_world(kind, repository=repository, **options)

    return make


@pytest.fixture
def world(make: Make) -> AcpWorld:
    return make()
