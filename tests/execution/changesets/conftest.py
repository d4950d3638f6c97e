"""The repository on which most tests of change sets begin."""

import pytest

from tests.execution.changesets.landing_world import LandingWorld


@pytest.fixture
def world(landing_world: LandingWorld) -> LandingWorld:
    landing_world.repository.commit("one", {"a.txt": "1\n2\n3\n", "b.txt": "b\n", "old.txt": "some\nlonger\ntext\n"})
    return landing_world
