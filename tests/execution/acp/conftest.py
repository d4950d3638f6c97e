"""Repositories with one file in which a scripted coding agent works."""

from typing import Any

import pytest

from tests.execution.acp.acp_world import AcpWorld, MakeAcpWorld
from tests.execution.session_world import MakeWorld
from tests.support.repository import Repository


@pytest.fixture
def make_acp_world(make_world: MakeWorld, repository: Repository) -> MakeAcpWorld:
    """Makes an `AcpWorld`, or one of a class below it, with its options. The repository has one file."""
    repository.commit("first", {"a.txt": "one\ntwo\nthree\n"})

    def make_with_repository(kind: type[AcpWorld] = AcpWorld, **options: Any) -> AcpWorld:
        return make_world(kind, repository=repository, **options)

    return make_with_repository


@pytest.fixture
def world(make_acp_world: MakeAcpWorld) -> AcpWorld:
    return make_acp_world()
